"""What lies beside a commit is counted and named: in the operator's directory and in the workspace."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.workspace.checking import faults
from backend.workspace.git import Git
from backend.workspace.names import quoted
from backend.workspace.objects import BatchReader, Collected, ObjectFormat, Wanted
from backend.workspace.origin import find_origin
from backend.workspace.reading import fetch_commit, not_in_commit
from backend.workspace.refusals import CandidateRefused
from backend.workspace.unseen import MAX_UNSEEN, Unseen, UnseenKind, UnseenReport, read_status
from tests.fakes.repositories import Repo


def report(git: Git, repo: Repo, tmp_path: Path) -> UnseenReport:
    origin = find_origin(git, repo.path)
    return not_in_commit(git, origin, fetch_commit(git, origin, repo.head, tmp_path / "ours.git"))


def test_each_kind_is_named(git: Git, operator: Repo, tmp_path: Path) -> None:
    inner = Repo.new(tmp_path / "inner")
    inner.commit({"x": "1"})
    operator.git("submodule", "--quiet", "add", str(inner.path), "sub")
    operator.commit({".gitignore": "ignored\n", "run.sh": "#!/bin/sh\n"})
    Repo(operator.path / "sub").commit({"x": "2"})
    Repo.new(operator.path / "nested repo").commit({"n": "1"})
    operator.write({"readme": "changed\n", "staged": "x", "untracked\nname": "x", "ignored": "x"})
    operator.git("add", "staged")
    (operator.path / "src/a.txt").unlink()
    (operator.path / "run.sh").chmod(0o755)
    (operator.path / ".git/info/exclude").write_text("private\n")
    operator.write({"private": "x"})
    found = report(git, operator, tmp_path)
    assert found.complete
    assert found.total == len(found.entries)
    assert set(found.entries) == {
        Unseen(UnseenKind.MODIFIED, "readme"),
        Unseen(UnseenKind.MODIFIED, "run.sh"),
        Unseen(UnseenKind.MODIFIED, "src/a.txt"),
        Unseen(UnseenKind.UNTRACKED, "staged"),
        Unseen(UnseenKind.UNTRACKED, '"untracked\\nname"'),
        Unseen(UnseenKind.NESTED_REPOSITORY, "nested repo/"),
        Unseen(UnseenKind.SUBMODULE, "sub"),
    }


def test_another_commit_than_the_checked_out_one_is_compared(
    git: Git, operator: Repo, tmp_path: Path
) -> None:
    origin = find_origin(git, operator.path)
    older = operator.git("rev-parse", "HEAD~1")
    found = not_in_commit(git, origin, fetch_commit(git, origin, older, tmp_path / "ours.git"))
    assert found.entries == (Unseen(UnseenKind.UNTRACKED, "src/b.txt"),)


def test_names_are_bounded_and_all_are_counted(git: Git, operator: Repo, tmp_path: Path) -> None:
    operator.write({f"new/{number}": "x" for number in range(MAX_UNSEEN + 5)})
    found = report(git, operator, tmp_path)
    assert (len(found.entries), found.total) == (MAX_UNSEEN, MAX_UNSEEN + 5)


def test_a_cut_answer_is_said_to_be_one() -> None:
    found = read_status(b"? whole\n? cu", complete=False)
    assert (found.entries, found.complete) == ((Unseen(UnseenKind.UNTRACKED, "whole"),), False)
    assert not found.nothing


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (f"u UU N... 100644 100644 100644 100644 {'a' * 40} {'b' * 40} {'c' * 40} x y", "modified"),
        (f"u UU S... 160000 160000 160000 160000 {'a' * 40} {'b' * 40} {'c' * 40} x y", "submodule"),
        (f"1 .M SCMU 160000 160000 160000 {'a' * 64} {'a' * 64} x y", "submodule"),
        (f"1 D. N... 100644 000000 000000 {'a' * 40} {'0' * 40} x y", "modified"),
    ],
)
def test_lines_of_status(line: str, expected: str) -> None:
    assert read_status(line.encode() + b"\n", complete=True).entries == (Unseen(UnseenKind(expected), "x y"),)


@given(st.binary(min_size=1, max_size=60).filter(lambda name: b"\0" not in name))
def test_a_quoted_path_is_one_line_of_printable_ascii(path: bytes) -> None:
    assert quoted(path).isascii()
    assert quoted(path).isprintable()


def test_paths_are_quoted_as_git_does_it(operator: Repo) -> None:
    names = [bytes([byte]) + b"x" for byte in range(1, 256) if byte not in b"/."]
    for name in names:
        (operator.path.joinpath(name.decode("utf-8", "surrogateescape"))).write_bytes(b"")
    operator.git("add", "--all")
    listed = operator.git("-c", "core.quotePath=true", "ls-files").split("\n")
    assert {quoted(name) for name in names} <= set(listed)


def test_an_object_that_does_not_hash_to_its_name_is_refused() -> None:
    form, content = ObjectFormat.SHA1, b"content\n"
    wanted = Wanted(name=form.name_of("blob", content), kind="blob", max_bytes=100)
    head = f"{wanted.name} blob {len(content)}\n".encode()
    for answer in (head + b"Content\n\n", head + content + b"x"):
        reader = BatchReader([wanted], form, Collected(100))
        with pytest.raises(CandidateRefused, match="do not hash to its name"):
            reader.take(answer)
    taken = Collected(100)
    BatchReader([wanted], form, taken).take(head + content + b"\n")
    assert taken.contents == [content]


@pytest.mark.parametrize(
    "answer", [b"", b"checked c0ffee", b"checked other\n", b"checked c0ffee\n\n", b"\n", b"x"]
)
def test_an_account_that_does_not_end_is_a_fault(answer: bytes) -> None:
    assert faults(answer, "c0ffee") == ("the container did not come to the end of the check",)
    assert faults(b"checked c0ffee\n", "c0ffee") == ()
    assert faults(b"cannot-write\nchecked c0ffee\n", "c0ffee") == ("the agent cannot write in /workspace",)
