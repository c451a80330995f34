"""A JSON reader for untrusted bytes: no duplicate keys, no NaN, bounded size and depth, never a traceback."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import NoReturn, TypeAlias, Union

from images.errors import BuilderError, UsageError

JsonValue: TypeAlias = Union[bool, int, float, str, list["JsonValue"], dict[str, "JsonValue"], None]  # noqa: UP007  (a recursive alias needs the call form)

MAX_BYTES = 16 * 1024 * 1024
MAX_DEPTH = 64
MAX_INTEGER = 2**53 - 1  # the largest that every reader has exactly, and that canonical JSON can say


class _Refused(ValueError):
    """A rule of ours, found while the standard parser ran."""


def read_json(
    data: bytes,
    what: str,
    *,
    max_bytes: int = MAX_BYTES,
    max_depth: int = MAX_DEPTH,
    error: type[BuilderError] = UsageError,
) -> JsonValue:
    """Parse UTF-8 JSON strictly. ``what`` names the document in the error; ``error`` is the class raised."""

    def fail(why: str) -> NoReturn:
        raise error(f"not acceptable JSON: {why}", where=what)

    if len(data) > max_bytes:
        fail(f"{len(data)} bytes, more than {max_bytes}")
    try:
        value: JsonValue = json.loads(
            data.decode("utf-8"),
            object_pairs_hook=_unique_keys,
            parse_constant=_no_constant,
            parse_float=_finite,
            parse_int=_bounded_int,
        )
    except RecursionError:
        fail(f"nested deeper than {max_depth}")
    except UnicodeDecodeError:
        fail("not UTF-8")
    except json.JSONDecodeError as broken:
        fail(f"{broken.msg} at line {broken.lineno}, column {broken.colno}")
    except _Refused as broken:
        fail(str(broken))
    _check_shape(value, max_depth, fail)
    return value


def read_object(
    data: bytes,
    what: str,
    *,
    max_bytes: int = MAX_BYTES,
    max_depth: int = MAX_DEPTH,
    error: type[BuilderError] = UsageError,
) -> dict[str, JsonValue]:
    """As :func:`read_json`, and the top is an object."""
    value = read_json(data, what, max_bytes=max_bytes, max_depth=max_depth, error=error)
    if not isinstance(value, dict):
        raise error("not acceptable JSON: the top is not an object", where=what)
    return value


def is_number(value: JsonValue, number: int) -> bool:
    """Whether it is this whole number: true and 1.0, which Python takes for 1, are none."""
    return type(value) is int and value == number


def _unique_keys(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _Refused(f"key {key[:60]!r} appears twice")
            seen.add(key)
    return found


def _no_constant(name: str) -> NoReturn:
    raise _Refused(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise _Refused("a number out of range")
    return number


def _bounded_int(text: str) -> int:
    if len(text) > 17 or abs(int(text)) > MAX_INTEGER:
        raise _Refused("an integer of 2**53 or beyond")
    return int(text)


def _check_shape(value: JsonValue, max_depth: int, fail: Callable[[str], NoReturn]) -> None:
    """Depth and text, without recursion: the standard parser's own depth limit is not ours."""
    level: list[JsonValue] = [value]
    depth = 0
    while level:
        depth += 1
        if depth > max_depth + 1:
            fail(f"nested deeper than {max_depth}")
        below: list[JsonValue] = []
        for item in level:
            if isinstance(item, dict):
                below.extend(item.values())
                below.extend(item.keys())
            elif isinstance(item, list):
                below.extend(item)
            elif isinstance(item, str) and not _is_unicode(item):
                fail("a lone surrogate")
        level = below


def _is_unicode(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
