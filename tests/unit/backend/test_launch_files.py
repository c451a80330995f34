"""A launch with a repository on the scripted engine: what is planned, made, checked, taken out and left."""

from __future__ import annotations

import dataclasses
import io
import json
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from backend import launch as launching
from backend import room
from backend.account import WORKSPACE
from backend.agent_command import CommandEnd, Output
from backend.commands import Ending, Outcome
from backend.containers import ContainerPlan, Purpose, ReadOnlyBind, VolumeMount
from backend.engines import docker_create, podman_create
from backend.journal import Boundary
from backend.launch import launch
from backend.measuring import LEFT, MOST_MISSED, SIZE, Measure
from backend.plan import plan_launch
from backend.records import LaunchEnding, LaunchRecord
from backend.recovery import RecoveryPlan, recover
from backend.requests import LaunchClass, LaunchSource, SourceRoute, Supervision
from backend.room import ExportStatus, SpaceSeen, publish_workspace
from backend.space import ExportRule, WorkspaceStart
from backend.supervise import END_AGENT
from backend.workspace.candidates import prepare_candidate, published
from backend.workspace.importing import ExportLimits
from backend.workspace.prepared import PreparedSource
from backend.workspace.producer import export_command
from backend.workspace.refusals import CandidateReason, CandidateRefused
from builder.sourcing import fetch_line
from images.errors import HostError, LaunchReason, LaunchRefused, StateError, UsageError
from provenance.layout import open_image
from provenance.policy import Mode
from provenance.verify import VerifiedImage
from tests.fakes.admitted import ENVIRONMENT, NOW, STATE, Bench, admitted_of, request
from tests.fakes.engine import said
from tests.fakes.exports import Desk
from tests.fakes.kills import CROSSED, OF_A_CONTINUATION
from tests.fakes.layouts import make_image
from tests.fakes.proved import CONFIG
from tests.fakes.repositories import Repo
from tests.fakes.sources import PLENTY, SMALL, Agent, agent_of, git_of, members, operator_of, source_of
from tests.unit.backend.test_journal import HAPPY, WITH_FILES, walk_to
from tests.unit.backend.test_launch import predicate_of


@dataclasses.dataclass
class Files:
    """A controller with a place for candidates, a source that is ready, and an agent's clone."""

    at: Bench
    root: Path
    source: LaunchSource
    agent: Agent
    verified: VerifiedImage

    def run(self, output: Output | None = None, **changes: Any) -> LaunchRecord:
        admitted = admitted_of(self.verified, shared_files=changes.pop("shared_files", True))
        asked = request(**({"source": self.source} | changes))
        if asked.source is not None:
            self.agent.answers(self.at.engine, asked.source.prepared.commit)
        self.at.engine.answers.setdefault(asked.command, said())
        return launch(self.at.controller, admitted, asked, output)

    def candidate(self, launch_id: str, commit: str, name: str = "later") -> PreparedSource:
        staging = self.root / f"staging-{name}"
        staging.mkdir()
        return prepare_candidate(git_of(self.root), self.root / "candidates", launch_id, commit, staging)


@pytest.fixture
def files(at: Bench, verified: VerifiedImage, tmp_path: Path) -> Files:
    operator = operator_of(tmp_path)
    return Files(at, tmp_path, source_of(tmp_path), agent_of(tmp_path, operator), verified)


