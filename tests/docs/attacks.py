"""Write docs/reference/attacks.md from the tests: ``python -m tests.docs.attacks``.

Read from the source of the tests, not from what they do: a test marked ``@attack(rows, by=Position.X)`` is
an attack, its docstring says whose. The claims of the documentation and their tests are in ``CLAIMS``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.attacks import Position
from tests.docs.claims import CLAIMS

ROOT: Final = Path(__file__).resolve().parents[2]
PAGE: Final = ROOT / "docs" / "reference" / "attacks.md"

# Published attacks on verifiers of this kind: what must be refused, and where it was seen.
ROWS: Final = {
    1: ("only statements of another predicate type are there", "GHSA-vjxv-45g9-9296"),
    2: ("the payload is no statement, or of another type", "GHSA-w6c6-c85g-mmv6"),
    3: ("provenance alone, or a failed summary, as an approval", "seen with `cosign verify`"),
    4: ("a log entry of another artifact, key or signature", "GHSA-8gw7-4j42-w388, GHSA-whqx-f9j3-ch6m"),
    6: ("no statement at all, or none that matches", "GO-2025-3467"),
    7: ("a builder id that is not paired with the signer, or empty", "SLSA, signer-builder pairs"),
    8: (
        "a statement about index, configuration or layer, not about what is started",
        "cosign #3552",
    ),
    10: ("a tag that moved between verification and launch", "GHSA-m3cq-xcx9-3gvm, CVE-2026-122321"),
    11: ("a registry that answers with other bytes than the digest's", "GHSA-3hfq-cx9j-923w"),
    13: ("an identity matched in part, or without its issuer", "cosign's patterns, sigstore's `Identity`"),
    14: ("a time in the log that nobody signed", "GHSA-hhfg-fwrw-87w7"),
    15: ("a key past its end without a trusted time", "GHSA-wqqc-jjcq-vfxm"),
    17: ("an older statement or policy after a newer one", "CVE-2022-29173"),
    20: ("another payload type under a right signature", "DSSE"),
    23: ("annotations that lie", "seen with `oras` and `cosign`"),
    25: (
        "an in-toto layout whose final artifact was changed or is missing",
        "MATCH consumes only",
    ),
    26: ("BuildKit's unsigned attestation manifest as evidence", "BuildKit, attestation-storage.md"),
    27: ("hints about the source, or build arguments, as evidence", "BuildKit, slsa-definitions.md"),
}
# Rows that nothing of this program can be attacked with yet, and why.
NOT_YET: Final[dict[int, str]] = {}

HEAD: Final = """# Attacks

<!-- Written by `python -m tests.docs.attacks` from the tests: do not edit. -->

Each line is a test that makes an attack and must see it refused. Three views: attacks that were published
for programs of this kind, where an attacker stands, and what the documentation claims. What is not defended
is in the [threat model](../explanation/threat-model.md).
"""

FUZZING: Final = """## Any bytes

`python -m tests.fuzz` gives every reader of bytes that a stranger may have written what a random change
makes of a good input: {count} readers, 20,000 inputs with each run of the tests, a million with `--long`.
The changes know the formats (keys twice, NaN, depth, other types, huge numbers, lone surrogates, header
fields with a right sum, records, directories of zips), and what is signed is also changed and signed again
with a stolen key. Each reader runs in a process with bounds on time and memory; it must refuse in its own
words, or answer, and what it takes must keep its law: the signed words and no others, a lock that is
written as the same bytes, names and content that another reader finds too. The same seed makes the same
inputs (`--seed`); one that was found is run again with `--only`. The readers, as `--list` names them:

{names}
"""


@dataclass(frozen=True)
class Attack:
    """A marked test: ``tests/…::test_name``, and the first line of its docstring."""

    test: str
    said: str
    rows: tuple[int, ...]
    by: Position


def attacks() -> tuple[Attack, ...]:
    """All of them, by file and line."""
    found: list[Attack] = []
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        text = path.read_text()
        if "@attack(" in text:
            found.extend(_in_file(path, ast.parse(text)))
    return tuple(found)


def _in_file(path: Path, tree: ast.Module) -> Iterator[Attack]:
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef):
            continue
        for mark in node.decorator_list:
            if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "attack":
                rows = tuple(ast.literal_eval(row) for row in mark.args)
                (by,) = (word.value for word in mark.keywords if word.arg == "by")
                said = (ast.get_docstring(node) or "").partition("\n")[0]
                name = f"{path.relative_to(ROOT).as_posix()}::{node.name}"
                yield Attack(name, said, rows, Position[ast.unparse(by).removeprefix("Position.")])


def page() -> str:
    """The whole page."""
    from tests.fuzz.target import all_targets  # noqa: PLC0415  (it reads the whole program)

    found, targets = attacks(), all_targets()
    lines = [
        HEAD,
        "## Published attacks",
        "",
        "| # | what must be refused | seen | test |",
        "|---|---|---|---|",
    ]
    for number, (what, seen) in ROWS.items():
        tests = [one.test for one in found if number in one.rows]
        lines.append(f"| {number} | {what} | {seen} | {_listed(tests) or f'*untested: {NOT_YET[number]}*'} |")
    lines += ["", "## By where the attacker stands", "", "| who | test |", "|---|---|"]
    for by in Position:
        lines.append(f"| {by.value} | {_listed([one.test for one in found if one.by is by])} |")
    lines += ["", "## What the documentation claims", "", "| page | claim | test |", "|---|---|---|"]
    for claim in CLAIMS:
        lines.append(f"| [{claim.name}](../../{claim.page}) | {claim.text} | {_listed(list(claim.tests))} |")
    names = ", ".join(f"`{name}`" for name in targets)
    return "\n".join([*lines, "", FUZZING.format(count=len(targets), names=names)])


def _listed(tests: list[str]) -> str:
    """By file, so that a long path stands once."""
    files: dict[str, list[str]] = {}
    for test in tests:
        file, _, name = test.partition("::")
        files.setdefault(file, []).append(name)
    return "; ".join(
        f"`{file.removeprefix('tests/')}`" + "".join(f" `{name}`" for name in names if name)
        for file, names in files.items()
    )


if __name__ == "__main__":
    PAGE.write_text(page())
