"""The operator's own values: found in every spelling, at every border, and shown nowhere."""

from __future__ import annotations

import base64
import gzip
import html
import json
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from images.credentials import Secret
from images.errors import UsageError
from provenance.scan.allow import Packages, shipped_allow_list
from provenance.scan.collect import Collector
from provenance.scan.engine import Engine
from provenance.scan.judge import judge
from provenance.scan.known import known_shapes, parse_known
from provenance.scan.report import Verdict
from provenance.scan.run import scan_image
from tests.fakes.credentials import KEY, Entry, make_layout, make_tar
from tests.unit.provenance.scan.test_child import run_child

VALUE = "swordfish/9+pass word?é"
DULL = "hunter2-hunter2"


def numbered(form: str) -> Callable[[str], bytes]:
    return lambda text: b"".join((form % byte).encode() for byte in text.encode())


def only_special(form: str) -> Callable[[str], bytes]:
    return lambda text: b"".join(
        bytes((byte,)) if bytes((byte,)).isalnum() else (form % byte).encode() for byte in text.encode()
    )


def wrapped(width: int, end: bytes, lead: int) -> Callable[[str], bytes]:
    def encode(text: str) -> bytes:
        letters = base64.b64encode(b"\xa5" * lead + text.encode() + b"\xa5" * 90)
        return end.join(letters[at : at + width] for at in range(0, len(letters), width))

    return encode


SPELLINGS: dict[str, Callable[[str], bytes]] = {
    "plain": str.encode,
    "utf-16-le": lambda text: text.encode("utf-16-le"),
    "utf-16-be": lambda text: b"\0" + text.encode("utf-16-be"),
    "hex": lambda text: text.encode().hex().encode(),
    "hex-upper": lambda text: text.encode().hex().upper().encode(),
    "percent-all": numbered("%%%02X"),
    "percent-all-lower": numbered("%%%02x"),
    "percent": lambda text: quote(text, safe="").encode(),
    "form": lambda text: quote_plus(text).encode(),
    "json": lambda text: json.dumps(text).encode(),
    "json-slash": lambda text: json.dumps(text).replace("/", "\\/").encode(),
    "x-all": numbered("\\x%02x"),
    "x-special": only_special("\\x%02x"),
    "base64-basic": lambda text: b"Authorization: Basic " + base64.b64encode(b"me:" + text.encode()),
    "base64-of-utf-16": lambda text: base64.b64encode(text.encode("utf-16-le")),
    "base64-twice": lambda text: base64.b64encode(base64.b64encode(text.encode())),
    "base64-percent": lambda text: quote(base64.b64encode(text.encode()).decode(), safe="").encode(),
    **{
        f"base64-{lead}": lambda text, lead=lead: base64.b64encode(b"\xfb" * lead + text.encode() + b"\xff")  # type: ignore[misc]
        for lead in range(3)
    },
    **{
        f"base64url-{lead}": lambda text, lead=lead: base64.urlsafe_b64encode(b"\xfb" * lead + text.encode())  # type: ignore[misc]
        for lead in range(3)
    },
}


def found(engine: Engine, data: bytes) -> set[str]:
    judged = (judge(data, candidate) for candidate in engine.finder().find(data))
    return {one.rule for one in judged if one}


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine((), known_shapes((Secret(VALUE.encode()), Secret(DULL.encode()))))


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize(("value", "rule"), [(VALUE, "known-value-1"), (DULL, "known-value-2")])
def test_every_spelling_is_found_and_a_twin_in_one_letter_is_not(
    engine: Engine, spelling: str, value: str, rule: str
) -> None:
    spell = SPELLINGS[spelling]
    assert rule in found(engine, b"\0x " + spell(value) + b'\0" y')
    other = value[:-3] + ("a" if value[-3] != "a" else "b") + value[-2:]
    assert found(engine, b"\0x " + spell(other) + b'\0" y') == set()


@pytest.mark.parametrize("width", [64, 76])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_base64_in_lines_is_found_wherever_the_line_ends(engine: Engine, width: int, end: bytes) -> None:
    missed = [
        lead for lead in range(90) if "known-value-1" not in found(engine, wrapped(width, end, lead)(VALUE))
    ]
    assert missed == []


@settings(max_examples=60, deadline=None)
@given(st.binary(min_size=8, max_size=60), st.binary(max_size=40), st.binary(max_size=40))
def test_any_value_at_all_in_what_is_written_most(value: bytes, before: bytes, after: bytes) -> None:
    engine = Engine((), known_shapes((Secret(value),)))
    for written in (
        value,
        base64.b64encode(before + value + after),
        base64.urlsafe_b64encode(before + value + after),
        value.hex().encode(),
        quote(value, safe="").encode(),
    ):
        assert found(engine, before + b" " + written + b"\0" + after) == {"known-value-1"}


def test_a_place_is_shown_without_the_value() -> None:
    collector = Collector(KEY, shipped_allow_list(), Packages(), (Secret(DULL.encode()),))
    assert collector.shown(f"home/{DULL}/notes") == "home/[redacted]/notes"


def test_all_the_way_through_the_child_and_shown_nowhere(tmp_path: Path) -> None:
    name = f"home/{DULL}/notes"
    entries = [Entry(name, gzip.compress(b"it is " + DULL.encode())), Entry("etc/x", DULL.encode())]
    image = make_layout(tmp_path, [make_tar(entries)], annotations={"note": DULL})
    report = scan_image(image, key=KEY, run_child=run_child, known=(Secret(DULL.encode()),))
    assert report.verdict is Verdict.FOUND
    assert {finding.rule for finding in report.findings} == {"known-value-1"}
    kinds = {finding.place.kind.value for finding in report.findings}
    assert {"content", "manifest", "header"} <= kinds
    assert DULL not in str(report)
    clean = scan_image(image, key=KEY, run_child=run_child, known=(Secret(b"another value"),))
    assert clean.verdict is Verdict.CLEAN


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "0 values"),
        (b"\n\n", "0 values"),
        (b"good value\nshort\n", "line 2 has 5"),
        (b"x" * 20_000, "line 1"),
    ],
)
def test_a_list_that_is_none_names_the_line_and_no_value(raw: bytes, words: str) -> None:
    with pytest.raises(UsageError, match=words) as refused:
        parse_known(raw, "descriptor 3")
    assert "short" not in str(refused.value)


def test_lines_end_as_they_like() -> None:
    values = parse_known(b"first value\r\nsecond value\n\nthird value", "x")
    assert [value.reveal() for value in values] == [b"first value", b"second value", b"third value"]


def test_html_is_not_among_the_spellings() -> None:
    """Written down, so that nobody counts it."""
    value = "pass&word<9>"
    engine = Engine((), known_shapes((Secret(value.encode()),)))
    assert found(engine, html.escape(value).encode()) == set()
