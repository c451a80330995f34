"""The scripted fake fulfils the engine contract, so what is tested against it holds for an engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.containers import ImageIdKind, LoadedImage
from backend.engines.protocol import Engine
from provenance.layout import open_image
from tests.contract.engine_contract import ECHO, LINES, MISSING, EngineContract, execute, plan_for, running
from tests.contract.terminal_contract import TerminalContract
from tests.fakes.engine import FakeEngine, said
from tests.fakes.layouts import make_image


class TestFakeEngine(EngineContract, TerminalContract):
    @pytest.fixture(params=list(ImageIdKind))
    def engine(self, tmp_path: Path, request: pytest.FixtureRequest) -> FakeEngine:
        folder = tmp_path / "fake"
        folder.mkdir()
        fake = FakeEngine(folder, id_kind=request.param)
        fake.answers[LINES] = said(b"out\n", stderr=b"err\n", exit_code=7)
        fake.answers[ECHO] = lambda _container, _plan, data: said(data)
        fake.answers[MISSING] = said(exit_code=127, stderr=b"not found")
        return fake

    @pytest.fixture
    def loaded(self, engine: Engine, tmp_path: Path) -> LoadedImage:
        layout = tmp_path / "base"
        return engine.load(open_image(layout, make_image(layout)), tmp_path)


def test_an_unlisted_question_is_an_error(tmp_path: Path) -> None:
    fake = FakeEngine(tmp_path)
    loaded = fake.load(open_image(tmp_path / "base", make_image(tmp_path / "base")), tmp_path)
    with running(fake, plan_for(loaded)) as container, pytest.raises(AssertionError, match="no answer"):
        fake.exec(container, execute("never", "listed"))
