"""One archive from one state to another: whole, the same bytes each time, and nothing else is taken."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import tarfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from builder.settings.settings_file import GivenImage, Settings
from builder.storage.archive_format import (
    BLOCK,
    END,
    ExportManifest,
    LockedFile,
    Part,
    PartManifest,
    blob_name,
    header,
    parse_export,
)
from builder.storage.exporting import export
from builder.storage.importing import import_archive
from builder.workshop import Workshop
from images.digests import Digest, Integrity
from images.errors import BuilderError, ExitCode, PinError, StateError, UsageError, VerifyFailed
from images.lock import ArtifactKind, Authentication
from images.lock_additions import ArchiveLock
from images.oci import MEDIA_INDEX, MEDIA_MANIFEST
from provenance.layout import list_images, open_image, read_blob
from provenance.layout_writing import add_manifest
from provenance.ledger import open_ledger
from provenance.referrers import add_lock, add_referrer, read_referrers
from provenance.verify import VerifyRequest, verify
from tests.attacks import Position, attack
from tests.fakes.layouts import flip, make_image
from tests.fakes.proved import NOW
from tests.fakes.states import Team, another_image, digests_of, files_of, make_team, said, workshop_at


@dataclass
class Handed:
    """What was exported, and the archive taken apart."""

    team: Team
    path: Path
    manifest: ExportManifest
    blobs: dict[Digest, bytes] = field(repr=False)

    def write(self, path: Path, manifest: ExportManifest | None = None, **blobs: bytes) -> Path:
        """An archive of this form with other content; what the manifest names twice stays twice."""
        manifest = manifest or self.manifest
        out = bytearray()
        for name, data in manifest.small_members():
            out += header(name, len(data)) + data + bytes(-len(data) % BLOCK)
        more = {Digest.of(data): data for data in blobs.values()}
        for digest, size in manifest.blobs:
            out += header(blob_name(digest), size) + (self.blobs | more)[digest] + bytes(-size % BLOCK)
        path.write_bytes(out + END)
        return path

    def changed(
        self, *, more: tuple[bytes, ...] = (), without: frozenset[Digest] = frozenset(), **fields: Any
    ) -> ExportManifest:
        """The manifest with other fields, and with blobs added or left out."""
        sizes = {digest: size for digest, size in self.manifest.blobs if digest not in without}
        sizes |= {Digest.of(data): len(data) for data in more}
        return replace(self.manifest, blobs=tuple(sorted(sizes.items())), **fields)


def hand(team: Team, path: Path) -> Handed:
    done = export(team.workshop, path, lock_path=team.lock_path, image=None)
    blobs = {}
    with tarfile.open(path) as tar:
        for member in tar:
            if member.name.startswith("blobs/"):
                stream = tar.extractfile(member)
                assert stream is not None
                data = stream.read()
                blobs[Digest.of(data)] = data
    return Handed(team, path, done.manifest, blobs)


@pytest.fixture(scope="module")
def handed(tmp_path_factory: pytest.TempPathFactory) -> Handed:
    root = tmp_path_factory.mktemp("team")
    return hand(make_team(root), root / "team.tar")


@pytest.fixture(scope="module")
def archive(handed: Handed) -> Path:
    return handed.path


@pytest.fixture
def mate(tmp_path: Path) -> Workshop:
    return workshop_at(tmp_path / "mate")


def untouched(workshop: Workshop) -> bool:
    state = workshop.state
    return (
        not list_images(state.layout)
        and not digests_of(state)
        and not list(state.staged.iterdir())
        and not [path for path in state.store.rglob("*") if path.is_file()]
        and not list(state.references.iterdir())
    )


def test_everything_arrives_and_verifies_with_the_public_key_alone(handed: Handed, mate: Workshop) -> None:
    done = import_archive(mate, handed.path)
    team, state = handed.team, mate.state
    assert done.image == team.image.digest
    assert done.lock == Digest.of(team.raw_lock)
    assert done.new_artifacts == done.artifacts == len({one.integrity for one in team.lock.artifacts})
    assert all(mate.store.intact(one.integrity) for one in team.lock.artifacts)
    image = open_image(state.layout, team.image.digest)
    for digest in (team.base.digest, team.lock.tools.build_container, team.lock.tools.resolver):
        open_image(state.layout, digest)
    before = read_referrers(team.state.layout, image.digest)
    after = read_referrers(state.layout, image.digest)
    assert {one.data for one in after.bundles} == {one.data for one in before.bundles}
    assert after.locks[0].data == team.raw_lock
    world = team.world
    report = verify(
        VerifyRequest(
            layout=state.layout,
            digest=image.digest,
            platform=image.platform,
            policy=world.policy,
            expectation=replace(world.expectation, lock=team.raw_lock),
            now=NOW,
        )
    )
    assert report.ok, [str(check) for check in report.checks]
    with open_ledger(state.ledger) as ledger:
        (entry,) = ledger.entries()
        assert entry.digest == image.digest
        assert set(ledger.stamps()) == {layer.digest for layer in image.manifest.layers}
    assert not list(state.staged.iterdir())
    assert state.id != team.state.id


def test_the_tools_to_build_with_are_named_and_not_installed(handed: Handed, mate: Workshop) -> None:
    tools = handed.team.lock.tools
    done = import_archive(mate, handed.path)
    assert done.settings == (
        f'base = "{handed.team.base.digest}"  # settings.toml',
        f'build_container = "{tools.build_container}"  # settings.toml',
        f'resolver = "{tools.resolver}"  # settings.toml',
    )
    for made in ("settings.toml", "policy.toml", "marks.json", "keys"):
        assert not list(mate.state.root.rglob(made))
    base = GivenImage(handed.team.base.digest)
    given = Settings(
        base=base,
        build_container=GivenImage(tools.build_container),
        resolver=GivenImage(tools.resolver),
    )
    assert import_archive(replace(mate, settings=given), handed.path).settings == ()


def test_the_same_archive_twice_changes_nothing(handed: Handed, mate: Workshop) -> None:
    assert import_archive(mate, handed.path).changed
    before = files_of(mate.state)
    inodes = {path: path.stat().st_ino for path in mate.state.root.rglob("*") if path.is_file()}
    again = import_archive(mate, handed.path)
    assert not again.changed
    assert files_of(mate.state) == before
    for path, inode in inodes.items():
        if "sqlite" not in path.name:
            assert path.stat().st_ino == inode, path


def test_what_was_damaged_is_healed(handed: Handed, mate: Workshop) -> None:
    import_archive(mate, handed.path)
    before = files_of(mate.state)
    layer = handed.team.image.manifest.layers[-1].digest
    flip(mate.state.layout / blob_name(layer))
    flip(mate.store.path_of(handed.team.lock.artifacts[0].integrity))
    assert import_archive(mate, handed.path).changed
    assert files_of(mate.state) == before


def test_the_archive_is_the_same_bytes_each_time_and_a_plain_oci_layout(
    handed: Handed, tmp_path: Path
) -> None:
    again = export(handed.team.workshop, tmp_path / "b.tar", lock_path=None, image=handed.team.image.digest)
    assert (tmp_path / "b.tar").read_bytes() == handed.path.read_bytes()
    assert again.digest == Digest.of(handed.path.read_bytes())
    subprocess.run(["tar", "-xf", handed.path, "-C", tmp_path], check=True)
    found = {one.digest for one in list_images(tmp_path)}
    assert handed.team.image.digest in found
    assert open_image(tmp_path, handed.team.image.digest).digest == handed.team.image.digest
    with tarfile.open(handed.path) as tar:
        for member in tar:
            assert (member.mtime, member.uid, member.gid, member.mode) == (0, 0, 0, 0o644)
            assert member.isreg()


def test_a_lock_that_nobody_built_yet_travels_too(tmp_path: Path, mate: Workshop) -> None:
    team = make_team(tmp_path, proved=False)
    done = export(team.workshop, tmp_path / "a.tar", lock_path=team.lock_path, image=None)
    assert done.manifest.image is None
    assert "no image of this lock was built here" in said(team.workshop)
    imported = import_archive(mate, tmp_path / "a.tar")
    assert imported.image is None
    assert all(mate.store.intact(one.integrity) for one in team.lock.artifacts)
    (reference,) = mate.state.references.iterdir()
    assert reference.read_bytes() == team.raw_lock


def test_the_same_bytes_under_two_integrities_arrive_as_both(tmp_path: Path, mate: Workshop) -> None:
    """An operator's archive may be a package's own tarball: one blob, and two files of the store."""
    team = make_team(tmp_path / "one", proved=False)
    package = next(one for one in team.lock.artifacts if one.integrity.algorithm == "sha512")
    with team.workshop.store.open(package.integrity, package.label) as file:
        integrity, size = team.workshop.store.add(file, what="kit", limit=1 << 20)
    kit = replace(
        package,
        kind=ArtifactKind.ARCHIVE,
        name="kit",
        version="",
        integrity=integrity,
        size=size,
        parents=("archives.kit",),
        bins=(),
        scripts=(),
        registry="local",
        authenticated=Authentication.LOCAL,
    )
    artifacts = tuple(sorted((*team.lock.artifacts, kit), key=lambda one: one.id))
    team.lock = replace(team.lock, artifacts=artifacts, archives=(ArchiveLock("kit"),))
    handed = hand(team, tmp_path / "team.tar")
    assert len({one.digest for one in handed.manifest.artifacts}) == len(artifacts) - 1
    assert import_archive(mate, handed.path).new_artifacts == len(artifacts)
    assert all(mate.store.intact(one.integrity) for one in artifacts)


def test_an_index_travels_with_its_image(tmp_path: Path, mate: Workshop) -> None:
    team = make_team(tmp_path)
    layout = team.state.layout
    below = read_blob(layout, team.lock.tools.build_container)
    entry = {
        "mediaType": MEDIA_MANIFEST,
        "digest": str(Digest.of(below)),
        "size": len(below),
        "platform": {"os": "linux", "architecture": "amd64"},
    }
    raw = json.dumps({"schemaVersion": 2, "mediaType": MEDIA_INDEX, "manifests": [entry]}).encode()
    index = add_manifest(layout, raw, media_type=MEDIA_INDEX).digest
    given = replace(team.workshop.settings, build_container=GivenImage(index))
    export(replace(team.workshop, settings=given), tmp_path / "a.tar", lock_path=team.lock_path, image=None)
    import_archive(mate, tmp_path / "a.tar")
    assert open_image(mate.state.layout, index, mate.platform).digest == Digest.of(below)


def artifact(team: Team) -> Path:
    return team.workshop.store.path_of(team.lock.artifacts[0].integrity)


def blob(team: Team, digest: Digest) -> Path:
    return team.state.layout / blob_name(digest)


BREAKS: tuple[tuple[Callable[[Team], object], type[BuilderError], str], ...] = (
    (lambda team: artifact(team).unlink(), StateError, "not in the store"),
    (lambda team: flip(artifact(team)), StateError, "damaged in the store"),
    (lambda team: flip(blob(team, team.base.manifest.layers[0].digest)), VerifyFailed, "not those of its"),
    (lambda team: flip(blob(team, team.image.manifest.layers[1].digest)), VerifyFailed, "not those of its"),
    (lambda team: blob(team, team.lock.tools.resolver).unlink(), StateError, "resolver is not whole"),
)


@pytest.mark.parametrize(("break_it", "kind", "words"), BREAKS)
def test_what_is_missing_or_damaged_is_not_exported(
    tmp_path: Path, break_it: Callable[[Team], object], kind: type[BuilderError], words: str
) -> None:
    team = make_team(tmp_path)
    path = team.lock_path
    (tmp_path / "out").mkdir()
    break_it(team)
    with pytest.raises(kind, match=words):
        export(team.workshop, tmp_path / "out" / "a.tar", lock_path=path, image=None)
    assert not list((tmp_path / "out").iterdir())


@attack(by=Position.LAYOUT_WRITER)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(at=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7), early=st.booleans())
def test_no_bit_of_it_is_free(archive: Path, tmp_path: Path, at: float, bit: int, early: bool) -> None:
    """Names, order, headers, padding, content: whatever is changed is refused, and nothing lands."""
    data = bytearray(archive.read_bytes())
    # Most bytes are content: half of the tries go to the front, where manifest and headers are.
    data[int(at * (min(len(data), 8192) if early else len(data)))] ^= 1 << bit
    (tmp_path / "bad.tar").write_bytes(data)
    mate = workshop_at(tmp_path / "state")
    with pytest.raises(BuilderError) as refused:
        import_archive(mate, tmp_path / "bad.tar")
    assert refused.value.code in (ExitCode.USAGE, ExitCode.PIN, ExitCode.VERIFY)
    assert refused.value.hint
    assert untouched(mate)


def test_one_bit_of_each_blob(handed: Handed, tmp_path: Path, mate: Workshop) -> None:
    for digest, size in handed.manifest.blobs:
        data = handed.path.read_bytes()
        at = data.index(header(blob_name(digest), size)) + BLOCK + size - 1
        (tmp_path / "bad.tar").write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with pytest.raises(PinError, match="does not hash to") as refused:
            import_archive(mate, tmp_path / "bad.tar")
        assert refused.value.reason == "integrity"
    assert untouched(mate)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=30)
@given(at=st.floats(0, 1, exclude_max=True))
def test_cut_short_anywhere(archive: Path, tmp_path: Path, at: float) -> None:
    data = archive.read_bytes()
    (tmp_path / "short.tar").write_bytes(data[: int(at * len(data))])
    mate = workshop_at(tmp_path / "state")
    with pytest.raises(UsageError, match=r"cut short|not an archive"):
        import_archive(mate, tmp_path / "short.tar")
    assert untouched(mate)


def test_longer_than_it_says(handed: Handed, tmp_path: Path, mate: Workshop) -> None:
    (tmp_path / "long.tar").write_bytes(handed.path.read_bytes() + b"\0")
    with pytest.raises(UsageError, match="1 bytes behind its end"):
        import_archive(mate, tmp_path / "long.tar")
    assert untouched(mate)


def test_not_a_file(tmp_path: Path, mate: Workshop) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", ".", "none"):
        with pytest.raises(UsageError):
            import_archive(mate, tmp_path / name)


Crafted = tuple[ExportManifest, tuple[bytes, ...], str]
STRAY = b"stray"


def other_blobs(handed: Handed) -> dict[str, Crafted]:
    """Archives whose every hash is right, with other artifacts or blobs than a team hands over."""
    one, found = handed.manifest, {}
    gone = one.artifacts[0]
    without = frozenset({gone.digest})
    found["a blob too many"] = (handed.changed(more=(STRAY,)), (STRAY,), "belong to nothing")
    stray = LockedFile(Integrity("sha256", Digest.of(STRAY).hex), Digest.of(STRAY))
    more = handed.changed(more=(STRAY,), artifacts=tuple(sorted((*one.artifacts, stray))))
    found["an artifact too many"] = (more, (STRAY,), "not those of its lock")
    less = handed.changed(without=without, artifacts=one.artifacts[1:])
    found["an artifact missing"] = (less, (), "not those of its lock")
    swapped = (replace(gone, digest=one.artifacts[1].digest), *one.artifacts[1:])
    found["bytes of another artifact"] = (
        handed.changed(without=without, artifacts=swapped),
        (),
        "does not hash to",
    )
    platform = replace(one.platform, architecture="arm64")
    found["another platform"] = (handed.changed(platform=platform), (), "does not declare")
    found["another lock"] = (handed.changed(lock=gone.digest), (), r"builder.lock|more than|JSON")
    return found


def other_parts(handed: Handed) -> dict[str, Crafted]:
    """Archives whose manifests play other parts than they can."""
    one = handed.manifest
    evidence = next(item for item in one.manifests if item.part is Part.REFERRER)
    resolver = one.of(Part.RESOLVER)[0]

    def parts(**changes: Part) -> ExportManifest:
        """``e``: what the first piece of evidence is called; ``r``: the resolver."""
        named = {evidence.digest: changes.get("e"), resolver.digest: changes.get("r")}
        return handed.changed(
            manifests=tuple(replace(item, part=named.get(item.digest) or item.part) for item in one.manifests)
        )

    typed = (replace(item, media_type=MEDIA_INDEX) if item is resolver else item for item in one.manifests)
    return {
        "no resolver": (parts(r=Part.BASE), (), "one build container and one resolver"),
        "two images": (parts(e=Part.IMAGE), (), "more than one image"),
        "evidence as a base": (parts(e=Part.BASE), (), "not one of its lock"),
        "evidence as a resolver": (parts(e=Part.RESOLVER, r=Part.REFERRER), (), r"not an image|no evidence"),
        "a manifest called an index": (handed.changed(manifests=tuple(typed)), (), "is not of type"),
    }


CRAFTED = (
    *("a blob too many", "an artifact too many", "an artifact missing", "bytes of another artifact"),
    *("another platform", "another lock", "no resolver", "two images", "evidence as a base"),
    *("evidence as a resolver", "a manifest called an index"),
)


def test_the_list_of_crafted_ones_is_whole(handed: Handed) -> None:
    assert {*other_blobs(handed), *other_parts(handed)} == set(CRAFTED)


@pytest.mark.parametrize("name", CRAFTED)
def test_crafted(handed: Handed, tmp_path: Path, mate: Workshop, name: str) -> None:
    manifest, blobs, words = {**other_blobs(handed), **other_parts(handed)}[name]
    path = handed.write(tmp_path / "bad.tar", manifest, **{str(n): data for n, data in enumerate(blobs)})
    with pytest.raises(BuilderError, match=words):
        import_archive(mate, path)
    assert untouched(mate)


def test_the_form_is_the_programs_own(handed: Handed, tmp_path: Path, mate: Workshop) -> None:
    """The helper of these tests writes what the program writes."""
    assert handed.write(tmp_path / "same.tar").read_bytes() == handed.path.read_bytes()
    raw = handed.manifest.raw()
    assert parse_export(raw, "x") == handed.manifest
    for wrong in (raw[:-1], raw.replace(b"{", b"{ ", 1), raw + b"\n"):
        with pytest.raises(UsageError):
            parse_export(wrong, "x")


def test_evidence_of_another_image_or_another_lock_is_refused(tmp_path: Path, mate: Workshop) -> None:
    """By somebody who can write a whole archive: every digest in it is right."""
    team = make_team(tmp_path)
    handed = hand(team, tmp_path / "a.tar")
    other = another_image(team, "other")
    add_lock(other, team.raw_lock)
    attached = read_referrers(team.state.layout, other.digest).locks[0]
    raw = read_blob(team.state.layout, attached.manifest)
    manifests = (*handed.manifest.manifests, PartManifest(Part.REFERRER, attached.manifest, MEDIA_MANIFEST))
    path = handed.write(tmp_path / "b.tar", handed.changed(more=(raw,), manifests=manifests), raw=raw)
    with pytest.raises(UsageError, match="no evidence of its image"):
        import_archive(mate, path)
    without = tuple(
        one for one in handed.manifest.manifests
        if one.part is not Part.REFERRER or b"lock.v1" not in handed.blobs[one.digest]
    )  # fmt: skip
    gone = frozenset(one.digest for one in handed.manifest.manifests) - {one.digest for one in without}
    path = handed.write(tmp_path / "c.tar", handed.changed(without=gone, manifests=without))
    with pytest.raises(UsageError, match="attached to its image is another one"):
        import_archive(mate, path)
    assert untouched(mate)


def test_an_image_whose_layers_are_not_its_diff_ids_is_refused(tmp_path: Path, mate: Workshop) -> None:
    """The exporter looks at bytes only; what comes from elsewhere is opened to its last tar."""
    team = make_team(tmp_path)
    digest = make_image(team.state.layout, ({"a": b"a"},))
    image = open_image(team.state.layout, digest)
    settings = image.settings.raw.replace(image.settings.diff_ids[0].encode(), Digest.of(b"lie").encode())
    raw = image.manifest.raw.replace(image.settings.digest.encode(), Digest.of(settings).encode())
    (team.state.layout / blob_name(Digest.of(settings))).write_bytes(settings)
    lying = add_manifest(team.state.layout, raw).digest
    given = replace(team.workshop.settings, resolver=GivenImage(lying))
    export(replace(team.workshop, settings=given), tmp_path / "a.tar", lock_path=team.lock_path, image=None)
    with pytest.raises(VerifyFailed, match="not the one of its diff id"):
        import_archive(mate, tmp_path / "a.tar")
    assert untouched(mate)


def test_a_full_disk(handed: Handed, mate: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("builder.storage.archive_reading.os.fsync", full)
        with pytest.raises(StateError, match="No space left") as refused:
            import_archive(mate, handed.path)
    assert refused.value.code is ExitCode.STATE
    assert "df -h" in refused.value.hint
    assert untouched(mate)


def test_ended_while_it_lands_names_nothing_and_the_next_one_finishes(
    handed: Handed, mate: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def die(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr("builder.storage.landing.adopt_blob", die)
        with pytest.raises(Killed):
            import_archive(mate, handed.path)
    assert list_images(mate.state.layout) == ()
    assert all(mate.store.intact(integrity) for integrity, _ in mate.store.entries())
    done = import_archive(mate, handed.path)
    assert done.changed
    assert done.new_artifacts == 0
    assert open_image(mate.state.layout, handed.team.image.digest)


def test_an_image_is_entered_under_the_key_of_its_lock_alone(tmp_path: Path, mate: Workshop) -> None:
    """Provenance can claim any key: nobody's next build is to be led to it."""
    team = make_team(tmp_path, proved=False)
    team.image = another_image(team, "claims")
    other = replace(team.lock, user=replace(team.lock.user, uid=4000, gid=4000))
    world = team.world
    add_lock(team.image, team.raw_lock)
    for bundle in replace(world, lock=other).bundles().values():
        add_referrer(team.image, bundle)
    export(team.workshop, tmp_path / "a.tar", lock_path=None, image=team.image.digest)
    import_archive(mate, tmp_path / "a.tar")
    with open_ledger(mate.state.ledger) as ledger:
        assert ledger.entries() == ()


def test_what_was_built_here_keeps_its_place_in_the_ledger(handed: Handed, tmp_path: Path) -> None:
    mine = make_team(tmp_path / "mine")
    with open_ledger(mine.state.ledger) as ledger:
        before = ledger.entries()
    import_archive(mine.workshop, handed.path)
    with open_ledger(mine.state.ledger) as ledger:
        assert ledger.entries() == before


def test_kinds_of_artifacts_do_not_matter(handed: Handed) -> None:
    """A Skill's file is in it like any other, though no registry has it."""
    kinds = {one.kind for one in handed.team.lock.artifacts}
    assert ArtifactKind.SKILL in kinds or ArtifactKind.NPM in kinds
    assert len(handed.manifest.artifacts) == len({one.integrity for one in handed.team.lock.artifacts})