def test_a_bind_where_it_was_proved_else_a_copy_and_never_a_forced_bind(files: Files) -> None:
    def planned(*, shared: bool, route: SourceRoute) -> ContainerPlan:
        source = dataclasses.replace(files.source, route=route)
        admitted = admitted_of(files.verified, shared_files=shared)
        return plan_launch(admitted, request(source=source), files.at.owner).container

    bound = planned(shared=True, route=SourceRoute.BIND)
    assert bound.read_only_binds == (
        ReadOnlyBind(source=files.source.prepared.tree.folder, target="/source"),
    )
    assert [mount.target for mount in bound.named_volumes] == [WORKSPACE]
    for shared, route in (
        (True, SourceRoute.COPY_IN),
        (False, SourceRoute.BIND),
        (False, SourceRoute.COPY_IN),
    ):
        copied = planned(shared=shared, route=route)
        assert copied.read_only_binds == ()
        assert copied.named_volumes == (
            VolumeMount(name=f"{copied.name}-workspace", target=WORKSPACE, writable=True),
            VolumeMount(name=f"{copied.name}-source", target="/source", writable=False),
        )
    for plan in (bound, copied):
        assert WORKSPACE not in {item.path for item in plan.tmpfs}
        assert plan.private_binds == ()


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), StateError("the disk is gone")], ids=["signal", "disk"]
)
@pytest.mark.parametrize("moved", [True, False])
def test_a_candidate_that_is_published_while_a_signal_comes_is_withdrawn(
    files: Files, monkeypatch: pytest.MonkeyPatch, error: BaseException, moved: bool
) -> None:
    """The record says that nothing came out; and what lay there before is somebody else's."""
    files.agent.workspace.commit({"readme": "two\n"}, "by the agent")
    place = files.root / "candidates" / "run.1.git"

    def interrupted(*given: Any) -> SpaceSeen:
        if moved:
            assert publish_workspace(*given).place == place
        else:
            place.mkdir()
        raise error

    monkeypatch.setattr(launching, "publish_workspace", interrupted)
    with pytest.raises(type(error)):
        files.run()
    assert place.exists() != moved
    assert files.at.journal.passed("run.1")[-2:] == (Boundary.IMPORTED, Boundary.RECORDED)
    assert predicate_of(files.at)["export"]["status"] == "not-reached"


def test_commits_come_home_by_one_export_and_one_import(files: Files) -> None:
    tip = files.agent.workspace.commit({"readme": "two\n"}, "by the agent")
    files.agent.workspace.write({"readme": "dirty\n", "left": "x"})
    record = files.run()
    seen = record.observed.space
    assert seen is not None
    assert seen.imported is not None
    assert (seen.status, seen.imported.commit.name) == (ExportStatus.EXPORTED, tip)
    assert list(files.at.journal.passed("run.1")) == WITH_FILES
    assert [p.detail for p in files.at.journal.passages("run.1") if p.boundary is Boundary.IMPORTED] == [tip]
    assert (files.at.engine.containers, files.at.engine.volumes) == ({}, {})
    found = predicate_of(files.at)
    assert found["source"] == {
        "kind": "operator",
        "candidateOf": "",
        "commit": files.source.prepared.commit,
        "tree": files.source.prepared.tree.tree,
        "files": 3,
        "shallow": False,
        "route": "bind",
        "workspace": "repository",
        "workspaceBytes": files.source.workspace_bytes,
    }
    assert found["export"]["commit"] == tip
    assert found["export"]["parents"] == [files.source.prepared.commit]
    assert found["export"]["notExported"]["named"] == {
        "modified": 1,
        "untracked": 1,
        "nested-repository": 0,
        "submodule": 0,
        "reference": 0,
    }
    raw = record.statement.raw
    assert str(files.root).encode() not in raw
    assert b"left" not in json.dumps(found["export"]).encode()
    assert published(files.root / "candidates") == ("run.1",)
    assert "refs/heads/agent/run.1" in fetch_line(seen, files.root / "operator", "run.1")


def test_what_is_copied_in_has_the_agents_owner_and_a_repository_without_a_path_of_the_host(
    files: Files,
) -> None:
    files.run()
    ((name, copies),) = files.at.engine.filled.items()
    assert name.endswith("-workspace")
    ((purpose, tar),) = copies
    assert purpose == "launch"
    found = members(tar)
    assert {(member.uid, member.gid) for member in found.values()} == {(1000, 1000)}
    assert {"readme", "src/a.txt", ".git/HEAD", ".git/config"} <= set(found)
    assert not [name for name in found if "alternates" in name or "hooks" in name]
    assert str(files.root).encode() not in tar


def test_a_copied_source_is_roots_and_filled_by_a_container_that_never_starts(files: Files) -> None:
    files.run(shared_files=False)
    (source,) = [name for name in files.at.engine.filled if name.endswith("-source")]
    ((purpose, tar),) = files.at.engine.filled[source]
    assert purpose == Purpose.FILL.value
    found = members(tar)
    assert {(member.uid, member.gid) for member in found.values()} == {(0, 0)}
    assert not [name for name in found if name.startswith(".git")]
    calls = [verb for verb in files.at.engine.calls if verb in ("create", "copy_in", "attach", "start")]
    assert calls == ["create", "copy_in", "create", "copy_in", "attach"]
    assert predicate_of(files.at)["source"]["route"] == "copy-in"


