"""Layers that are not scanned again: the same report to the byte, and nothing but our own word is taken."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from images.credentials import Secret
from images.digests import Digest
from images.errors import CredentialFound
from images.oci import OciImage
from provenance.scan import memory as module
from provenance.scan.allow import PackageTree, parse_allow_list
from provenance.scan.engine import Engine
from provenance.scan.layer_report import from_lines, to_lines
from provenance.scan.memory import LayerMemory, Seal, entries, entry_path
from provenance.scan.passes import scan_and_tell
from provenance.scan.report import ScanReport, Verdict
from provenance.scan.report_json import report_to_json
from provenance.scan.request import read_request
from provenance.scan.run import ChildResult, scan_image
from provenance.scan.sources import image_sources
from tests.attacks import Position, attack
from tests.fakes.credentials import KEY, Entry, make_layout, make_tar, token

PUBLISHED, VENDORED = token(1), token(2)
ALLOW = parse_allow_list(
    json.dumps(
        {
            "schema": 1,
            "values": [
                {
                    "id": "published",
                    "rule": "anthropic-oauth",
                    "sha256": hashlib.sha256(PUBLISHED).hexdigest(),
                    "why": "a test",
                }
            ],
            "places": [
                {
                    "id": "vendored",
                    "rule": "anthropic-oauth",
                    "package": "x",
                    "version": "1",
                    "path": "fixture",
                    "why": "a test",
                }
            ],
        }
    ).encode()
)
CLEAN = make_tar([Entry("a", b"x" * 900), Entry("b.gz", gzip.compress(b"inside", mtime=0))])
OPAQUE = make_tar([Entry("c.gz", gzip.compress(b"y" * 999, mtime=0)[:-3]), Entry("d", b"z")])
CLEARED = make_tar([Entry("e", PUBLISHED)])
BY_PLACE = make_tar([Entry("opt/x/fixture", VENDORED)])
LINK = make_tar([Entry("root/.netrc", kind=tarfile.SYMTYPE, link="/a")])
LEAK = make_tar([Entry("f", token(3))])
KINDS = (CLEAN, OPAQUE, CLEARED, BY_PLACE, LINK, LEAK)


class Child:
    """The scanning child within this process; ``asked``: the layers that each request had as settled."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.asked: list[set[str]] = []
        self.change: Callable[[bytes], bytes] = lambda told: told

    def __call__(self, _argv: tuple[str, ...], stdin: bytes) -> ChildResult:
        request = read_request(stdin)
        self.asked.append({one.subject for one in request.settled})
        assert request.digest is not None
        sources = image_sources(request.path, request.digest)
        scanned = scan_and_tell(sources, request, ALLOW, self._engine)
        told = self.change(to_lines(scanned.layers)) if request.tell_layers else b""
        return ChildResult(exit_code=0, stdout=report_to_json(scanned.report) + told)


def memory_in(folder: Path) -> LayerMemory:
    return LayerMemory(folder, folder / "key")


@pytest.fixture(autouse=True)
def own_list(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("run", "request", "memory"):
        monkeypatch.setattr(f"provenance.scan.{name}.shipped_allow_list", lambda: ALLOW)


@pytest.fixture
def child(engine: Engine) -> Child:
    return Child(engine)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "scans"
    path.mkdir(mode=0o700)
    return path


@pytest.fixture
def image(tmp_path: Path) -> OciImage:
    return make_layout(tmp_path, [CLEAN, OPAQUE])


def scan(
    image: OciImage, child: Child, folder: Path | None, *, key: Secret = KEY, known: tuple[Secret, ...] = ()
) -> ScanReport:
    return scan_image(
        image,
        key=key,
        run_child=child,
        packages=(PackageTree("opt/x", "x", "1"),),
        known=known,
        memory=memory_in(folder) if folder else None,
    )


def layers(image: OciImage) -> list[Digest]:
    return [layer.digest for layer in image.manifest.layers]


@given(st.lists(st.sampled_from(KINDS), min_size=1, max_size=4), st.lists(st.sampled_from(KINDS), max_size=3))
@settings(max_examples=12, deadline=None)
def test_a_report_with_what_was_remembered_is_the_same_to_the_byte(
    engine: Engine, tmp_path_factory: pytest.TempPathFactory, first: list[bytes], second: list[bytes]
) -> None:
    child, folder = Child(engine), tmp_path_factory.mktemp("scans")
    folder.chmod(0o700)
    for number, tars in enumerate((first, first, [*first, *second], first)):
        image = make_layout(tmp_path_factory.mktemp("image"), tars)
        key = Secret(bytes([number]) * 32)
        without = report_to_json(scan(image, child, None, key=key))
        assert report_to_json(scan(image, child, folder, key=key)) == without


def test_the_second_scan_reads_no_known_layer_again(image: OciImage, child: Child, folder: Path) -> None:
    remembered = memory_in(folder)
    report = scan(image, child, folder)
    assert (report.verdict, report.opened, report.opaque_count) == (Verdict.CLEAN, 1, 1)
    scan_image(image, key=KEY, run_child=child, memory=remembered)
    assert child.asked == [set(), set(layers(image))]
    assert remembered.recalled == 2
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in folder.iterdir())


