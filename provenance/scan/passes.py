"""Run all passes of one scan over its sources, layers in parallel, and put the report together."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

from images.credentials import RULESET_VERSION
from images.digests import Digest
from images.errors import VerifyFailed
from images.oci import MEDIA_LAYER_TAR
from provenance.layers import layer_chunks
from provenance.scan.allow import AllowList, Packages
from provenance.scan.collect import Collector, TooMany
from provenance.scan.documents import judge_document
from provenance.scan.engine import Engine, EngineStopped
from provenance.scan.judge import judge
from provenance.scan.layer import LayerPass, LinkedPath
from provenance.scan.layer_report import layer_reports
from provenance.scan.lookinside import MAX_LOOK_INSIDE, apply_rules
from provenance.scan.places import PathTable
from provenance.scan.report import IN_FILES, BlobCoverage, Place, ScanReport
from provenance.scan.request import ScanRequest
from provenance.scan.ruleset import engine_identity, ruleset_digest
from provenance.scan.sources import DocumentSource, LayerSource, Sources
from provenance.scan.tarwalk import Member, MemberKind, OnContent, TarWalker, Unreadable


@dataclass(frozen=True, slots=True)
class Scanned:
    """The report, and what each layer adds to it that can be said of it alone."""

    report: ScanReport
    layers: tuple[ScanReport, ...]


def scan_sources(sources: Sources, request: ScanRequest, allow: AllowList, engine: Engine) -> ScanReport:
    """The report. Faults of the image are in it as incomplete; only a fault of ours raises."""
    return scan_and_tell(sources, request, allow, engine).report


def scan_and_tell(sources: Sources, request: ScanRequest, allow: AllowList, engine: Engine) -> Scanned:
    """The same, with the reports of its layers: none when a link leads from one layer into another."""
    table = PathTable()
    collector = Collector(request.key, allow, Packages(request.packages), request.known)
    for reason in sources.missing:
        collector.incomplete(reason)
    extra = tuple(DocumentSource(name, partial(bytes, raw)) for name, raw in request.documents)
    for document in (*sources.documents, *extra):
        _scan_document(document, engine, collector)

    settled = {part.subject: part for part in request.settled}

    def scan_layer(source: LayerSource) -> list[LinkedPath]:
        if str(source.layer.digest) in settled:
            _settle(source, settled[str(source.layer.digest)], collector)
            return []
        layer_pass = LayerPass(str(source.layer.digest), engine.finder(), table, collector)
        try:
            with source.open() as file:
                layer_pass.run(layer_chunks(file, source.layer, source.diff_id, str(source.layer.digest)))
        except VerifyFailed as gone:
            collector.incomplete(f"layer {source.layer.digest}: {gone}")
        return layer_pass.linked

    largest_first = sorted(sources.layers, key=lambda source: -source.layer.size)
    with ThreadPoolExecutor(max_workers=request.threads) as pool:
        linked = [path for found in pool.map(scan_layer, largest_first) for path in found]
    if linked:
        _look_at_links(sources.layers, linked, collector)
    _hash_files(sources.layers, collector)
    report = _report(sources.subject, allow, collector)
    return Scanned(report, () if linked else layer_reports(report, collector.collected, allow))


def _settle(source: LayerSource, part: ScanReport, collector: Collector) -> None:
    """Hash what is stored, every byte, in place of a scan: what was remembered is about these bytes alone."""
    try:
        stored = replace(source.layer, media_type=MEDIA_LAYER_TAR)  # as it is, not decompressed
        with source.open() as file:
            for _ in layer_chunks(file, stored, None, str(source.layer.digest)):
                pass
        collector.settled(part)
    except (VerifyFailed, TooMany) as gone:
        collector.incomplete(f"layer {source.layer.digest}: {gone}")


def _scan_document(document: DocumentSource, engine: Engine, collector: Collector) -> None:
    try:
        raw = document.read()
    except VerifyFailed as broken:
        collector.incomplete(f"{document.name}: {broken}")
        return
    scanned = 0
    try:
        for candidate in engine.finder().find(raw) if raw else ():
            found = judge(raw, candidate)
            if found:
                place = Place(document.kind, document.name, "", candidate.at)
                collector.found(found.rule, place, found.value)
        scanned = len(raw)
        for path, named in judge_document(raw, document.name):
            place = Place(document.kind, document.name, path)
            collector.found(named.rule, place, named.value.encode("utf-8", "surrogatepass"))
    except (EngineStopped, TooMany) as stopped:
        collector.incomplete(f"{document.name}: {stopped}")
    collector.covered(BlobCoverage(document.name, "document", len(raw), scanned, 0))


def _look_at_links(layers: tuple[LayerSource, ...], linked: list[LinkedPath], collector: Collector) -> None:
    """A link at a path of the table: read its target, in whichever layer, under the link's rules."""
    targets: dict[str, list[LinkedPath]] = {}
    for link in linked:
        targets.setdefault(link.target, []).append(link)
    read: set[str] = set()
    for source in layers:
        digest = str(source.layer.digest)
        for member, content in _contents(source, frozenset(targets), collector):
            read.add(member.name)
            for link in targets[member.name]:
                apply_rules(link.rules, content, digest, link.path, collector)
    for target in sorted(targets.keys() - read):
        for link in targets[target]:
            if link.kind is MemberKind.HARD_LINK:
                collector.incomplete(f"{link.path}: a hard link to {target}, which no layer holds as a file")


