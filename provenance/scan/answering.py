"""Who answers for what a scan names: the base, or the locked artifact that a file is byte for byte a part of.

For an archive that was not opened this is an answer: what a lock names was chosen by its reader. For a
finding it explains where it comes from, and clears nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from images.errors import BuilderError
from images.lock import Artifact, Lock
from images.oci import OciImage, Platform
from images.unpacking import Plan, archive_plan, node_plan, npm_plan, skill_plan, wheel_plan
from provenance.audit.members import OpenArtifact, index_artifact
from provenance.scan.collect import INSIDE
from provenance.scan.report import IN_FILES, Finding, OpaqueMember, ScanReport


def answer(report: ScanReport, image: OciImage, lock: Lock, open_artifact: OpenArtifact | None) -> ScanReport:
    """The same report with its answers. Without ``open_artifact`` only the base's layers can be told."""
    who = _Answers(image, lock, open_artifact)
    return replace(
        report,
        opaque=tuple(replace(member, by=who.of_member(member)) for member in report.opaque),
        findings=tuple(replace(finding, explained=who.of_finding(finding)) for finding in report.findings),
    )


@dataclass(slots=True)
class _Answers:
    image: OciImage
    lock: Lock
    open_artifact: OpenArtifact | None
    _hashes: dict[str, frozenset[str]] = field(default_factory=dict)

    def of_member(self, member: OpaqueMember) -> str:
        return self._find(member.layer, member.path, member.file.hex)

    def of_finding(self, finding: Finding) -> str:
        place = finding.place
        in_file = place.kind in IN_FILES and finding.file
        return self._find(place.blob, place.path, finding.file.removeprefix("sha256:")) if in_file else ""

    def _find(self, layer: str, path: str, content: str) -> str:
        """Whose these bytes are; empty when nobody is known to have them."""
        base = self.lock.base.image(self.image.platform)
        if layer in {str(one.digest) for one in base.layers}:
            return f"the base {base.manifest}"
        outer = path.partition(INSIDE)[0]
        for artifact in owners(self.lock, self.image.platform, outer):
            if content in self._contents(artifact):
                return artifact.id
        return ""

    def _contents(self, artifact: Artifact) -> frozenset[str]:
        if artifact.id not in self._hashes:
            self._hashes[artifact.id] = frozenset(self._index(artifact))
        return self._hashes[artifact.id]

    def _index(self, artifact: Artifact) -> Iterator[str]:
        if self.open_artifact is None:
            return
        try:
            yield from (member.content.hex() for member in index_artifact(artifact, self.open_artifact))
        except BuilderError:
            return  # not in this store: nothing can be told, so nothing is answered


def owners(lock: Lock, platform: Platform, path: str) -> Iterator[Artifact]:
    """The artifacts that are unpacked at or above a path of the image, the deepest first."""
    found = []
    for plan in _plans(lock, platform):
        for placed in plan.placed:
            place = plan.target.strip("/") + ("" if placed.place == "." else f"/{placed.place}")
            if path.startswith(f"{place}/"):
                found.append((-len(place), placed.artifact.id, placed.artifact))
    yield from (artifact for *_, artifact in sorted(found, key=lambda one: one[:2]))


def _plans(lock: Lock, platform: Platform) -> Iterator[Plan]:
    yield node_plan(lock, platform)
    yield from (npm_plan(lock, one, platform) for one in lock.installed)
    yield from (skill_plan(lock, skill) for skill in lock.skills)
    yield from (wheel_plan(lock, one, platform) for one in lock.pypi_installed)
    yield from (archive_plan(lock, archive) for archive in lock.archives)
