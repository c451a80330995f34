"""What is printed with --json follows its published schema: tests that type commands ask here."""

from __future__ import annotations

import functools
import importlib
import inspect
import json
import pkgutil
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import jsonschema

from builder.cli import documents
from builder.cli.documents import Document
from builder.cli.verbs import VERBS

SCHEMAS = Path(__file__).resolve().parents[1] / "docs/reference/schemas"


@functools.cache
def kinds() -> dict[str, type[Document]]:
    """Every kind of result by the name of its schema: all that a module of documents defines."""
    found: dict[str, type[Document]] = {}
    for module in pkgutil.iter_modules(documents.__path__, f"{documents.__name__}."):
        for _, one in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
            if issubclass(one, Document) and one.__module__ == module.name:
                assert one.KIND.name not in found, f"two kinds are called {one.KIND.name}"
                found[one.KIND.name] = one
    return found


def kinds_of(verb: str) -> set[type[Document]]:
    """What a verb can say: the type of what it returns, which mypy holds it to."""
    module = importlib.import_module(f"builder.cli.verbs.{verb}_verb")
    (said,) = get_args(get_type_hints(module.run)["return"])
    return set(get_args(said)) if get_origin(said) in (Union, UnionType) else {said}


def possible() -> dict[str, set[type[Document]]]:
    """The same of every verb."""
    return {verb: kinds_of(verb) for verb in VERBS}


def page(name: str) -> Path:
    """Where the schema of a kind lies."""
    return SCHEMAS / f"{name}.schema.json"


@functools.cache
def _validator(name: str) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(json.loads(page(name).read_text()))


def check(document: dict[str, Any]) -> dict[str, Any]:
    """One printed object, valid: after the schema of what it is about, and that of all objects."""
    _validator("result").validate(document)
    if "result" in document:
        (name,) = (name for name, one in kinds().items() if one.KIND.identity == document["result"])
        _validator(name).validate(document)
    return document


def check_printed(words: tuple[str, ...] | list[str], printed: str) -> None:
    """What a typed command left on standard output: with --json one object, in ``run`` after what ran said.

    A command that was killed from outside may have printed nothing.
    """
    ours = list(words[: words.index("--")] if "--" in words else words)
    if "--json" not in ours or not printed:
        return
    lines = printed.splitlines()
    if "run" not in ours or "--dry-run" in ours:
        assert len(lines) == 1, f"more than one line: {printed[:500]}"
    check(json.loads(lines[-1]))
