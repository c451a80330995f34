"""Find where a credential may start: every shape, plain, in base64 and in UTF-16, in one Vectorscan pass."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

import pyperscan

from images.credentials import SHAPES, Confirm, Shape

# More letters than this only make the automaton larger: Python's own engine judges the rest.
_MOST_LETTERS: Final = 24
_LEAST_BASE64: Final = 6
_LEAST_CHECKED_BASE64: Final = 4  # where a CRC or a key's structure decides anyway
_UTF16_LETTERS: Final = 4

Bytes: TypeAlias = bytes | bytearray | memoryview


class Encoding(StrEnum):
    """How a credential is written down."""

    PLAIN = "plain"
    BASE64 = "base64"
    UTF16 = "utf-16"


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


@dataclass(frozen=True, slots=True)
class Candidate:
    """A place in the buffer where a probe matched."""

    at: int
    probe: Probe


class EngineStopped(Exception):
    """More candidates in one buffer than are judged: the scan is incomplete."""


class Engine:
    """The compiled table; shared by threads, each of which builds a :class:`Finder`."""

    def __init__(self, shapes: tuple[Shape, ...] = SHAPES) -> None:
        self.probes = tuple(probe for shape in shapes for probe in _probes(shape))
        self._database = pyperscan.BlockDatabase(
            *(pyperscan.Pattern(probe.expression, pyperscan.Flag.DOTALL) for probe in self.probes)
        )

    def finder(self, most: int = 50_000) -> Finder:
        """For one thread; ``most``: candidates in one buffer before EngineStopped."""
        return Finder(self.probes, self._database, most)


class Finder:
    """One thread's scanner with its own scratch space."""

    def __init__(self, probes: tuple[Probe, ...], database: pyperscan.BlockDatabase, most: int) -> None:
        self._probes = probes
        self._most = most
        self._hits: list[tuple[int, int]] = []
        self._scanner = database.build(None, self._on_match)

    def find(self, buffer: Bytes) -> list[Candidate]:
        """All candidates in the buffer, by position. Raises EngineStopped."""
        self._hits.clear()
        ended = self._scanner.scan(buffer)
        if ended != pyperscan.Scan.Continue:
            raise EngineStopped(f"more than {self._most} candidates in {len(buffer)} bytes")
        found = {(end - self._probes[tag].width, tag) for tag, end in self._hits}
        return [Candidate(at, self._probes[tag]) for at, tag in sorted(found)]

    def _on_match(self, _context: None, tag: int, _start: int, end: int) -> pyperscan.Scan:
        self._hits.append((tag, end))
        if len(self._hits) > self._most:
            return pyperscan.Scan.Terminate
        return pyperscan.Scan.Continue


def _probes(shape: Shape) -> list[Probe]:
    found = []
    count = shape.least if shape.mark else min(shape.least, _MOST_LETTERS)
    for prefix in shape.prefixes:
        letters = f"[{shape.alphabet}]{{{count}}}".encode() if count else b""
        expression = _literal(prefix) + letters + _literal(shape.mark)
        found.append(Probe(shape, Encoding.PLAIN, expression, len(prefix) + count + len(shape.mark)))
        if shape.confirm is Confirm.DER:
            continue
        found.extend(_base64_probes(shape, prefix))
        found.append(_utf16_probe(shape, prefix))
    return found


def _base64_probes(shape: Shape, prefix: bytes) -> list[Probe]:
    """The letters that are the same whatever stands before and after, for the three alignments."""
    least = _LEAST_BASE64 if shape.confirm is Confirm.LETTERS else _LEAST_CHECKED_BASE64
    found = []
    for lead in range(3):
        encoded = base64.b64encode(bytes(lead) + prefix)
        first = -(-8 * lead // 6)
        last = 8 * (lead + len(prefix)) // 6
        text = encoded[first:last]
        if len(text) < least:
            continue
        expression = b"".join(
            {43: b"[+\\-]", 47: b"[/_]"}.get(letter, _literal(bytes([letter]))) for letter in text
        )
        expression += b"[A-Za-z0-9+/_\\-]{8}"
        found.append(Probe(shape, Encoding.BASE64, expression, len(text) + 8, skew=first, lead=lead))
    return found


def _utf16_probe(shape: Shape, prefix: bytes) -> Probe:
    """Little and big endian alike: what is matched starts and ends with a letter's own byte."""
    letters = b"\\x00[" + shape.alphabet.encode() + b"]" if shape.most else b"\\x00[\\x01-\\x7f]"
    count = min(_UTF16_LETTERS, shape.least) if shape.most else _UTF16_LETTERS
    expression = b"\\x00".join(_literal(bytes([letter])) for letter in prefix) + letters * count
    return Probe(shape, Encoding.UTF16, expression, 2 * len(prefix) - 1 + 2 * count)


def _literal(text: bytes) -> bytes:
    return b"".join(b"\\x%02x" % byte for byte in text)
