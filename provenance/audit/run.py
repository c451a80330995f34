"""Audit our layers against their lock: artifacts indexed first, then every layer streamed past the index."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from images.digests import Integrity
from images.errors import BuilderError
from images.lock import Artifact, BaseImage
from images.oci import OciImage
from images.render import BuildContext
from provenance.audit.compare import Findings, compare_layer
from provenance.audit.layertar import read_entries
from provenance.audit.members import Member, OpenArtifact, index_artifact
from provenance.audit.report import MAX_LISTED, AuditReport, Difference, DifferenceKind, Origin
from provenance.audit.wanted import WantedLayer, wanted_layers
from provenance.layout import layer_tar


def audit_image(
    image: OciImage, base: BaseImage, context: BuildContext, open_artifact: OpenArtifact, *, workers: int = 2
) -> AuditReport:
    """Account for every entry of the layers that ``image`` has on ``base``, and for what they lack.

    ``context``: what the renderer says of the lock now, so its generators are run again. What is wrong with
    the image is in the report; what is wrong with an artifact is raised, as ``open_artifact`` does.
    ``workers``: threads; hashing and decompression let them run side by side.
    """
    below = len(base.layers)
    differences = tuple(_layer_differences(image, base, context))
    if differences:
        return _report(image, context, base, [], differences)
    artifacts = {item.artifact.integrity: item.artifact for plan in context.plans for item in plan.placed}
    pool = ThreadPoolExecutor(workers, "audit")
    try:
        index = _index(pool, artifacts, open_artifact)
        wanted = wanted_layers(context, index)
        # The largest first: the last one to end is then a small one.
        order = sorted(range(len(wanted)), key=lambda number: -image.manifest.layers[below + number].size)
        running = {
            number: pool.submit(_audit_layer, image, below + number, wanted[number], context.epoch)
            for number in order
        }
        found = [running[number].result() for number in range(len(wanted))]
    finally:
        pool.shutdown(cancel_futures=True)
    return _report(image, context, base, found, ())


def _index(
    pool: ThreadPoolExecutor, artifacts: dict[Integrity, Artifact], open_artifact: OpenArtifact
) -> dict[Integrity, tuple[Member, ...]]:
    order = sorted(artifacts.values(), key=lambda artifact: -artifact.size)
    running = {one.integrity: pool.submit(index_artifact, one, open_artifact) for one in order}
    return {integrity: one.result() for integrity, one in running.items()}


def _layer_differences(image: OciImage, base: BaseImage, context: BuildContext) -> Iterator[Difference]:
    """The base's layers exactly, then as many of ours as planned; else it is not clear which is which."""
    count = len(base.layers)
    own = [(layer.digest, layer.size) for layer in image.manifest.layers[:count]]
    if own != [(layer.digest, layer.size) for layer in base.layers]:
        yield Difference(DifferenceKind.LAYERS, 0, "", f"the first {count} are not those of the base")
    ours, planned = len(image.manifest.layers) - count, context.image.new_layers
    if ours != planned or planned != len(context.plans) + 2:
        yield Difference(DifferenceKind.LAYERS, count, "", f"{ours} layers on the base, planned {planned}")


def _audit_layer(image: OciImage, number: int, wanted: WantedLayer, epoch: int) -> Findings:
    findings = Findings(number)
    try:
        compare_layer(read_entries(layer_tar(image, number)), wanted, epoch, findings)
    except BuilderError as broken:
        findings.differs(DifferenceKind.UNREADABLE, "", broken.what)
    return findings


def _report(
    image: OciImage,
    context: BuildContext,
    base: BaseImage,
    found: list[Findings],
    differences: tuple[Difference, ...],
) -> AuditReport:
    origins = sum((one.origins for one in found), Counter[Origin]())
    listed = (*differences, *(difference for one in found for difference in one.differences))
    return AuditReport(
        image=image.digest,
        key=context.key,
        entries=sum(one.entries for one in found),
        bytes=sum(one.bytes for one in found),
        origins=tuple((origin, origins[origin]) for origin in Origin if origins[origin]),
        scripts=tuple(placed for one in found for placed in one.scripts),
        differences=listed[:MAX_LISTED],
        difference_count=len(differences) + sum(one.difference_count for one in found),
        unaudited=(f"base {base.manifest}, layers: {len(base.layers)}: taken whole, by digest",),
    )
