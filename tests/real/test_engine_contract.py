"""The engine contract on each engine that was asked for."""

from __future__ import annotations

import pytest

from backend.containers import LoadedImage
from backend.engines.protocol import Engine
from builder.bootstrap import Bootstrapped
from builder.state import State
from provenance.layout import open_image
from tests.contract.engine_contract import EngineContract
from tests.contract.terminal_contract import TerminalContract

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def loaded(
    engine: Engine,
    kept_state: State,
    bootstrapped: Bootstrapped,
    tmp_path_factory: pytest.TempPathFactory,
) -> LoadedImage:
    image = open_image(kept_state.layout, bootstrapped.base)
    return engine.load(image, tmp_path_factory.mktemp("load"))


class TestRealEngine(EngineContract, TerminalContract):
    """Every test of the contract."""
