"""One proved image for all tests of a launch, since it takes a second to make; and a place to type in."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from provenance.verify import VerifiedImage
from tests.fakes.admitted import launch_world


@pytest.fixture(scope="session")
def verified(tmp_path_factory: pytest.TempPathFactory) -> VerifiedImage:
    return launch_world(tmp_path_factory.mktemp("world")).admit().require()


@pytest.fixture
def typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder that a command is typed in; what the command line does to its process is undone."""
    before, handlers = dict(os.environ), [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGHUP)]
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    os.environ.clear()
    os.environ.update(before)
    for number, handler in zip((signal.SIGTERM, signal.SIGHUP), handlers, strict=True):
        signal.signal(number, handler)
