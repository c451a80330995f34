"""One proved image for all tests of a launch: it is never changed, and takes a second to make."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from provenance.verify import VerifiedImage
from tests.fakes.admitted import Bench, bench, launch_world


@pytest.fixture(scope="session")
def verified(tmp_path_factory: pytest.TempPathFactory) -> VerifiedImage:
    return launch_world(tmp_path_factory.mktemp("world")).admit().require()


@pytest.fixture
def at(tmp_path: Path) -> Iterator[Bench]:
    with bench(tmp_path) as found:
        yield found
