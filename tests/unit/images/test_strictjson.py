"""The reader of JSON from strangers: what it takes, everybody reads alike, and can be written again."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from images.digests import canonical_json
from images.errors import UsageError, VerifyFailed
from images.oci import parse_index, parse_manifest
from images.strictjson import MAX_INTEGER, is_number, read_json, read_object

_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-MAX_INTEGER, MAX_INTEGER) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1, "a": 1}',
        '{"a": {"b": 1, "b": 2}}',
        "NaN",
        "[Infinity]",
        "-Infinity",
        "1e400",
        "9007199254740992",
        "-9007199254740992",
        "9" * 5000,
        '"\\ud800"',
        '{"\\udc00": 1}',
        "[" * 66 + "]" * 66,
        "[" * 100_000,
        "",
        " ",
        "{} {}",
        "\ufeff{}",
        "{'a': 1}",
        "[1,]",
        "01",
        '"\t"',
    ],
)
def test_what_readers_differ_on_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        read_json(text.encode("utf-8", "surrogatepass"), "document")
    assert refused.value.where == "document"


@pytest.mark.parametrize("raw", [b"\xff", b"\xed\xa0\x80", b'"\xc0\x80"', '"a"'.encode("utf-16")])
def test_what_is_no_utf_8_is_refused(raw: bytes) -> None:
    with pytest.raises(UsageError):
        read_json(raw, "document")


def test_bounds_of_size_and_depth() -> None:
    assert read_json(b"[" * 64 + b"]" * 64, "document")
    with pytest.raises(UsageError, match="nested deeper than 2"):
        read_json(b"[[[1]]]", "document", max_depth=2)
    with pytest.raises(UsageError, match="4 bytes, more than 3"):
        read_json(b"true", "document", max_bytes=3)
    with pytest.raises(UsageError, match="the top is not an object"):
        read_object(b"[]", "document")


@given(_VALUES)
def test_what_is_taken_can_be_written_in_its_canonical_form(value: object) -> None:
    assert read_json(canonical_json(value), "document") == value
    assert read_json(json.dumps(value).encode(), "document") == value


@pytest.mark.parametrize(
    ("value", "same"), [(1, True), (True, False), (1.0, False), ("1", False), (2, False)]
)
def test_the_number_of_a_version(value: object, same: bool) -> None:
    assert is_number(value, 1) is same  # type: ignore[arg-type]


@pytest.mark.parametrize("version", ["1", "true", "2.0", '"2"', "null"])
def test_a_manifest_of_another_version_is_refused(version: str) -> None:
    raw = f'{{"schemaVersion": {version}, "manifests": []}}'.encode()
    for parse in (parse_index, parse_manifest):
        with pytest.raises(VerifyFailed, match="schemaVersion"):
            parse(raw, "x")
