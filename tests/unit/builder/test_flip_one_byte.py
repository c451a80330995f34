"""tools/flip-one-byte: one bit of a copy differs; the original, and who works in it, are left alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from builder.state import open_state
from images.errors import VerifyFailed
from provenance.layout import open_image
from tests.fakes.states import files_of, make_team

ROOT = Path(__file__).resolve().parents[3]


def test_a_copy_beside_living_work(tmp_path: Path) -> None:
    team = make_team(tmp_path)
    before = files_of(team.state)
    copies = [tmp_path / name / "state" for name in ("one", "two")]
    for copy in copies:
        copy.parent.mkdir()
    with team.state.staging("build") as staging, team.state.turn("key", lambda: None):
        (staging / "half").write_bytes(b"half")
        tools = [
            subprocess.Popen(
                [sys.executable, ROOT / "tools/flip-one-byte", team.state.root, copy, team.image.digest],
                stderr=subprocess.PIPE,
                text=True,
            )
            for copy in copies
        ]
        said = [tool.communicate(timeout=60)[1] for tool in tools]
        assert [tool.returncode for tool in tools] == [0, 0], said
    assert files_of(team.state) == before
    for copy in copies:
        state = open_state(copy)
        assert state.id != team.state.id
        assert not list(state.staged.iterdir())
        assert not list(state.turns.iterdir())
        open_image(state.layout, team.base.digest)
        with pytest.raises(VerifyFailed, match="not those of its digest"):
            open_image(state.layout, team.image.digest)


def test_two_first_images_at_once_have_names_of_their_own() -> None:
    script = (ROOT / "tools/first-image").read_text()
    assert "$here/.state/tampered-XXXXXXXX" in script
    assert script.count("mktemp -d") == 1