@pytest.mark.parametrize(
    ("tars", "kept"),
    [
        ((CLEAN, CLEARED), (CLEAN, CLEARED)),
        ((CLEAN, BY_PLACE), (CLEAN,)),  # another lock may have another package there
        ((CLEAN, LINK), ()),  # what is found depends on two layers
        ((CLEAN, LEAK), ()),
    ],
)
def test_what_does_not_depend_on_a_clean_layers_bytes_alone_is_not_kept(
    tmp_path: Path, child: Child, folder: Path, tars: tuple[bytes, ...], kept: tuple[bytes, ...]
) -> None:
    scan(make_layout(tmp_path, tars), child, folder)
    assert set(entries(folder)) == {entry_path(folder, Digest.of(tar)) for tar in kept}


def test_no_value_is_kept(tmp_path: Path, child: Child, folder: Path) -> None:
    report = scan(make_layout(tmp_path, [CLEARED]), child, folder)
    (entry,) = entries(folder)
    assert PUBLISHED not in entry.read_bytes()
    assert report.cleared[0].finding.hash.encode() not in entry.read_bytes()


@attack(by=Position.LAYOUT_WRITER)
def test_bytes_that_changed_since_are_never_clean(image: OciImage, child: Child, folder: Path) -> None:
    """The layer's bytes are other ones now, of the same size or longer: its good name does not help."""
    scan(image, child, folder)
    path = image.layout / "blobs/sha256" / layers(image)[0].hex
    path.chmod(0o600)
    whole = path.read_bytes()
    for other in (whole.replace(b"x" * len(token()), token(), 1), whole + b"\0" * 512, whole[:-512]):
        path.write_bytes(other)
        report = scan(image, child, folder)
        assert child.asked[-1] == set(layers(image))
        assert report.verdict is Verdict.INCOMPLETE
    path.write_bytes(whole)
    assert scan(image, child, folder).verdict is Verdict.CLEAN


def _other_key(path: Path, _other: Path) -> None:
    (path.parent / "key").write_bytes(b"k" * 32)


def _no_key(path: Path, _other: Path) -> None:
    (path.parent / "key").unlink()


def _short_key(path: Path, _other: Path) -> None:
    (path.parent / "key").write_bytes(b"k" * 31)


def _open_key(path: Path, _other: Path) -> None:
    (path.parent / "key").chmod(0o640)


def _cut(path: Path, _other: Path) -> None:
    path.write_bytes(path.read_bytes()[:-2])


def _longer(path: Path, _other: Path) -> None:
    path.write_bytes(path.read_bytes() * 2)


def _code_alone(path: Path, _other: Path) -> None:
    path.write_bytes(b"0" * 64 + path.read_bytes()[64:])


def _empty(path: Path, _other: Path) -> None:
    path.write_bytes(b"")


def _huge(path: Path, _other: Path) -> None:
    path.write_bytes(path.read_bytes() + b" " * module.MAX_ENTRY)


def _of_another_layer(path: Path, other: Path) -> None:
    path.write_bytes(other.read_bytes())


def _open_to_others(path: Path, _other: Path) -> None:
    path.chmod(0o620)


