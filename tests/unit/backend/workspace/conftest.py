"""A git of ours and an operator's repository; each test has its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.workspace.git import Git, open_git
from tests.fakes.repositories import ENVIRONMENT, Repo


@pytest.fixture
def git(tmp_path: Path) -> Git:
    home = tmp_path / "git-home"
    home.mkdir(mode=0o700)
    return open_git(home, {"PATH": ENVIRONMENT["PATH"]})


@pytest.fixture
def operator(tmp_path: Path) -> Repo:
    repo = Repo.new(tmp_path / "operator")
    repo.commit({"readme": "one\n", "src/a.txt": "a\n"}, "first")
    repo.commit({"src/b.txt": "b\n"}, "second")
    return repo
