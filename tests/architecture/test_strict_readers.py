"""JSON and TOML from anywhere go through the strict readers: the libraries' own are called in few places."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOOSE = frozenset(
    f"{module}.{name}"
    for module in ("json", "tomllib", "pickle", "marshal", "yaml")
    for name in ("loads", "load", "safe_load")
) | {"ast.literal_eval"}
# Where, and why that is no loose reader of a stranger's bytes.
KNOWN = {
    ("images/strictjson.py", "json.loads"): "the strict reader itself",
    ("images/tomlfile.py", "tomllib.loads"): "the strict reader itself",
    ("backend/projection/placing.py", "json.loads"): "what this program wrote after it read it strictly",
    ("builder/resolve/tarball.py", "json.loads"): "keys twice, as npm takes them; then the strict reader",
    ("builder/daily/config_edit.py", "tomllib.loads"): "an edited text against one that was read strictly",
}
# pydantic's own reader takes the last of two keys: what it is given was read strictly before.
READ_BEFORE = {"provenance/predicates.py", "builder/bootstrap/lock.py", "backend/probe_cache.py"}


def modules() -> Iterator[tuple[str, str]]:
    for layer in ("images", "provenance", "backend", "builder"):
        for path in (ROOT / layer).rglob("*.py"):
            yield path.relative_to(ROOT).as_posix(), path.read_text()


def test_few_places_call_a_loose_reader() -> None:
    found = {
        (name, ast.unparse(node.func))
        for name, text in modules()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in LOOSE
    }
    assert found == KNOWN.keys()


def test_few_models_read_bytes_themselves() -> None:
    assert {name for name, text in modules() if "validate_json(" in text} == READ_BEFORE
