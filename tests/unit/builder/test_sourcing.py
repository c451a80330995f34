"""`builder run --source`: which commit is meant, what is told, and the line that brings commits home."""

from __future__ import annotations

import io
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from backend.requests import SourceRoute
from backend.workspace.refusals import SourceReason, SourceRefused
from builder.cli import main_inner
from builder.cli.documents.runs import RunsDocument
from builder.cli.invocation import Result
from builder.cli.verbs import run_verb
from builder.report import Reporter
from builder.sourcing import SourceRequest, find_source, ready_source
from images.errors import ExitCode
from tests.fakes.repositories import ENVIRONMENT, Repo


@pytest.fixture
def operator(tmp_path: Path) -> Repo:
    repo = Repo.new(tmp_path / "operator")
    repo.commit({"readme": "one\n"}, "first")
    repo.git("tag", "light")
    repo.git("tag", "-a", "-m", "annotated", "heavy")
    repo.git("branch", "topic/one")
    repo.commit({"readme": "two\n", "src/a": "a"}, "second")
    return repo


@pytest.fixture
def workshop(tmp_path: Path) -> Any:
    (tmp_path / "client").mkdir(mode=0o700)
    return SimpleNamespace(
        state=SimpleNamespace(client_home=tmp_path / "client"),
        environment={"PATH": ENVIRONMENT["PATH"]},
        reporter=Reporter(stream=io.StringIO()),
    )


def asked(directory: Path, revision: str = "HEAD") -> SourceRequest:
    return SourceRequest(
        directory=directory, revision=revision, route=SourceRoute.BIND, workspace_bytes=1 << 30
    )


@pytest.mark.parametrize(
    ("revision", "ancestor"),
    [("HEAD", 0), ("main", 0), ("topic/one", 1), ("light", 1), ("heavy", 1), ("full id", 1)],
)
def test_what_a_person_names_is_one_exact_commit(
    operator: Repo, workshop: Any, tmp_path: Path, revision: str, ancestor: int
) -> None:
    wanted = operator.git("rev-parse", f"HEAD~{ancestor}")
    found = find_source(
        workshop, asked(operator.path, wanted if revision == "full id" else revision), tmp_path
    )
    assert found.commit == wanted


@pytest.mark.parametrize(
    "revision",
    ["nowhere", "HEAD~1", "short", "both", "*", "refs/heads/*", "main..topic/one", "--upload-pack=x", ""],
)
def test_what_is_no_exact_name_is_refused_and_nothing_is_guessed(
    operator: Repo, workshop: Any, tmp_path: Path, revision: str
) -> None:
    operator.git("branch", "both", "HEAD~1")
    operator.git("tag", "both", "HEAD")
    revision = operator.head[:12] if revision == "short" else revision
    with pytest.raises(SourceRefused) as caught:
        find_source(workshop, asked(operator.path, revision), tmp_path)
    assert caught.value.reason == SourceReason.NO_SUCH_COMMIT
    assert caught.value.hint


def test_a_partial_clone_is_refused_by_name_before_anything_else(
    operator: Repo, workshop: Any, tmp_path: Path
) -> None:
    operator.git("config", "remote.origin.promisor", "true")
    with pytest.raises(SourceRefused) as caught:
        find_source(workshop, asked(operator.path), tmp_path)
    assert caught.value.reason == SourceReason.PARTIAL_CLONE


def worktree(operator: Repo, folder: Path) -> Path:
    operator.git("worktree", "add", "--quiet", "-b", "beside", str(folder / "beside"))
    return folder / "beside"


def shallow(operator: Repo, folder: Path) -> Path:
    operator.git("clone", "--quiet", "--depth=1", f"file://{operator.path}", str(folder / "shallow"))
    return folder / "shallow"


def submodule(operator: Repo, folder: Path) -> Path:
    outer = Repo.new(folder / "outer")
    outer.git("submodule", "--quiet", "add", str(operator.path), "inner")
    return outer.path / "inner"


def borrowing(operator: Repo, folder: Path) -> Path:
    operator.git("clone", "--quiet", "--shared", str(operator.path), str(folder / "borrowing"))
    return folder / "borrowing"


