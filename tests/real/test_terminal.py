"""`builder run` at a terminal, typed as a person would: on Docker here, on the others by test_everywhere."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from backend.engines.protocol import Engine
from tests.real import on_a_terminal
from tests.real.on_a_terminal import FIRST_SCREENS, PROOFS, Desk
from tests.real.spine import BUILDER, Spine

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def desk(spine: Spine, engine: Engine) -> Desk:
    def argv(*words: str) -> list[str]:
        at = words.index("--") if "--" in words else len(words)
        places = ["--state", str(spine.state), "--config-dir", str(spine.config), "--engine", spine.engine]
        return [str(BUILDER), *words[:at], *places, *words[at:]]

    return Desk(argv=argv, cwd=spine.project, engine=engine, state=spine.state)


@pytest.mark.parametrize("proof", PROOFS, ids=lambda proof: proof.__name__.removeprefix("prove_"))
def test_a_person_at_a_terminal(desk: Desk, proof: Callable[[Desk], None]) -> None:
    proof(desk)


@pytest.mark.parametrize("screen", FIRST_SCREENS, ids=lambda screen: screen.agent)
def test_an_agents_own_screen(desk: Desk, screen: on_a_terminal.FirstScreen, tmp_path: Path) -> None:
    on_a_terminal.prove_screen(desk, screen, tmp_path / "credential")
