"""Find where a credential may start: every shape, in every encoding, in one Vectorscan pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import pyperscan

from images.credentials import SHAPES, Shape
from provenance.scan.probes import Encoding, Probe, probes_of

__all__ = ["Bytes", "Candidate", "Encoding", "Engine", "EngineStopped", "Finder", "Probe"]

Bytes: TypeAlias = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class Candidate:
    """A place in the buffer where a probe matched."""

    at: int
    probe: Probe


class EngineStopped(Exception):
    """More candidates in one buffer than are judged: the scan is incomplete."""


class Engine:
    """The compiled table; shared by threads, each of which builds a :class:`Finder`.

    ``known``: values to be found as such, beside the table.
    """

    def __init__(self, shapes: tuple[Shape, ...] = SHAPES, known: tuple[Shape, ...] = ()) -> None:
        self.probes = tuple(probe for shape in (*shapes, *known) for probe in probes_of(shape))
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
