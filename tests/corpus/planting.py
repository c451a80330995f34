"""Put the plants into one image, scan it, and count by group what was found."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from images.oci import OciImage
from provenance.scan.report import Finding, ScanReport
from tests.corpus.plants import Plant
from tests.fakes.credentials import Entry, make_layout, make_tar

Scan = Callable[[OciImage, tuple[tuple[str, bytes], ...]], ScanReport]


@dataclass
class Recall:
    """Of each group: how many there are, and which were not found."""

    total: dict[str, int] = field(default_factory=dict)
    missed: dict[str, list[str]] = field(default_factory=dict)

    def table(self) -> str:
        """One line a group, for people."""
        rows = [
            f"{group:10} {count - len(self.missed[group])}/{count}" for group, count in self.total.items()
        ]
        return "\n".join(rows)


def plant_image(root: Path, plants: Iterable[Plant]) -> tuple[OciImage, tuple[tuple[str, bytes], ...]]:
    """One image of two layers, and the documents beside it."""
    layers: list[list[Entry]] = [[], []]
    config: dict[str, object] = {}
    environment: list[object] = []
    labels: dict[str, object] = {}
    annotations: dict[str, str] = {}
    documents: list[tuple[str, bytes]] = []
    for plant in plants:
        for layer, entries in zip(layers, plant.layers, strict=False):
            layer.extend(entries)
        environment += plant.config.get("Env", [])  # type: ignore[arg-type]
        labels |= plant.config.get("Labels", {})  # type: ignore[arg-type]
        annotations |= plant.annotations
        documents += plant.documents
    config["config"] = {"Env": environment, "Labels": labels}
    image = make_layout(root, map(make_tar, layers), config=config, annotations=annotations, compress=True)
    return image, tuple(documents)


def recall(plants: Iterable[Plant], report: ScanReport) -> Recall:
    """A plant is found when a finding's place shows it."""
    places = [_place(finding) for finding in report.findings]
    found = Recall()
    for plant in plants:
        found.total[plant.group] = found.total.get(plant.group, 0) + 1
        missed = found.missed.setdefault(plant.group, [])
        if not any(plant.shows in place for place in places):
            missed.append(plant.id)
    return found


def _place(finding: Finding) -> str:
    place = finding.place
    return f"{place.kind.value} {place.path} {place.blob}"
