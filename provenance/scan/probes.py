"""What the engine looks for: where a credential may start, in each way to write one down. Pure.

Nearly all of it is literals: thousands of them cost the engine no more than one, where a class after each
would. So little is asked of what follows, and a candidate is judged afterwards.
"""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final
from urllib.parse import quote, quote_plus

from images.credentials import Confirm, Shape

# More letters than this only make the automaton larger: Python's own engine judges the rest.
_MOST_LETTERS: Final = 24
_LEAST_BASE64: Final = 4
_BASE64_RUN: Final = 16  # letters asked of what follows a beginning that is shorter than that
_LONGEST: Final = 24  # letters of a literal
_MOST_BASE64: Final = 11  # letters: each more is one more place at which a line can end
_LEAST_WRAPPED: Final = 4
_ESCAPED_WHOLE: Final = 4  # characters that are all escaped
_NUMBERED: Final = (b"\\u00%02x", b"\\u00%02X", b"%%%02x", b"%%%02X", b"\\x%02x", b"\\x%02X")


class Encoding(StrEnum):
    """How a credential is written down."""

    PLAIN = "plain"
    BASE64 = "base64"
    UTF16 = "utf-16"
    HEX = "hexadecimal"
    ESCAPED = "escaped"


@dataclass(frozen=True, slots=True)
class Probe:
    """One pattern given to the engine. ``width``: bytes from its start to where the engine reports it.

    ``skew``: in base64, how many letters before the pattern the group of four starts; ``lead``: how many
    decoded bytes stand before the prefix.
    """

    shape: Shape
    encoding: Encoding
    expression: bytes
    width: int
    skew: int = 0
    lead: int = 0


def probes_of(shape: Shape) -> Iterator[Probe]:
    """Every way in which a credential of this shape can begin."""
    count = shape.least if shape.mark else min(shape.least, _MOST_LETTERS)
    for prefix in shape.prefixes:
        # Of a value that is known in full, its beginning is enough for the engine.
        start = prefix[:_LONGEST] if shape.confirm is Confirm.KNOWN else prefix
        letters = f"[{shape.alphabet}]{{{count}}}".encode() if count else b""
        expression = _literal(start) + letters + _literal(shape.mark)
        yield Probe(shape, Encoding.PLAIN, expression, len(start) + count + len(shape.mark))
        if shape.confirm is Confirm.DER:
            continue
        yield from _base64_probes(shape, start)
        yield from _escaped_probes(shape, start)
        yield _as_literal(shape, Encoding.UTF16, b"\0".join(bytes((byte,)) for byte in start))
        for digits in {start.hex().encode(), start.hex().upper().encode()}:
            yield _as_literal(shape, Encoding.HEX, digits)


def _base64_probes(shape: Shape, prefix: bytes) -> Iterator[Probe]:
    """The letters that are the same whatever stands before and after, for the three alignments.

    A line may end between any two of them: MIME wraps after 76 letters, PEM after 64.
    """
    for lead in range(3):
        encoded = base64.b64encode(bytes(lead) + prefix)
        first, last = -(-8 * lead // 6), 8 * (lead + len(prefix)) // 6
        for text in {encoded[first:last], encoded[first:last].translate(bytes.maketrans(b"+/", b"-_"))}:
            more = b"" if len(text) >= _LEAST_BASE64 else b"[A-Za-z0-9+/_\\-]{%d}" % _BASE64_RUN
            start = text[:_MOST_BASE64]
            width = len(start) + (_BASE64_RUN if more else 0)
            yield Probe(shape, Encoding.BASE64, _literal(start) + more, width, skew=first, lead=lead)
            for at in range(1, len(start) if len(start) >= _LEAST_WRAPPED else 0):
                for end in (b"\n", b"\r\n"):
                    broken = start[:at] + end + start[at:]
                    expression = _literal(broken)
                    yield Probe(shape, Encoding.BASE64, expression, len(broken), skew=first, lead=lead)


def _escaped_probes(shape: Shape, prefix: bytes) -> Iterator[Probe]:
    """Every character escaped by its number, or only those that are neither letter nor digit."""
    spelled: set[bytes] = set()
    for form in _NUMBERED:
        spelled.add(b"".join(form % byte for byte in prefix[:_ESCAPED_WHOLE]))
        spelled.add(b"".join(bytes((byte,)) if _is_plain(byte) else form % byte for byte in prefix))
    spelled |= {quote(prefix, safe="").encode(), quote(prefix).encode(), quote_plus(prefix).encode()}
    with contextlib.suppress(UnicodeDecodeError):
        text = prefix.decode()
        for ascii_only in (True, False):
            as_json = json.dumps(text, ensure_ascii=ascii_only)[1:-1].encode()
            spelled |= {as_json, as_json.replace(b"/", b"\\/")}
    for one in sorted(spelled - {prefix, b""}):
        yield _as_literal(shape, Encoding.ESCAPED, one)


def _is_plain(byte: int) -> bool:
    return bytes((byte,)).isalnum()


def _as_literal(shape: Shape, encoding: Encoding, text: bytes) -> Probe:
    return Probe(shape, encoding, _literal(text), len(text))


def _literal(text: bytes) -> bytes:
    return b"".join(b"\\x%02x" % byte for byte in text)