def test_nothing_new_is_no_candidate(files: Files) -> None:
    record = files.run()
    assert record.observed.space is not None
    assert record.observed.space.status is ExportStatus.NOTHING_NEW
    assert record.observed.space.unseen is not None
    assert published(files.root / "candidates") == ()
    assert Boundary.IMPORTED not in files.at.journal.passed("run.1")


def forged(files: Files) -> Outcome:
    (files.agent.at.folder / "export").write_bytes(b"not an export")
    return said()


def test_an_export_that_is_refused_is_recorded_and_raised_after_the_record(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Desk, "produce", lambda *_, **__: forged(files))
    with pytest.raises(CandidateRefused) as caught:
        files.run()
    assert caught.value.reason == CandidateReason.FRAME
    found = predicate_of(files.at)
    assert (found["ending"], found["exitCode"]) == ("completed", 0)
    assert (found["export"]["status"], found["export"]["reason"]) == ("refused", "bad-frame")
    assert published(files.root / "candidates") == ()
    assert (files.at.engine.containers, files.at.engine.volumes) == ({}, {})


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (b"cannot-create\n", "cannot create in /workspace"),
        (b"cannot-delete\n", "cannot delete in /workspace"),
        (b"source-is-another\n", "/source is not the tree"),
        (b"source-unreadable\n", "cannot read /source"),
        (b"source-writable\n", "can create in /source"),
        (b"source-file-writable\n", "can write to a file of /source"),
        (b"something \xff else\n", "something"),
    ],
)
def test_a_workspace_that_does_not_work_starts_no_agent(files: Files, fault: bytes, told: str) -> None:
    """RUN-02: the message names what failed, the mapping and the remedy."""
    files.at.engine.faults = fault
    with pytest.raises(LaunchRefused) as caught:
        files.run()
    assert caught.value.reason == LaunchReason.WORKSPACE
    assert told in caught.value.what
    assert "0->100000 (65536)" in caught.value.what
    assert caught.value.hint == "builder run --copy-in"
    assert Boundary.COMMANDED not in files.at.journal.passed("run.1")
    assert (files.at.engine.containers, files.at.engine.volumes) == ({}, {})


def test_a_volume_that_is_not_ours_is_neither_used_nor_removed(files: Files) -> None:
    plan = plan_launch(admitted_of(files.verified), request(source=files.source), files.at.owner)
    assert plan.space is not None
    foreign = dataclasses.replace(plan.space.volumes[0], labels=(("somebody", "else"),))
    files.at.engine.create_volume(foreign)
    with pytest.raises(HostError):
        files.run()
    assert list(files.at.engine.volumes.values()) == [foreign]


@pytest.mark.parametrize("verb", ["create_volume", "create", "copy_in"])
@pytest.mark.parametrize("shared", [True, False])
def test_a_failure_on_the_way_in_leaves_nothing(files: Files, verb: str, shared: bool) -> None:
    files.at.engine.fails[verb] = HostError("no")
    with pytest.raises(HostError):
        files.run(shared_files=shared)
    assert (files.at.engine.containers, files.at.engine.volumes) == ({}, {})
    assert predicate_of(files.at)["ending"] == "failed"
    assert predicate_of(files.at)["export"]["status"] == "not-reached"


def test_review_fix_and_export_command(files: Files) -> None:
    tip = files.agent.workspace.commit({"readme": "two\n"}, "by the agent")
    files.run()
    rules = {}
    for step, kind in enumerate((LaunchClass.REVIEW, LaunchClass.FIX, LaunchClass.EXPORT_COMMAND), start=2):
        source = LaunchSource(prepared=files.candidate("run.1", tip, kind.value))
        plan = plan_launch(
            admitted_of(files.verified),
            request(step=step, launch_class=kind, source=source),
            files.at.owner,
        )
        assert plan.space is not None
        assert plan.space.source.commit == tip
        rules[kind] = (plan.space.export, plan.space.start)
    assert rules == {
        LaunchClass.REVIEW: (ExportRule.NOTHING, WorkspaceStart.REPOSITORY),
        LaunchClass.FIX: (ExportRule.COMMITS, WorkspaceStart.REPOSITORY),
        LaunchClass.EXPORT_COMMAND: (ExportRule.NOTHING, WorkspaceStart.FILES),
    }


def started_from(files: Files, step: int) -> dict[str, Any]:
    """What the signed record of a step says of its source."""
    found: dict[str, Any] = predicate_of(files.at, f"run.{step}")["source"]
    return found


