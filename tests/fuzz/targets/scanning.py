"""What the scanner reads: any tar, any document, saved archives, files at known paths, its own two pipes."""

from __future__ import annotations

import io
import json
import tarfile
from dataclasses import replace
from pathlib import Path

from images.credential_places import PATH_RULES
from images.credentials import Secret
from images.digests import Digest
from images.oci import OciImage
from provenance.scan.allow import ALLOW_FILE, PackageTree, parse_allow_list, shipped_allow_list
from provenance.scan.archive import open_archive
from provenance.scan.archive_sources import archive_sources
from provenance.scan.documents import judge_document
from provenance.scan.layer_report import from_lines, to_lines
from provenance.scan.lookinside import look_inside
from provenance.scan.memory import Seal
from provenance.scan.report import ScanReport, Verdict
from provenance.scan.report_json import report_from_json, report_to_json
from provenance.scan.request import ScanRequest, Target, read_request
from provenance.scan.ruleset import engine_identity, ruleset_digest
from provenance.scan.sniff import nested_format
from provenance.scan.tarwalk import Member, TarWalker, Unreadable
from tests.fakes.audited import layer_bytes
from tests.fakes.proved import make_world, report_on
from tests.fuzz.mutate_archives import mutate_tar
from tests.fuzz.mutate_bytes import mutate_bytes
from tests.fuzz.mutate_json import mutate_json
from tests.fuzz.target import Ready, law, target
from tests.fuzz.targets.archives import LAYER


@target(mutate_tar, refusals=(Unreadable,))
def tar_for_the_scan(folder: Path) -> Ready:
    """A layer's tar as the scanner walks it: every byte is passed on, whatever a header says."""

    def look(raw: bytes) -> object:
        walked = [_walk(raw, piece) for piece in (len(raw) or 1, 333)]
        law(walked[0] == walked[1], "in other pieces it reads differently")
        found = walked[0]
        law(all(0 <= one.start <= one.end for one in found), "a member that ends before it begins")
        return found

    return Ready((layer_bytes(LAYER),), look)


def _walk(raw: bytes, piece: int) -> list[Member]:
    found: list[Member] = []

    def take(member: Member) -> bool:
        found.append(member)
        return True

    walker = TarWalker(take, lambda *_: None, lambda *_: None)
    for at in range(0, len(raw), piece):
        walker.feed(memoryview(raw[at : at + piece]))
    walker.finish()
    return found


@target(mutate_json)
def scanned_document(folder: Path) -> Ready:
    """A JSON document of an image: what is no JSON is read as text."""
    world = make_world(folder)
    world.prove()
    seeds = (
        world.image.settings.raw,
        world.image.manifest.raw,
        json.dumps(
            {"a": [{"name": "TOKEN", "value": "x" * 30}], "b": '{"password": "hunter2hunter2"}'}
        ).encode(),
    )
    return Ready(seeds, lambda raw: list(judge_document(raw, "document")))


@target(mutate_bytes, share=0.15)
def file_at_a_known_path(folder: Path) -> Ready:
    """Each way to look inside a file that a path rule names."""
    seeds = (
        b'{"claudeAiOauth": {"accessToken": "' + b"x" * 40 + b'", "refreshToken": "y"}}',
        b"//registry.test/:_authToken=" + b"z" * 36 + b"\n",
        b"machine h login l password " + b"p" * 20 + b"\n",
        b"[default]\naws_secret_access_key = " + b"k" * 40 + b"\n<password>abcdefgh</password>\n",
        b'[url "https://u:'
        + b"q" * 20
        + b'@h.test/"]\n[http]\n\textraheader = AUTHORIZATION: basic '
        + b"w" * 24,
        "password: x".encode("utf-16"),
    )

    def look(raw: bytes) -> object:
        found = [list(look_inside(rule, raw)) for rule in PATH_RULES]
        for at in range(0, min(len(raw), 64), 7):
            nested_format("objects/aa/" + "b" * 38, raw[at:])
        return found

    return Ready(seeds, look)


@target(mutate_json)
def scan_report(folder: Path) -> Ready:
    """The report of the scanning child, which parsed what strangers made: its verdict is derived again."""
    world = make_world(folder)
    seed = report_to_json(report_on(world.image))

    def look(raw: bytes) -> object:
        report = report_from_json(raw)
        law(report_from_json(report_to_json(report)) == report, "a report that is another when it is written")
        return report

    return Ready((seed,), look)


