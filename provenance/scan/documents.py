"""Read a JSON document as its author would: every key, text, name-value pair and wrapped document."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from typing import Final

from images.credential_names import NamedValue, judge_named, judge_text, judge_urls
from images.errors import UsageError
from images.strictjson import JsonValue, read_json

MAX_DOCUMENT: Final = 16 << 20
MAX_DEPTH: Final = 128
_WRAPPED: Final = 4  # documents within documents
_PAIR: Final = re.compile(r"""["']?([A-Za-z_][\w.:\-]{1,99})["']?\s*:\s*["']((?:[^"'\\]|\\.){1,8192})["']""")
_BASE64: Final = re.compile(r"[A-Za-z0-9+/_\-\s]{16,}={0,2}")


def judge_document(raw: bytes, name: str) -> Iterator[tuple[str, NamedValue]]:
    """(path of keys, value) for everything that names or URLs give away. What is no JSON is read as text."""
    value = parse_loosely(raw, name)
    if value is None:
        text = raw.decode("utf-8", "replace")
        yield from ((found.name, found) for found in _judge_pairs(text))
    else:
        yield from _walk(value, "", "", _WRAPPED)


def parse_loosely(raw: bytes, name: str) -> JsonValue:
    """The JSON value, or None when it is none that a strict reader takes."""
    try:
        return read_json(raw.removeprefix(b"\xef\xbb\xbf"), name, max_bytes=MAX_DOCUMENT, max_depth=MAX_DEPTH)
    except UsageError:
        return None


def literals(value: JsonValue, keys: frozenset[str]) -> Iterator[tuple[str, str]]:
    """(path, text) of every text under one of the keys, at any depth, lists included."""
    pending: list[tuple[str, JsonValue]] = [("", value)]
    while pending:
        path, here = pending.pop()
        if isinstance(here, dict):
            for key, below in here.items():
                inside = f"{path}.{key}"
                if key in keys:
                    texts = below if isinstance(below, list) else [below]
                    yield from ((inside, text) for text in texts if isinstance(text, str))
                pending.append((inside, below))
        elif isinstance(here, list):
            pending.extend((f"{path}[{n}]", below) for n, below in enumerate(here))


def _walk(value: JsonValue, path: str, key: str, wrapped: int) -> Iterator[tuple[str, NamedValue]]:
    if isinstance(value, str):
        yield from _judge_string(value, path, key, wrapped)
    elif isinstance(value, list):
        for number, below in enumerate(value):
            if isinstance(below, str):
                yield from _judge_variable(below, f"{path}[{number}]")
            yield from _walk(below, f"{path}[{number}]", key, wrapped)
    elif isinstance(value, dict):
        named, text = (
            value.get("name", value.get("Name", value.get("key"))),
            value.get("value", value.get("Value")),
        )
        if isinstance(named, str) and isinstance(text, str):
            found = judge_named(named, text)
            if found:
                yield f"{path}.value", found
        for below_key, below in value.items():
            inside = f"{path}.{below_key}" if path else below_key
            yield from ((inside, found) for found in judge_urls(below_key, below_key))
            yield from _walk(below, inside, below_key, wrapped)


def _judge_variable(text: str, path: str) -> Iterator[tuple[str, NamedValue]]:
    """An item of an environment list: all after the first = is the value, spaces included."""
    name, equals, rest = text.partition("=")
    found = judge_named(name, rest) if equals and len(name) <= 100 else None
    if found:
        yield path, found


def _judge_string(text: str, path: str, key: str, wrapped: int) -> Iterator[tuple[str, NamedValue]]:
    found = judge_named(key, text)
    if found:
        yield path, found
    yield from ((path, found) for found in judge_text(text, key))
    if not wrapped:
        return
    inner = _wrapped_document(text)
    if inner is not None:
        yield from _walk(inner, f"{path}()", "", wrapped - 1)


def _wrapped_document(text: str) -> JsonValue:
    """A DSSE payload is base64 of JSON; labels and annotations hold JSON as text."""
    stripped = text.strip()
    if stripped[:1] in ("{", "["):
        return parse_loosely(stripped.encode("utf-8", "replace"), "text")
    if stripped[:2] in ("ey", "ew", "W3", "Wy") and _BASE64.fullmatch(stripped):
        try:
            raw = base64.b64decode(stripped.translate(str.maketrans("-_", "+/")))
        except (binascii.Error, ValueError):
            return None
        return parse_loosely(raw, "payload")
    return None


def _judge_pairs(text: str) -> Iterator[NamedValue]:
    yield from judge_text(text)
    for match in _PAIR.finditer(text):
        found = judge_named(match.group(1), match.group(2))
        if found:
            yield found
