"""`builder run --review|--fix|--check`: which commit is meant, as which step, and what is refused."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from backend.journal import Boundary, Journal
from backend.launch import Controller, launch
from backend.ownership import hold_lease
from backend.records import LaunchRecord
from backend.requests import WORKSPACE_BYTES, LaunchClass, LaunchRequest, SourceRoute
from backend.space import ExportRule, WorkspaceStart
from backend.workspace.refusals import CandidateReason, CandidateRefused
from builder.cli import main_inner
from builder.cli.documents.runs import RunsDocument
from builder.cli.invocation import Result
from builder.cli.verbs import run_verb
from builder.continuing import CandidateRequest, RunOf, continued, find_candidate
from builder.launching import DEFAULT_RUN, RunRequest, dry_run, launch_request
from builder.settings.settings_file import Settings
from builder.sourcing import tell_export
from builder.state import State
from builder.verifying import Chosen
from builder.workshop import Workshop
from images.config import AgentName
from images.errors import ExitCode, LaunchReason, LaunchRefused
from provenance.expectations import Expectation
from provenance.policy import Mode
from provenance.verify import VerifiedImage
from tests.fakes.admitted import NOW, admitted_of, request
from tests.fakes.engine import FakeEngine, said
from tests.fakes.evidence import key
from tests.fakes.policies import LAUNCHER_ID
from tests.fakes.repositories import ENVIRONMENT
from tests.fakes.sources import Agent, agent_of, operator_of, source_of
from tests.fakes.states import said as told
from tests.fakes.states import workshop_at
from tests.unit.backend.test_journal import walk_to


@dataclass
class Place:
    """A state with one launch, run.1, whose commit came home; and a scripted engine to launch more on."""

    root: Path
    workshop: Workshop
    engine: FakeEngine
    agent: Agent
    verified: VerifiedImage
    tip: str = ""
    staged: int = 0

    @property
    def state(self) -> State:
        return self.workshop.state

    def launch(self, asked: LaunchRequest) -> LaunchRecord:
        if asked.source is not None:
            self.agent.answers(self.engine, asked.source.prepared.commit)
        self.engine.answers.setdefault(asked.command, said())
        with (
            hold_lease(self.state.leases, self.state.id) as owner,
            Journal.open(self.state.journal, self.state.id) as journal,
        ):
            controller = Controller(
                engine=self.engine,
                journal=journal,
                owner=owner,
                signer=key("launcher"),
                launcher_id=LAUNCHER_ID,
                version="0.1.0",
                staging=self.root / "staging",
                now=lambda: NOW,
                candidates=self.state.candidates,
            )
            return launch(controller, admitted_of(self.verified), asked)

    def continued(
        self,
        name: str = "run.1",
        commit: str | None = None,
        *,
        run: RunOf = RunOf.CANDIDATE,
        kind: LaunchClass = LaunchClass.REVIEW,
    ) -> LaunchRequest:
        self.staged += 1
        staging = self.root / f"staging-{self.staged}"
        staging.mkdir()
        asked = CandidateRequest(
            launch_id=name, commit=commit, run=run, route=SourceRoute.BIND, workspace_bytes=WORKSPACE_BYTES
        )
        found = find_candidate(self.workshop, asked)
        base = request(run_id="own", command=("make", "test"), launch_class=kind)
        return continued(self.workshop, found, base, staging)


@pytest.fixture
def place(tmp_path: Path, verified: VerifiedImage) -> Place:
    for name in ("fake", "staging"):
        (tmp_path / name).mkdir()
    workshop = replace(workshop_at(tmp_path / "state"), environment={"PATH": ENVIRONMENT["PATH"]})
    agent = agent_of(tmp_path, operator_of(tmp_path))
    made = Place(tmp_path, workshop, FakeEngine(tmp_path / "fake"), agent, verified)
    source = source_of(tmp_path)
    made.tip = agent.workspace.commit({"readme": "two\n"}, "by the agent")
    made.launch(request(source=source))
    return made


@pytest.mark.parametrize(
    ("kind", "rule", "start"),
    [
        (LaunchClass.REVIEW, ExportRule.NOTHING, WorkspaceStart.REPOSITORY),
        (LaunchClass.FIX, ExportRule.COMMITS, WorkspaceStart.REPOSITORY),
        (LaunchClass.EXPORT_COMMAND, ExportRule.NOTHING, WorkspaceStart.FILES),
    ],
)
def test_the_recorded_commit_as_the_next_step_of_its_run(
    place: Place, kind: LaunchClass, rule: ExportRule, start: WorkspaceStart
) -> None:
    asked = place.continued(commit=place.tip, kind=kind)
    assert asked.source is not None
    assert (asked.source.prepared.commit, asked.source.prepared.candidate_of) == (place.tip, "run.1")
    assert (asked.run_id, asked.step) == ("run", 2)
    plan = dry_run(place.workshop, admitted_of(place.verified), asked, place.root)
    assert plan.space is not None
    assert (plan.space.export, plan.space.start) == (rule, start)
    assert f"candidate: commit {place.tip}, which launch run.1 exported" in told(place.workshop)


def test_review_fix_check_one_after_the_other_and_the_way_home(place: Place) -> None:
    place.launch(place.continued())
    later = place.agent.workspace.commit({"readme": "three\n"}, "a fix")
    fix = place.launch(place.continued(kind=LaunchClass.FIX))
    assert fix.launch_id == "run.3"
    place.launch(place.continued("run.3", later, kind=LaunchClass.EXPORT_COMMAND))
    own = place.continued("run.3", run=RunOf.OWN)
    assert (own.run_id, own.step) == ("own", 1)
    tell_export(place.workshop.reporter, None, fix)
    line = f"git fetch {place.state.candidates}/run.3.git refs/agent-image-builder/quarantine/run.3"
    assert f"in your repository, bring it home: {line}:refs/heads/agent/run.3\n" in told(place.workshop)
    assert "builder run --review, --check or --fix run.3" in told(place.workshop)
    with Journal.open(place.state.journal, place.state.id) as journal:
        kinds = [(one.intent.launch_id, one.intent.launch_class) for one in journal.entries("run")]
    assert kinds == [
        ("run.1", "execute"),
        ("run.2", "review"),
        ("run.3", "fix"),
        ("run.4", "export-command"),
    ]


def refused(place: Place, name: str = "run.1", commit: str | None = None) -> CandidateRefused:
    with pytest.raises(CandidateRefused) as caught:
        place.continued(name, commit)
    assert caught.value.reason == CandidateReason.NO_CANDIDATE
    assert caught.value.hint.startswith(("builder ", "leave --commit out"))
    return caught.value


@pytest.mark.parametrize("commit", ["0" * 40, "", "HEAD", "short"])
def test_another_commit_than_the_recorded_one(place: Place, commit: str) -> None:
    """An empty word is what a script's unset variable gives: it must not stand for any commit."""
    commit = place.tip[:12] if commit == "short" else commit
    assert f"exported commit {place.tip}, not {commit!r}" in refused(place, commit=commit).what