@target(mutate_json)
def report_of_a_layer(folder: Path) -> Ready:
    """What the scanning child says of one layer alone, for later scans: clean, and of nothing else."""
    allow = shipped_allow_list()
    seed = to_lines((_of_first_layer(make_world(folder).image),))

    def look(raw: bytes) -> object:
        told = from_lines(raw, allow)
        law(all(one.verdict is Verdict.CLEAN for one in told), "a layer that is not clean")
        law(all([blob.digest for blob in one.coverage] == [one.subject] for one in told), "of another layer")
        return told

    return Ready((seed,), look)


@target(mutate_bytes)
def remembered_layer(folder: Path) -> Ready:
    """A file of the state's memory of scans: it is ours to the last bit, or it is nothing."""
    image = make_world(folder).image
    layer, diff_id = image.manifest.layers[0], image.settings.diff_ids[0]
    seal = Seal(Secret(b"k" * 32))
    seed = seal.close(_of_first_layer(image), layer, diff_id)

    def look(raw: bytes) -> object:
        found = seal.open(raw, layer, diff_id)
        law(bool(found) == (raw == seed), "what was never written counts, or what was does not")
        return found

    return Ready((seed,), look)


def _of_first_layer(image: OciImage) -> ScanReport:
    whole = report_on(image, opaque_count=0, engine=engine_identity())
    return replace(
        whole,
        ruleset_digest=ruleset_digest(shipped_allow_list()),
        subject=str(image.manifest.layers[0].digest),
        coverage=whole.coverage[:1],
    )


@target(mutate_json, share=3)
def scan_request(folder: Path) -> Ready:
    """What the child is asked."""
    request = ScanRequest(
        target=Target.IMAGE,
        path=Path("/layout"),
        digest=Digest.of(b"x"),
        key=Secret(b"k" * 16),
        documents=(("bundle", b"{}"),),
        packages=(PackageTree("usr/lib", "npm", "1.0.0"),),
    )
    return Ready((request.to_json(),), read_request)


@target(mutate_json, share=0.6)
def allow_list(folder: Path) -> Ready:
    """The list of published keys."""
    seed = (Path(__file__).resolve().parents[3] / "provenance" / "scan" / ALLOW_FILE).read_bytes()
    return Ready((seed,), parse_allow_list)


def _saved(folder: Path) -> bytes:
    """As `docker save` of a recent Docker: a layout in a tar, with Docker's own manifest beside it."""
    world = make_world(folder)
    image = world.image
    manifest = [
        {
            "Config": f"blobs/sha256/{image.settings.digest.hex}",
            "RepoTags": ["team/agents:1"],
            "Layers": [f"blobs/sha256/{layer.digest.hex}" for layer in image.manifest.layers],
        }
    ]
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        files = {
            str(path.relative_to(world.layout)): path.read_bytes()
            for path in sorted(world.layout.rglob("*"))
            if path.is_file() and path.stat().st_size
        }
        for name, content in {**files, "manifest.json": json.dumps(manifest).encode()}.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return out.getvalue()


def _read_saved(path: Path) -> object:
    blobs = open_archive(path)
    sources = archive_sources(blobs)
    for document in sources.documents:
        document.read()
    for layer in sources.layers:
        with layer.open() as file:
            file.read(100)
    return blobs.names()


@target(mutate_tar, share=0.3)
def saved_archive(folder: Path) -> Ready:
    """A saved archive as `builder scan` takes it, from anybody."""
    path = folder / "saved.tar"
    seed = _saved(folder / "world")

    def look(raw: bytes) -> object:
        path.write_bytes(raw)
        return _read_saved(path)

    return Ready((seed,), look)


@target(mutate_json, share=0.3)
def saved_manifest(folder: Path) -> Ready:
    """The manifest.json in such an archive."""
    path, seed = folder / "saved.tar", _saved(folder / "world")
    with tarfile.open(fileobj=io.BytesIO(seed)) as archive:
        files = {member.name: archive.extractfile(member).read() for member in archive}  # type: ignore[union-attr]

    def look(raw: bytes) -> object:
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
            for name, content in {**files, "manifest.json": raw}.items():
                if name in ("index.json", "oci-layout"):
                    continue
                member = tarfile.TarInfo(name)
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
        path.write_bytes(out.getvalue())
        return _read_saved(path)

    return Ready((files["manifest.json"],), look)
