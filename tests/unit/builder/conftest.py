"""Whatever a command prints with --json in a test here is held against its schema."""

from __future__ import annotations

import json

import pytest

from builder import cli
from tests.results import check


@pytest.fixture(autouse=True)
def what_is_printed_follows_its_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    printing = cli._print_json

    def checked(document: dict[str, object]) -> None:
        check(json.loads(json.dumps(document)))
        printing(document)

    monkeypatch.setattr(cli, "_print_json", checked)