def test_a_commit_that_was_put_in_the_candidates_place_is_found_out(place: Place) -> None:
    """The signed record says which commit it is, and not what lies in the directory."""
    reference = place.state.candidates / "run.1.git/refs/agent-image-builder/quarantine/run.1"
    reference.write_text(operator_of(place.root).head + "\n")
    assert f"not {place.tip!r}" in refused(place).what


@pytest.mark.parametrize("name", ["", "nowhere", "run.2", "../run.1", "run.1.git", "nowhere.1"])
def test_what_is_no_launch(place: Place, name: str) -> None:
    assert refused(place, name).hint == "builder runs"


def test_a_run_is_no_launch_and_its_candidates_are_named(place: Place) -> None:
    assert "it has: run.1" in refused(place, "run").what


def test_a_launch_without_a_candidate_says_why(place: Place) -> None:
    place.launch(place.continued())
    assert "run.2 exported no candidate: not-allowed" in refused(place, "run.2").what
    place.launch(request(run_id="plain"))
    assert "plain.1 exported no candidate: it had no repository" in refused(place, "plain.1").what
    shutil.rmtree(place.state.candidates / "run.1.git")
    assert "the candidate of launch run.1 was removed" in refused(place).what


def test_a_candidate_without_a_record_is_not_taken(place: Place) -> None:
    with Journal.open(place.state.journal, place.state.id) as journal:
        (kept,) = [entry.intent for entry in journal.entries()]
        intent = replace(kept, launch_id="half.1", run_id="half", container_name="half")
        walk_to(journal, Boundary.IMPORTED, intent)
    shutil.copytree(place.state.candidates / "run.1.git", place.state.candidates / "half.1.git")
    assert "half.1 has no record: it is imported" in refused(place, "half.1").what