def _hash_files(layers: tuple[LayerSource, ...], collector: Collector) -> None:
    """The digest of each file with a finding, so that a lock can explain it: a second reading, if any.

    And of what turned out to be an archive only at its end.
    """
    gathered = collector.collected
    for source in layers:
        layer = str(source.layer.digest)
        wanted = {
            key: path
            for key, (blob, path) in gathered.files.items()
            if blob == layer and key in gathered.findings and key[1].kind in IN_FILES
        }
        unhashed = {number: path for number, (blob, path) in gathered.unhashed.items() if blob == layer}
        if not wanted and not unhashed:
            continue
        digests = dict(_digests(source, frozenset((*wanted.values(), *unhashed.values())), collector))
        for number, path in unhashed.items():
            if path in digests:
                digest = Digest(digests[path])
                gathered.opaque[number] = replace(gathered.opaque[number], digest=digest, file=digest)
        for key, path in wanted.items():
            gathered.findings[key] = replace(gathered.findings[key], file=digests.get(path, ""))


def _digests(source: LayerSource, wanted: frozenset[str], collector: Collector) -> Iterator[tuple[str, str]]:
    """A name that two members have is none that can be explained."""
    seen: set[str] = set()
    sums: dict[str, hashlib._Hash] = {}

    def on_content(member: Member, piece: memoryview, last: bool) -> None:
        sums.setdefault(member.name, hashlib.sha256()).update(piece)
        if last and member.name in seen:
            sums[member.name] = hashlib.sha256(b"two members of one name")
        if last:
            seen.add(member.name)

    for _ in _walked(source, wanted, on_content, collector):
        pass
    yield from ((name, f"sha256:{found.hexdigest()}") for name, found in sums.items())


def _contents(
    source: LayerSource, wanted: frozenset[str], collector: Collector
) -> Iterator[tuple[Member, bytes]]:
    content = bytearray()
    done: list[tuple[Member, bytes]] = []

    def on_content(member: Member, piece: memoryview, last: bool) -> None:
        if len(content) <= MAX_LOOK_INSIDE:
            content.extend(piece)
        if last:
            done.append((member, bytes(content)))
            content.clear()

    for _ in _walked(source, wanted, on_content, collector):
        yield from done
        done.clear()


def _walked(
    source: LayerSource, wanted: frozenset[str], on_content: OnContent, collector: Collector
) -> Iterator[None]:
    """Give what the files of these names hold, with a stop after each chunk; a broken layer is told."""
    walker = TarWalker(
        lambda member: member.kind is MemberKind.FILE and member.name in wanted,
        on_content,
        lambda _header, _text: None,
    )
    digest = str(source.layer.digest)
    try:
        with source.open() as file:
            for chunk in layer_chunks(file, source.layer, None, digest):
                walker.feed(memoryview(chunk))
                yield
    except (Unreadable, VerifyFailed) as broken:
        collector.incomplete(f"layer {digest}: {broken}")


def _report(subject: str, allow: AllowList, collector: Collector) -> ScanReport:
    gathered = collector.collected
    return ScanReport(
        subject=subject,
        ruleset=RULESET_VERSION,
        ruleset_digest=ruleset_digest(allow),
        engine=engine_identity(),
        coverage=tuple(sorted(gathered.coverage, key=lambda blob: (blob.kind, blob.digest))),
        findings=tuple(gathered.findings[key] for key in sorted(gathered.findings, key=str)),
        cleared=tuple(gathered.cleared[key] for key in sorted(gathered.cleared, key=str)),
        opened=gathered.opened.total(),
        opened_bytes=gathered.opened_bytes.total(),
        opaque=tuple(sorted(gathered.opaque, key=lambda one: (one.layer, one.path, one.digest, one.reason))),
        opaque_count=gathered.opaque_count,
        incomplete=tuple(sorted(set(gathered.incomplete))),
    )
