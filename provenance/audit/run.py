"""Audit our layers against their lock: artifacts indexed first, then every layer streamed past the index."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

from images.digests import Integrity
from images.errors import BuilderError
from images.lock import Artifact, BaseImage
from images.oci import OciImage
from images.render import BuildContext
from provenance.audit.compare import Findings, compare_layer
from provenance.audit.deb_index import index_deb
from provenance.audit.layertar import read_entries
from provenance.audit.members import Member, OpenArtifact, index_artifact
from provenance.audit.report import MAX_LISTED, AuditReport, Difference, DifferenceKind, Origin
from provenance.audit.toolchain import ToolchainComparison, ToolchainGiven, packaged_bytes, wanted_toolchain
from provenance.audit.wanted import WantedLayer, wanted_layers
from provenance.layout import layer_tar


def audit_image(
    image: OciImage,
    base: BaseImage,
    context: BuildContext,
    open_artifact: OpenArtifact,
    *,
    workers: int = 2,
    toolchain: ToolchainGiven | None = None,
) -> AuditReport:
    """Account for every entry of the layers that ``image`` has on ``base``, and for what they lack.

    ``context``: what the renderer says of the lock now, so its generators are run again. What is wrong with
    the image is in the report; what is wrong with an artifact is raised, as ``open_artifact`` does.
    ``workers``: threads; hashing and decompression let them run side by side. ``toolchain``: what the audit
    of that layer is given; without a replay, what the scripts of its packages wrote is unexplained.
    """
    below = len(base.layers)
    first = below + (context.toolchain is not None)
    differences = tuple(_layer_differences(image, base, context))
    if differences:
        return _report(image, context, base, [], differences)
    artifacts = {item.artifact.integrity: item.artifact for plan in context.plans for item in plan.placed}
    pool = ThreadPoolExecutor(workers, "audit")
    try:
        given = toolchain or ToolchainGiven()
        finish = _start_toolchain(pool, (image, below), context, open_artifact, given)
        index = _index(pool, artifacts, open_artifact)
        wanted = wanted_layers(context, index)
        # The largest first: the last one to end is then a small one.
        order = sorted(range(len(wanted)), key=lambda number: -image.manifest.layers[first + number].size)
        running = {
            number: pool.submit(_audit_layer, image, first + number, wanted[number], context.epoch)
            for number in order
        }
        found = [*finish(), *(running[number].result() for number in range(len(wanted)))]
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
    if ours != planned or planned != len(context.plans) + 2 + (context.toolchain is not None):
        yield Difference(DifferenceKind.LAYERS, count, "", f"{ours} layers on the base, planned {planned}")


def _start_toolchain(
    pool: ThreadPoolExecutor,
    layer: tuple[OciImage, int],
    context: BuildContext,
    open_artifact: OpenArtifact,
    given: ToolchainGiven,
) -> Callable[[], tuple[Findings, ...]]:
    """Begin with the toolchain layer, if there is one; call what is returned for its findings."""
    plan = context.toolchain
    if plan is None:
        return tuple
    debs = [pool.submit(index_deb, one, open_artifact) for one in plan.debs]
    again = pool.submit(given.replay) if given.replay is not None else None

    def finish() -> tuple[Findings, ...]:
        findings = Findings(layer[1])
        indexed = [one.result() for one in debs]
        wanted, packaged = wanted_toolchain(plan, indexed, given.debian), packaged_bytes(indexed)
        replayed = again.result() if again is not None else None
        try:
            ToolchainComparison(wanted, packaged, replayed, context.epoch, findings).run(
                read_entries(layer_tar(*layer))
            )
        except BuilderError as broken:
            findings.differs(DifferenceKind.UNREADABLE, "", broken.what)
        return (findings,)

    return finish


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
        replayed=tuple(path for one in found for path in one.replayed_paths),
        unexplained=tuple(path for one in found for path in one.unexplained_paths),
        unexplained_count=sum(one.unexplained_count for one in found),
    )