def test_a_step_under_another_mode_is_refused_by_the_dry_run_too(place: Place) -> None:
    other = admitted_of(place.verified, mode=Mode.DEVELOPMENT)
    with pytest.raises(LaunchRefused) as caught:
        dry_run(place.workshop, other, place.continued(), place.root)
    assert caught.value.reason == LaunchReason.RUN_PINNED
    assert "--new-run" in caught.value.hint
    assert dry_run(place.workshop, other, place.continued(run=RunOf.OWN), place.root).launch_id == "own.1"


@pytest.mark.parametrize(
    ("kind", "agent"),
    [(LaunchClass.EXECUTE, "pi"), (LaunchClass.REVIEW, "pi"), (LaunchClass.EXPORT_COMMAND, "")],
)
def test_a_check_gets_no_agent_not_even_the_projects_own(
    verified: VerifiedImage, kind: LaunchClass, agent: str
) -> None:
    project: Any = SimpleNamespace(config=SimpleNamespace(run=replace(DEFAULT_RUN, agent=AgentName.PI)))
    chosen = Chosen(digest=verified.image.digest, expectation=Expectation(), project=project)
    asked = RunRequest(command=(), agent="", arguments=(), deadline=None, launch_class=kind)
    found = launch_request(chosen, asked, Settings(), verified.policy, NOW)
    assert (found.launch_class, found.agent) == (kind, agent)


@pytest.mark.parametrize(
    ("words", "code", "said_so"),
    [
        (["--new-run"], ExitCode.USAGE, "--new-run without a candidate"),
        (["--new-run", "--source", "."], ExitCode.USAGE, "--new-run without a candidate"),
        (["--commit", ""], ExitCode.USAGE, "--commit without --source or a candidate"),
        (["--review", "run.9"], ExitCode.VERIFY, "no launch 'run.9'"),
        (["--fix", ""], ExitCode.VERIFY, "no launch ''"),
        (["--check", "run.9"], ExitCode.VERIFY, "hint: builder runs"),
    ],
)
def test_what_is_typed_wrongly_is_refused_before_an_image_is_looked_at(
    words: list[str], code: ExitCode, said_so: str, typed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["run", "--dry-run", "--state", str(typed / "state"), *words, "--", "true"]
    assert main_inner(argv, {"HOME": str(typed), "PATH": ENVIRONMENT["PATH"]}) == code
    assert said_so in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "kind"),
    [
        ("--review", LaunchClass.REVIEW),
        ("--fix", LaunchClass.FIX),
        ("--check", LaunchClass.EXPORT_COMMAND),
    ],
)
def test_what_is_typed_is_what_is_asked(
    place: Place, typed: Path, monkeypatch: pytest.MonkeyPatch, option: str, kind: LaunchClass
) -> None:
    given: list[Any] = []
    run = RunOf.OWN if option == "--fix" else RunOf.CANDIDATE

    def taken(*them: Any, terminal: None) -> Result[RunsDocument]:
        given.extend(them[2:4])
        return Result(document=RunsDocument(launches=()))

    monkeypatch.setattr(run_verb, "_launch", taken)
    new = ["--new-run"] if run is RunOf.OWN else []
    words = [option, "run.1", *new, "--commit", place.tip, "--copy-in", "--workspace-size", "1GiB"]
    argv = ["run", "--state", str(place.state.root), *words, "--", "make", "test"]
    assert main_inner(argv, {"HOME": str(typed), "PATH": ENVIRONMENT["PATH"]}) == ExitCode.DONE
    asked, found = given
    assert (asked.launch_class, asked.command) == (kind, ("make", "test"))
    assert (found.commit, found.run_id, found.step) == (place.tip, "run", 2)
    assert found.asked == CandidateRequest(
        launch_id="run.1", commit=place.tip, run=run, route=SourceRoute.COPY_IN, workspace_bytes=1 << 30
    )


@pytest.mark.parametrize("other", ["--source", "--fix", "--check"])
def test_one_act_at_a_time(other: str, typed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["run", "--review", "run.1", other, "run.1", "--", "true"]
    assert main_inner(argv, {"HOME": str(typed)}) == ExitCode.RUN_FAILED
    assert "not allowed with argument" in capsys.readouterr().err