def test_a_review_exports_nothing_and_a_fix_descends_from_the_candidate(files: Files) -> None:
    """The workflow of one issue: execute, review, fix, check, ready. The commit is exact at each step."""
    base = files.source.prepared.commit
    tip = files.agent.workspace.commit({"readme": "two\n"}, "by the agent")
    files.agent.workspace.write({"readme": "dirty\n", "left": "x"})
    files.run()
    assert (started_from(files, 1)["kind"], started_from(files, 1)["commit"]) == ("operator", base)

    review = LaunchSource(prepared=files.candidate("run.1", tip, "review"))
    record = files.run(step=2, launch_class=LaunchClass.REVIEW, source=review)
    assert record.observed.space is not None
    assert record.observed.space.status is ExportStatus.NOT_ALLOWED
    assert Boundary.EXPORTED not in files.at.journal.passed("run.2")
    assert (started_from(files, 2)["commit"], started_from(files, 2)["candidateOf"]) == (tip, "run.1")

    files.at.engine.filled.clear()
    fix = LaunchSource(prepared=files.candidate("run.1", tip, "fix"))
    later = files.agent.workspace.commit({"readme": "three\n"}, "a fix")
    record = files.run(step=3, launch_class=LaunchClass.FIX, source=fix)
    ((_, ((_, tar),)),) = files.at.engine.filled.items()
    with tarfile.open(fileobj=io.BytesIO(tar)) as archive:
        readme = archive.extractfile("readme")
        assert readme is not None
        assert readme.read() == b"two\n"  # the candidate's: neither the base's nor what was left dirty
        assert "left" not in archive.getnames()
    assert record.observed.space is not None
    assert record.observed.space.imported is not None
    assert record.observed.space.imported.commit.name == later
    assert record.observed.space.imported.commit.parents == (tip,)
    assert (started_from(files, 3)["commit"], started_from(files, 3)["candidateOf"]) == (tip, "run.1")

    check = LaunchSource(prepared=files.candidate("run.3", later, "check"))
    kind = LaunchClass.EXPORT_COMMAND
    record = files.run(step=4, launch_class=kind, source=check, command=("make", "test"))
    assert record.exit_code == 0
    assert (started_from(files, 4)["commit"], started_from(files, 4)["workspace"]) == (later, "files")
    # Ready: what was checked is the one commit that comes home, with the whole way from the base.
    assert published(files.root / "candidates") == ("run.1", "run.3")
    home = files.root / "candidates" / "run.3.git"
    said = Repo(home).git("log", "--format=%H", f"{base}..refs/agent-image-builder/quarantine/run.3")
    assert said.split() == [later, tip]


def test_a_blocked_hand_over_is_refused_and_nothing_is_saved(files: Files) -> None:
    """A commit that no launch exported, and a step under another image, engine or mode."""
    tip = files.agent.workspace.commit({"readme": "two\n"}, "by the agent")
    files.run()
    with pytest.raises(CandidateRefused):
        files.candidate("run.1", files.source.prepared.commit, "another")
    for kind in (LaunchClass.REVIEW, LaunchClass.FIX):
        with pytest.raises(LaunchRefused) as caught:
            files.run(step=2, launch_class=kind)
        assert caught.value.reason == LaunchReason.NOT_A_CANDIDATE
    candidate = LaunchSource(prepared=files.candidate("run.1", tip))
    admitted = admitted_of(files.verified)
    elsewhere = dataclasses.replace(admitted.facts, endpoint="unix:///other.sock")
    rebuilt = open_image(files.root / "l", make_image(files.root / "l", config=dict(CONFIG, Env=ENVIRONMENT)))
    for other in (
        admitted_of(dataclasses.replace(files.verified, image=rebuilt)),
        dataclasses.replace(admitted, mode=Mode.DEVELOPMENT),
        dataclasses.replace(admitted, facts=elsewhere),
    ):
        files.at.engine.told = other.facts
        files.at.engine.calls.clear()
        for kind in (LaunchClass.REVIEW, LaunchClass.FIX, LaunchClass.EXPORT_COMMAND):
            asked = request(step=2, launch_class=kind, source=candidate)
            with pytest.raises(LaunchRefused) as caught:
                launch(files.at.controller, other, asked)
            assert caught.value.reason == LaunchReason.RUN_PINNED
        assert set(files.at.engine.calls) == {"facts", "find_image"}
    assert [entry.intent.launch_id for entry in files.at.journal.entries()] == ["run.1"]
    assert published(files.root / "candidates") == ("run.1",)


