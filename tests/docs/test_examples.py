"""Every example in README and docs is of a kind that some test executes or parses; links lead somewhere."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from pathlib import Path

import pytest

from benchmarks.newcomer import DOCUMENT as BY_THE_NEWCOMER
from builder.cli.arguments import parse_arguments
from builder.settings.settings_file import parse_proxy_file, parse_settings
from images.config import parse_config
from provenance.policy import parse_policy
from tests.docs.documents import BARE, LANGUAGES, ROOT, Example, Step, documents, examples
from tests.fakes.evidence import key

ALL = tuple(examples())


def public_key(name: str) -> bytes:
    """A public key for each key file that an example names."""
    return key(name).public.pem


def test_there_are_examples() -> None:
    assert len(ALL) >= 5


def typed_in_text() -> list[tuple[str, str]]:
    """What reads like a command of ours in a block that nobody executes; a remark stands after two blanks."""
    found = []
    for example in ALL:
        for line in example.text.splitlines() if example.language == "text" else ():
            words = re.split(r"  +|\s#\s", line.strip())[0]
            if words.startswith("builder ") and example.document != "docs/reference/command-line.md":
                found.append((f"{example.document}:{example.line}", words))
    return found


@pytest.mark.parametrize(("where", "words"), typed_in_text())
def test_a_command_that_is_only_shown_is_one_of_ours(where: str, words: str) -> None:
    line = words.partition(" | ")[0].partition(" > ")[0]
    parse_arguments(shlex.split(line)[1:])


def test_commands_that_are_only_shown_are_found() -> None:
    found = typed_in_text()
    assert len(found) >= 20
    for where, page in (
        ("toolchain", "builder lock --upgrade toolchain"),
        ("rebuild", "builder verify --rebuild"),
    ):
        assert any(where in one and words == page for one, words in found)


def test_no_fence_is_overlooked() -> None:
    for path in documents():
        name = path.relative_to(ROOT).as_posix()
        opened = sum(line.startswith("```") for line in path.read_text().splitlines())
        assert opened == 2 * sum(example.document == name for example in ALL), name


def test_what_a_block_shows_is_held_against_what_was_said() -> None:
    step = Step("x", ("…", "one … three", "four"))
    assert step.missing("zero\none two three\nmore\nfour\n") is None
    assert step.missing("one two three\n") == "four"
    assert step.missing("four\none two three\n") == "four"
    assert step.missing("one two three or more\nfour\n") == "one … three"


@pytest.mark.parametrize("example", ALL, ids=lambda e: f"{e.document}:{e.line}")
def test_language_is_executed_parsed_or_a_picture(example: Example) -> None:
    assert example.language in LANGUAGES
    assert example.where <= BARE
    assert not example.where or (example.language == "console" and example.document == BY_THE_NEWCOMER)
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
    for target, _, place in re.findall(r"\]\(([^)#]*)(#([^)]*))?\)", path.read_text()):
        if "://" in target:
            continue
        page = path.parent / target if target else path
        assert page.exists(), target
        assert not place or place in _headings(page), f"{target}#{place}"


def _headings(page: Path) -> set[str]:
    """As code hosts name them in an address."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    shown = (
        re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", one) for one in re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    )
    return {re.sub(r"[^\w\- ]", "", one.strip().lower()).replace(" ", "-") for one in shown}


def test_every_page_is_in_the_list_of_all_pages() -> None:
    index = ROOT / "docs/README.md"
    linked = {(index.parent / target).resolve() for target in re.findall(r"\]\(([^)#]+)", index.read_text())}
    pages = {
        path for path in documents() if path.parent.name in ("tutorial", "how-to", "reference", "explanation")
    }
    assert sorted(pages - linked) == []