def _link(path: Path, _other: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def _second_name(path: Path, _other: Path) -> None:
    os.link(path, path.with_name("second"))


def _pipe(path: Path, _other: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


@attack(by=Position.LAYOUT_WRITER)
@pytest.mark.parametrize(
    "damage",
    [
        *(_other_key, _no_key, _short_key, _open_key, _cut, _longer, _code_alone, _empty, _huge),
        *(_of_another_layer, _open_to_others, _link, _second_name, _pipe),
    ],
)
def test_an_entry_that_is_not_as_we_wrote_it_is_a_scan(
    image: OciImage, child: Child, folder: Path, damage: Callable[[Path, Path], None]
) -> None:
    """Forged, moved, cut, linked or open to others: it counts for nothing, and the layer is scanned."""
    first = scan(image, child, folder)
    mine, other = (entry_path(folder, layer) for layer in layers(image))
    damage(mine, other)
    assert scan(image, child, folder) == first
    assert layers(image)[0] not in child.asked[-1]


def test_no_bit_of_an_entry_is_free(image: OciImage, child: Child, folder: Path) -> None:
    scan(image, child, folder)
    layer, diff_id = image.manifest.layers[0], image.settings.diff_ids[0]
    whole = entry_path(folder, layer.digest).read_bytes()
    seal = Seal(Secret((folder / "key").read_bytes()))
    assert [one.subject for one in seal.open(whole, layer, diff_id)] == [layer.digest]
    for at in range(len(whole)):
        bent = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
        assert seal.open(bent, layer, diff_id) == (), at


def test_an_entry_of_another_user_is_a_scan(
    image: OciImage, child: Child, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scan(image, child, folder)
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    assert memory_in(folder).recall(image) == ()


def test_other_tables_engine_program_diff_id_or_type_are_a_scan(
    image: OciImage, child: Child, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scan(image, child, folder)
    assert len(memory_in(folder).recall(image)) == 2
    for name, value in (
        ("ruleset_digest", lambda _: Digest.of(b"other")),
        ("engine_identity", lambda: "pyperscan 0"),
        ("program_digest", lambda: Digest.of(b"other")),
    ):
        with monkeypatch.context() as changed:
            changed.setattr(module, name, value)
            assert memory_in(folder).recall(image) == ()
    others = (Digest.of(b"1"), Digest.of(b"2"))
    assert memory_in(folder).recall(replace(image, settings=replace(image.settings, diff_ids=others))) == ()
    zstd = tuple(replace(one, media_type="application/x") for one in image.manifest.layers)
    assert memory_in(folder).recall(replace(image, manifest=replace(image.manifest, layers=zstd))) == ()


def test_the_program_is_every_source_that_reads_layers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before = module.program_digest()
    assert before == module.program_digest()
    (tmp_path / "new.py").write_text("x = 1\n")
    monkeypatch.setattr(module.provenance, "__path__", [str(tmp_path)])
    assert module.program_digest() != before


@attack(by=Position.LAYOUT_WRITER)
def test_given_values_are_searched_in_every_layer(image: OciImage, child: Child, folder: Path) -> None:
    """A layer that was clean before a value was given is not clean of that value."""
    scan(image, child, folder)
    kept = {path: path.read_bytes() for path in folder.iterdir()}
    secret = (Secret(b"x" * 20),)
    scan(image, child, folder, known=secret)
    assert child.asked[-1] == set()
    assert {path: path.read_bytes() for path in folder.iterdir()} == kept


@attack(by=Position.STRANGER)
def test_a_scanner_that_was_taken_over_speaks_of_no_other_layer(
    tmp_path: Path, image: OciImage, child: Child, folder: Path
) -> None:
    """It says that layers are clean which it was not given to scan: nothing of that is remembered."""
    told: list[bytes] = []
    child.change = lambda lines: (told.append(lines), lines)[1]
    scan(make_layout(tmp_path / "other", [CLEARED]), child, folder)
    for path in entries(folder):
        path.unlink()
    child.change = lambda lines: (told.append(lines), lines + told[0])[1]
    scan(image, child, folder)
    kept = {path: path.read_bytes() for path in entries(folder)}
    assert kept.keys() == {entry_path(folder, layer) for layer in layers(image)}
    # Of those that were only hashed this time it has nothing new to say.
    child.change = lambda _: told[1].replace(b'"openedCount":1', b'"openedCount":7')
    scan(image, child, folder)
    assert {path: path.read_bytes() for path in entries(folder)} == kept


def test_layers_told_wrongly_make_the_scan_incomplete(image: OciImage, child: Child, folder: Path) -> None:
    def blind(lines: bytes) -> bytes:
        return lines.replace(b'"opaqueCount":1', b'"opaqueCount":2')

    for change in (blind, lambda lines: lines[:-9], lambda _: b"{}\n", lambda lines: lines + b"x"):
        child.change = change
        assert scan(image, child, folder).verdict is Verdict.INCOMPLETE
        assert entries(folder) == ()


def test_a_layers_own_report_is_told_from_any_other(image: OciImage, child: Child, folder: Path) -> None:
    scan(image, child, folder)
    one = memory_in(folder).recall(image)[1]
    (member,) = one.opaque
    (blob,) = one.coverage
    for bent in (
        replace(one, opaque=(replace(member, by="the base"),)),
        replace(one, opaque=(replace(member, layer=str(Digest.of(b"o"))),)),
        replace(one, opaque=()),
        replace(one, coverage=(blob, replace(blob, digest="x"))),
        replace(one, coverage=(replace(blob, scanned=blob.total - 1),)),
        replace(one, coverage=(replace(blob, kind="document"),)),
        replace(one, incomplete=("a part",)),
        replace(one, ruleset=1),
        replace(one, engine="another"),
        replace(one, subject=image.digest),
    ):
        with pytest.raises(CredentialFound, match="report"):
            from_lines(to_lines((bent,)), ALLOW)
    assert from_lines(to_lines((one,)), ALLOW) == (one,)


def test_the_oldest_go_when_there_are_too_many(
    image: OciImage, child: Child, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_ENTRIES", 3)
    old = [entry_path(folder, Digest.of(bytes([number]))) for number in range(3)]
    for number, path in enumerate(old):
        path.touch()
        os.utime(path, (number, number))
    scan(image, child, folder)
    assert set(entries(folder)) == {old[2], *(entry_path(folder, layer) for layer in layers(image))}


def test_a_folder_that_is_gone_or_full_is_a_scan(image: OciImage, child: Child, folder: Path) -> None:
    folder.rmdir()
    assert scan(image, child, folder).verdict is Verdict.CLEAN
    assert not folder.exists()


def test_the_hash_of_a_place_is_no_value() -> None:
    assert ALLOW.value_hash("published") == hashlib.sha256(PUBLISHED).hexdigest()
    assert ALLOW.value_hash("vendored") is None