@pytest.mark.parametrize("wrong", ["0" * 40, "base", "short", "name"])
def test_a_candidate_is_found_by_its_exact_commit_alone(files: Files, wrong: str) -> None:
    tip = files.agent.workspace.commit({"readme": "two\n"}, "by the agent")
    files.run()
    commit = {"base": files.source.prepared.commit, "short": tip[:12], "name": "HEAD"}.get(wrong, wrong)
    with pytest.raises(CandidateRefused) as caught:
        files.candidate("run.1", commit)
    assert caught.value.reason == CandidateReason.NO_CANDIDATE
    with pytest.raises(CandidateRefused):
        files.candidate("../candidates/run.1", tip, "other")


def test_without_a_place_for_candidates_nothing_begins(files: Files) -> None:
    with pytest.raises(StateError):
        launch(
            dataclasses.replace(files.at.controller, candidates=None),
            admitted_of(files.verified),
            request(source=files.source),
        )
    assert files.at.journal.entries() == ()
    with pytest.raises(UsageError, match="leased"):
        plan_launch(
            admitted_of(files.verified),
            request(source=files.source, supervision=Supervision.LEASED, command=()),
            files.at.owner,
        )
    small = dataclasses.replace(files.source, workspace_bytes=1000)
    with pytest.raises(UsageError):
        files.run(source=small)


def test_without_a_source_nothing_changes(files: Files) -> None:
    record = files.run(source=None)
    assert list(files.at.journal.passed("run.1")) == HAPPY
    assert record.observed.space is None
    found = predicate_of(files.at)
    assert (found["source"], found["export"]) == (None, None)
    assert not {"create_volume", "list_volumes", "copy_in"} & set(files.at.engine.calls)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backend.measuring.FIRST_SECONDS", 0.01)
    monkeypatch.setattr("backend.measuring.EVERY_SECONDS", 0.01)


BIG = b"90000000\t/workspace\n"
LITTLE = PLENTY.replace(b"90000000", b"1000")


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        ({SIZE: said(BIG)}, "workspace-full"),
        ({SIZE: said(BIG, exit_code=1)}, "workspace-full"),
        ({LEFT: said(LITTLE)}, "engine-disk-full"),
        ({SIZE: said(exit_code=137)}, "workspace-unmeasured"),
        ({SIZE: said(b"nonsense\n")}, "workspace-unmeasured"),
        ({LEFT: said(b"nonsense")}, "workspace-unmeasured"),
        ({LEFT: said(b"x\n1 2 three\n")}, "workspace-unmeasured"),
        ({SIZE: Outcome(ending=Ending.TIMED_OUT, exit_code=None)}, "workspace-unmeasured"),
    ],
)
@pytest.mark.usefixtures("quick")
def test_each_sample_that_ends_a_launch(
    files: Files, answers: dict[tuple[str, ...], Outcome], reason: str
) -> None:
    plan = plan_launch(admitted_of(files.verified), request(source=files.source), files.at.owner)
    files.at.engine.load(plan.container.image.image, Path("/nowhere"))
    assert plan.space is not None
    for volume in plan.space.volumes:
        files.at.engine.create_volume(volume)
    container = files.at.engine.create(plan.container)
    files.at.engine.start(container)
    files.at.engine.answers |= {SIZE: said(SMALL), LEFT: said(PLENTY)} | answers
    with Measure(files.at.engine, container, plan.account, plan.space.bound) as measure:
        while measure.over is None:
            pass
    assert measure.over.reason == reason
    asked = files.at.engine.calls.count("exec")
    assert (asked >= MOST_MISSED) if reason == "workspace-unmeasured" else (asked <= 2)