@pytest.mark.parametrize("shape", [worktree, shallow, submodule, borrowing])
def test_every_shape_is_made_ready_and_told(
    operator: Repo, workshop: Any, tmp_path: Path, shape: Any
) -> None:
    directory = shape(operator, tmp_path)
    (directory / "readme").write_text("changed\n")
    (directory / "new").write_text("x")
    staging = tmp_path / "staging"
    staging.mkdir()
    source = ready_source(workshop, find_source(workshop, asked(directory), staging), staging)
    assert source.prepared.commit == operator.head
    assert (source.prepared.tree.folder / "readme").read_text() == "two\n"
    told = workshop.reporter.stream.getvalue()
    assert f"source: commit {operator.head} of {directory}" in told
    assert "not seen by the agent, since it is not in the commit: 2 (1 modified, 1 untracked)" in told
    assert ("its history ends where your shallow clone ends" in told) == (shape is shallow)


@pytest.mark.parametrize("option", [["--commit", "main"], ["--copy-in"], ["--workspace-size", "1GiB"]])
def test_an_option_of_the_source_needs_a_source(
    option: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["run", "--dry-run", "--state", str(tmp_path / "state"), *option, "--", "true"]
    assert main_inner(argv, {"HOME": str(tmp_path)}) == ExitCode.USAGE
    assert f"{option[0]} without --source" in capsys.readouterr().err


def test_the_line_is_one_line_that_a_shell_reads_as_it_was_meant(tmp_path: Path) -> None:
    from backend.workspace.git import line_to_fetch  # noqa: PLC0415  (beside what it is about)

    place = tmp_path / "a b;'c"
    said = subprocess.run(
        [
            "sh",
            "-c",
            line_to_fetch(place, "/x/y z.git", "refs/q/r.1", "refs/heads/agent/r.1").replace(
                "git ", "printf '%s\\n' ", 1
            ),
        ],
        capture_output=True,
        check=True,
        text=True,
    ).stdout.splitlines()
    assert said == ["-C", str(place), "fetch", "/x/y z.git", "refs/q/r.1:refs/heads/agent/r.1"]
    assert shlex.split(line_to_fetch(place, "r", "a", "b"))[0] == "git"


Type = Callable[[Path, list[str]], Any]


@pytest.fixture
def type_run(typed: Path, monkeypatch: pytest.MonkeyPatch) -> Type:
    """Types a run in a folder; gives the files that would be launched with, or None."""
    found: list[Any] = []

    def launched(*them: Any, terminal: None) -> Result[RunsDocument]:
        found.append(them[3])
        return Result(document=RunsDocument(launches=()))

    def type_it(folder: Path, words: list[str]) -> Any:
        monkeypatch.chdir(folder)
        argv = ["run", "--state", str(typed / "state"), *words]
        assert main_inner(argv, {"HOME": str(typed), "PATH": ENVIRONMENT["PATH"]}) == ExitCode.DONE
        return found.pop()

    monkeypatch.setattr(run_verb, "_launch", launched)
    return type_it


# Without words: [run].agent of builder.toml, or nothing to run at all.
@pytest.mark.parametrize("words", [[], ["--agent", "pi"], ["--agent", "pi", "--", "--version"]])
def test_an_agent_works_on_the_repository_here(
    operator: Repo, type_run: Type, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    below = operator.path / "below"
    below.mkdir()
    assert type_run(below, words).commit == operator.head
    assert f"source: the repository here, {operator.path} (--no-source for none)" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--agent", "pi", "--no-source"], ["--no-source"], ["--", "true"]])
def test_a_command_and_who_wants_no_files_get_none(operator: Repo, type_run: Type, words: list[str]) -> None:
    assert type_run(operator.path, words) is None


def test_where_there_is_no_repository_an_agent_gets_no_files(tmp_path: Path, type_run: Type) -> None:
    assert type_run(tmp_path, ["--agent", "pi"]) is None


def test_no_files_and_these_files_contradict_each_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["run", "--no-source", "--source", ".", "--", "true"]
    assert main_inner(argv, {"HOME": str(tmp_path)}) == ExitCode.RUN_FAILED
    assert "not allowed with argument" in capsys.readouterr().err
