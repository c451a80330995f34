"""Every example in README and docs is of a kind that some test executes or parses; links lead somewhere."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

from builder.settings.settings_file import parse_proxy_file, parse_settings
from images.config import parse_config
from provenance.policy import parse_policy
from tests.docs.documents import LANGUAGES, ROOT, Example, documents, examples
from tests.fakes.evidence import key

ALL = tuple(examples())


def public_key(name: str) -> bytes:
    """A public key for each key file that an example names."""
    return key(name).public.pem


def test_there_are_examples() -> None:
    assert len(ALL) >= 5


@pytest.mark.parametrize("example", ALL, ids=lambda e: f"{e.document}:{e.line}")
def test_language_is_executed_parsed_or_a_picture(example: Example) -> None:
    assert example.language in LANGUAGES
    if example.language == "console":
        assert example.commands
    if example.language == "text":
        assert not re.search(r"^\$ ", example.text, re.MULTILINE), "a command in a block that nobody executes"
    if example.language == "json":
        json.loads(example.text)


@pytest.mark.parametrize(
    "example", [e for e in ALL if e.language == "toml"], ids=lambda e: f"{e.document}:{e.line}"
)
def test_toml_is_accepted_by_the_program(example: Example) -> None:
    first = example.text.splitlines()[0]
    where = f"{example.document}:{example.line}"
    if first == "# builder.toml":
        parse_config(example.text, where=where)
    elif first == "# settings.toml":
        parse_settings(example.text, where=where)
    elif first.startswith("# proxy.toml"):
        parse_proxy_file(example.text.encode(), where=where)
    elif first == "# policy.toml":
        parse_policy(example.text.encode(), path=Path(where), read_key=public_key)
    else:
        assert first.startswith("# part of "), "the first line says which file this is"
        tomllib.loads(example.text)


@pytest.mark.parametrize("path", documents(), ids=lambda p: p.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", path.read_text()):
        if "://" not in target:
            assert (path.parent / target).exists(), target
