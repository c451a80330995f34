"""What every real test needs: the bootstrapped images of a state that is kept between runs, and an engine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from backend.engines.protocol import Engine
from backend.engines.select import connect
from builder.bootstrap import Bootstrapped, bootstrapped_images
from builder.state import State, open_state

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def kept_state() -> State:
    """The state of the README's first command, or the one that ``BUILDER_TEST_STATE`` names."""
    default = ROOT / ".state" / "state" / "agent-image-builder"
    root = Path(os.environ.get("BUILDER_TEST_STATE", default))
    assert (root / "layout").is_dir(), f"no state at {root}: run the README's first command"
    return open_state(root)


@pytest.fixture(scope="session")
def bootstrapped(kept_state: State) -> Bootstrapped:
    """Base, build container and resolver; missing is a failure: their making is another test's matter."""
    found = bootstrapped_images(kept_state.layout, lock_copy=kept_state.bootstrap / "bootstrap.lock")
    assert found is not None, f"no bootstrapped images in {kept_state.root}: run builder bootstrap"
    return found


@pytest.fixture(scope="session")
def engine(engine_name: str, tmp_path_factory: pytest.TempPathFactory) -> Engine:
    """The asked engine, with a client home of its own."""
    return connect(engine_name, tmp_path_factory.mktemp("client"), dict(os.environ))
