"""The page of attacks is what the tests say, and every row, position and claim has one."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.attacks import Position
from tests.docs.attacks import NOT_YET, PAGE, ROWS, attacks, page
from tests.docs.claims import CLAIMS, Claim

ROOT = Path(__file__).resolve().parents[2]
# The rows of the threat model -> who attacks there.
POSITIONS = {
    "the package registry or the network": Position.REGISTRY,
    "a registry of images, and whoever may push to it": Position.REGISTRY,
    "whoever hijacks a package, or changes one on the way to its first lock": Position.NETWORK,
    "the author of a lock": Position.CONFIG_AUTHOR,
    "the author of an npm package": Position.NPM_PACKAGE,
    "a compromised build container": Position.BUILD_CONTAINER,
    "the author of `builder.toml`": Position.CONFIG_AUTHOR,
    "whoever can write to the image layout": Position.LAYOUT_WRITER,
    "whoever may write in the engine's store": Position.STORE_WRITER,
    "whoever can put files into the state": Position.LAYOUT_WRITER,
    "whoever hands over an archive of `builder store export`": Position.LAYOUT_WRITER,
    "a thief of the builder's key": Position.BUILDER_KEY,
    "a thief of the verifier's key": Position.VERIFIER_KEY,
    "a thief of a login, or another user of the same sigstore": Position.IDENTITY,
    "another user of the host": Position.LOCAL_USER,
}


def test_the_page_is_written_from_the_tests() -> None:
    assert PAGE.read_text() == page(), "run: python -m tests.docs.attacks"


def test_every_published_attack_is_made() -> None:
    made = {row for one in attacks() for row in one.rows}
    assert made == ROWS.keys() - NOT_YET.keys()


@pytest.mark.parametrize("by", Position)
def test_every_position_is_attacked_from(by: Position) -> None:
    assert [one.test for one in attacks() if one.by is by]


def test_every_row_of_the_threat_model_is_a_position() -> None:
    text = (ROOT / "docs/explanation/threat-model.md").read_text()
    table = text[text.index("| position of the attacker") : text.index("## What is trusted")]
    rows = [line.split("|")[1].strip() for line in table.splitlines()[2:] if line.startswith("|")]
    unknown = [
        row for row in rows if row not in POSITIONS and not row.startswith(("the agent", "whoever reads"))
    ]
    # Of several authors in one row the first is enough.
    assert [row for row in unknown if not row.startswith("the author of `builder.toml`, or")] == []
    assert POSITIONS.keys() <= set(rows)


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.text[:40])
def test_a_claim_stands_where_it_says_and_has_its_test(claim: Claim) -> None:
    text = (ROOT / claim.page).read_text().replace("*", "")
    plain = " ".join(re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text).split())
    assert claim.text in plain
    for test in claim.tests:
        path, _, name = test.partition("::")
        functions = {
            node.name
            for node in ast.parse((ROOT / path).read_text()).body
            if isinstance(node, ast.FunctionDef)
        }
        assert name in functions if name else any(one.startswith("test") for one in functions)