@pytest.mark.usefixtures("quick")
def test_a_launch_beyond_its_bound_ends_and_what_was_committed_comes_home(files: Files) -> None:
    tip = files.agent.workspace.commit({"readme": "two\n"}, "by the agent")
    engine = files.at.engine
    real = engine.exec

    def execute(container: str, plan: Any, **given: Any) -> Outcome:
        if plan.argv == ("work",):
            cancelled = given["cancelled"]
            while not cancelled():
                pass
            return Outcome(ending=Ending.CANCELLED, exit_code=-15)
        if plan.argv == SIZE:
            return said(BIG)
        return real(container, plan, **given)

    engine.exec = execute  # type: ignore[method-assign]
    record = files.run(command=("work",))
    assert (record.observed.ending, record.observed.reason) == (LaunchEnding.WORKSPACE_FULL, "workspace-full")
    assert record.exit_code is None
    assert record.observed.space is not None
    assert record.observed.space.imported is not None
    assert record.observed.space.imported.commit.name == tip


@pytest.mark.parametrize("kind", list(CROSSED))
def test_what_each_class_crosses_is_what_the_kill_tests_kill(files: Files, kind: LaunchClass) -> None:
    tip = files.agent.workspace.commit({"readme": "two\n"}, "by the agent")
    files.run()
    if kind is not LaunchClass.EXECUTE:
        files.agent.workspace.commit({"readme": "three\n"}, "a fix")
        source = LaunchSource(prepared=files.candidate("run.1", tip))
        files.run(step=2, launch_class=kind, source=source)
    last = files.at.journal.entries()[-1].intent.launch_id
    assert list(files.at.journal.passed(last)) == CROSSED[kind]
    assert {one[1] for one in OF_A_CONTINUATION if one[0] is kind} in (set(CROSSED[kind]), set())


