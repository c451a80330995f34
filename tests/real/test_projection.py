"""Credentials reach the real CLIs, and nothing else: two launches, each with a route of every agent."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.engines.protocol import Engine
from backend.projection.routes import Route
from tests.real.agents_at_work import BOTH, prove
from tests.real.spine import Spine

pytestmark = pytest.mark.real


def test_every_route_is_in_one_of_the_launches() -> None:
    """But for those that only a login leaves: tests/real/test_login.py."""
    typed = [route for route in Route if not route.rotates]
    assert sorted(route for routes in BOTH for route in routes) == sorted(typed)


@pytest.mark.parametrize("routes", BOTH, ids=["keys", "logins"])
def test_s_15_each_agent_sends_what_it_was_given_and_nothing_else_has_it(
    spine: Spine, engine: Engine, tmp_path: Path, routes: tuple[Route, ...]
) -> None:
    prove(spine.builder, engine, spine.state, tmp_path / "sources", routes)