def test_nothing_of_the_agent_runs_while_its_workspace_is_exported(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it left in the background must not change the workspace under its own export."""
    files.agent.workspace.commit({"readme": "two\n"}, "by the agent")
    asked: list[tuple[str, ...]] = []
    real = files.at.engine.exec

    def watching(container: str, plan: Any, **given: Any) -> Outcome:
        asked.append(plan.argv)
        return real(container, plan, **given)

    monkeypatch.setattr(files.at.engine, "exec", watching)
    files.run()
    export = export_command(files.source.prepared.commit, ExportLimits().pack_bytes)
    assert asked[asked.index(export) - 1] == END_AGENT
    assert asked.index(("true",)) < asked.index(END_AGENT)


@pytest.mark.parametrize("ending", [one for one in LaunchEnding if one not in launching._EXPORTING])
def test_of_a_command_that_did_not_end_by_itself_or_by_a_bound_nothing_comes_out(
    files: Files, monkeypatch: pytest.MonkeyPatch, ending: LaunchEnding
) -> None:
    """Its workspace is gone, or may be anything: the container was lost, the operator interrupted."""
    files.agent.workspace.commit({"readme": "two\n"}, "by the agent")
    monkeypatch.setattr(launching, "run_measured", lambda *_: CommandEnd(ending=ending, reason="as scripted"))
    record = files.run()
    assert record.observed.ending is ending
    assert record.observed.space is not None
    assert record.observed.space.status is ExportStatus.NOT_REACHED
    assert Boundary.EXPORTED not in files.at.journal.passed("run.1")
    assert published(files.root / "candidates") == ()


def test_an_export_that_is_larger_than_its_frame_may_be_is_refused(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process runner's own bound: what is beyond it is never written, and nothing of it is imported."""
    files.agent.workspace.commit({"readme": "two\n"}, "by the agent")
    monkeypatch.setattr(room, "FRAME_OVERHEAD", 100 - ExportLimits().pack_bytes)
    with pytest.raises(CandidateRefused, match="more than 100 bytes") as caught:
        files.run()
    assert caught.value.reason == CandidateReason.TOO_LARGE
    assert (files.root / "staging" / "run.1.export").stat().st_size == 100
    assert published(files.root / "candidates") == ()
    assert predicate_of(files.at)["ending"] == "completed"


def test_no_dangerous_argument_comes_with_files(files: Files) -> None:
    plan = plan_launch(
        admitted_of(files.verified, shared_files=False), request(source=files.source), files.at.owner
    )
    assert plan.space is not None
    assert plan.space.fill is not None
    for container in (plan.container, plan.space.fill):
        for arguments in (
            docker_create.create_arguments(container),
            podman_create.create_arguments(container, userns=("--userns=nomap",)),
        ):
            mounts = [text for text in arguments if text.startswith("--mount=")]
            assert mounts
            assert all(text.startswith("--mount=type=volume,source=aib-") for text in mounts)
            assert not [text for text in arguments if "relabel" in text or ",z" in text or ",Z" in text]


def test_a_command_of_the_candidate_is_never_spawned_on_the_host(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every process that starts is watched; the program lies on the host as well, as a trap."""
    ran = files.root / "ran"
    canary = files.root / "canary"
    canary.write_text(f"#!/bin/sh\ntouch {ran}\n")
    canary.chmod(0o755)
    tip = files.agent.workspace.commit({"check": f"#!/bin/sh\ntouch {ran}\n"}, "by the agent")
    files.run()
    spawned: list[tuple[str, ...]] = []
    real = subprocess.Popen.__init__

    def watching(self: Any, argv: Any, *given: Any, **named: Any) -> None:
        spawned.append(tuple(map(str, argv)))
        real(self, argv, *given, **named)

    monkeypatch.setattr(subprocess.Popen, "__init__", watching)
    prepared = files.candidate("run.1", tip)
    for step, command in enumerate(((str(canary),), ("./check",), ("sh", "-c", "./check")), start=2):
        files.run(
            step=step,
            launch_class=LaunchClass.EXPORT_COMMAND,
            source=LaunchSource(prepared=prepared),
            command=command,
        )
    assert spawned
    programs = {Path(argv[0]).name for argv in spawned}
    assert programs <= {"git", "prlimit", "sh"}
    # The fake engine's attached client is the one shell that starts here.
    assert all(argv[3] == "fake" for argv in spawned if Path(argv[0]).name == "sh")
    assert not [argv for argv in spawned if "./check" in argv or str(canary) in argv]
    assert not ran.exists()


def test_an_export_command_gets_files_without_git_and_nothing_comes_out(files: Files) -> None:
    tip = files.agent.workspace.commit({"readme": "two\n"}, "by the agent")
    files.run()
    files.at.engine.filled.clear()
    prepared = files.candidate("run.1", tip)
    files.run(
        step=2,
        launch_class=LaunchClass.EXPORT_COMMAND,
        source=LaunchSource(prepared=prepared),
        command=("make",),
    )
    ((_, ((_, tar),)),) = files.at.engine.filled.items()
    assert not [name for name in members(tar) if name.startswith(".git")]
    assert Boundary.EXPORTED not in files.at.journal.passed("run.2")
    with pytest.raises(LaunchRefused) as caught:
        files.run(step=3, launch_class=LaunchClass.EXPORT_COMMAND, source=None, command=("make",))
    assert caught.value.reason == LaunchReason.SOURCE_REQUIRED
    assert [entry.intent.step for entry in files.at.journal.entries()] == [1, 2]


def test_recovery_takes_volumes_and_candidates_without_a_record_and_no_others(files: Files) -> None:
    files.agent.workspace.commit({"readme": "two\n"}, "by the agent")
    files.run()
    candidates = files.root / "candidates"
    (candidates / "of-another-state.1.git").mkdir()
    (candidates / ".going-0" / "objects").mkdir(parents=True)  # withdrawn by who was killed then
    dead = dataclasses.replace(files.at.owner, lease_id="d" * 32)
    plans = [
        plan_launch(admitted_of(files.verified), request(run_id=name, source=files.source), owner)
        for name, owner in (("dead", dead), ("living", files.at.owner))
    ]
    for plan in plans:
        assert plan.space is not None
        files.at.engine.create_volume(plan.space.volumes[0])
    (kept,) = [entry.intent for entry in files.at.journal.entries()]
    for name, lease in (("dead", dead.lease_id), ("living", files.at.owner.lease_id)):
        intent = dataclasses.replace(
            kept, launch_id=f"{name}.1", run_id=name, container_name=name, lease_id=lease
        )
        walk_to(files.at.journal, Boundary.IMPORTED, intent)
        (candidates / f"{name}.1.git").mkdir()

    def again() -> RecoveryPlan:
        at = files.at
        return recover(at.engine, at.journal, at.leases, STATE, lambda: NOW, candidates=candidates)

    first = again()
    assert [one.container_id for one in (*first.volumes, *first.candidates)] == [
        f"volume/{plans[0].container.name}-workspace",
        "candidates/dead.1",
    ]
    assert set(files.at.engine.volumes) == {f"{plans[1].container.name}-workspace"}
    assert published(candidates) == ("living.1", "of-another-state.1", "run.1")
    assert len(list(candidates.iterdir())) == 3
    assert {one.container_id for one in files.at.journal.removals()} >= {"candidates/dead.1"}
    assert again().nothing
