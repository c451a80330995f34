"""What a hostile container may send: each kind is refused by its reason, and leaves nothing behind."""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backend.workspace.export_manifest import MAX_MANIFEST, read_manifest
from backend.workspace.git import Git
from backend.workspace.objects import ObjectFormat
from backend.workspace.refusals import CandidateReason, CandidateRefused
from backend.workspace.trees import TreeLimits
from images.errors import BuilderError, ExitCode
from tests.attacks import Position, attack
from tests.fakes.exports import Desk, Forged, desk
from tests.fakes.repositories import PERSON, Repo, entry_header, pack_of, raw_pack, tree_bytes

R = CandidateReason


@pytest.fixture
def at(git: Git, operator: Repo, tmp_path: Path) -> Desk:
    return desk(git, operator, tmp_path)


def name_of(kind: str, body: bytes) -> str:
    return hashlib.sha1(b"%s %d\0%s" % (kind.encode(), len(body), body), usedforsecurity=False).hexdigest()


def commit_bytes(tree: str, *parents: str, extra: bytes = b"") -> bytes:
    lines = [b"tree " + tree.encode(), *(b"parent " + parent.encode() for parent in parents)]
    return b"\n".join((*lines, b"author " + PERSON, b"committer " + PERSON, b"", b"m\n")) + extra


def forged(at: Desk, tree: bytes, *others: tuple[str, bytes], hidden: tuple[int, ...] = ()) -> Forged:
    """A commit of this tree on the base, packed with ``others`` by somebody who checks nothing."""
    tip = commit_bytes(name_of("tree", tree), at.base)
    objects = [("commit", tip), ("tree", tree), *others]
    kept = [item for number, item in enumerate(objects) if number not in hidden]
    return Forged(name_of("commit", tip), pack_of(*kept), parents=(at.base,))


BLOB = ("blob", b"content\n")
B = name_of(*BLOB)


def named(name: bytes, mode: str = "100644") -> Callable[[Desk], Forged]:
    return lambda at: forged(at, tree_bytes((mode, name, B)), BLOB)


def entries(*items: tuple[str, bytes]) -> Callable[[Desk], Forged]:
    return lambda at: forged(at, tree_bytes(*((mode, name, B) for mode, name in items)), BLOB)


def modules_file(text: str) -> Callable[[Desk], Forged]:
    def make(at: Desk) -> Forged:
        blob = ("blob", text.encode())
        tree = tree_bytes(("100644", b".gitmodules", name_of(*blob)), ("160000", b"sub", "1" * 40))
        return forged(at, tree, blob)

    return make


def missing_blob(at: Desk) -> Forged:
    return forged(at, tree_bytes(("100644", b"a", B)))


def missing_tree(at: Desk) -> Forged:
    return forged(at, tree_bytes(("100644", b"a", B)), BLOB, hidden=(1,))


def tag_beside(at: Desk) -> Forged:
    tag = b"object " + at.base.encode() + b"\ntype commit\ntag x\ntagger " + PERSON + b"\n\nm\n"
    return forged(at, tree_bytes(("100644", b"a", B)), BLOB, ("tag", tag))


def unreachable_blob(at: Desk) -> Forged:
    return forged(at, tree_bytes(("100644", b"a", B)), BLOB, ("blob", b"smuggled"))


def unreachable_commit(at: Desk) -> Forged:
    tree = tree_bytes(("100644", b"a", B))
    return forged(at, tree, BLOB, ("commit", commit_bytes(name_of("tree", tree), extra=b"more")))


def twice_the_same(at: Desk) -> Forged:
    return forged(at, tree_bytes(("100644", b"a", B)), BLOB, BLOB)


def tip_of_kind(kind: str) -> Callable[[Desk], Forged]:
    def make(at: Desk) -> Forged:
        tree = tree_bytes(("100644", b"a", B))
        made = forged(at, tree, BLOB)
        made.commit = {"tree": name_of("tree", tree), "blob": B}[kind]
        return made

    return make


def tip_elsewhere(at: Desk) -> Forged:
    made = forged(at, tree_bytes(("100644", b"a", B)), BLOB)
    made.commit = "2" * 40
    return made


def parentless(at: Desk) -> Forged:
    tree = tree_bytes(("100644", b"a", B))
    tip = commit_bytes(name_of("tree", tree))
    return Forged(name_of("commit", tip), pack_of(("commit", tip), ("tree", tree), BLOB))


def other_parents(at: Desk) -> Forged:
    made = forged(at, tree_bytes(("100644", b"a", B)), BLOB)
    made.parents = (at.base, at.base)
    return made


def unknown_parent(at: Desk) -> Forged:
    tree = tree_bytes(("100644", b"a", B))
    tip = commit_bytes(name_of("tree", tree), at.base, "3" * 40)
    return Forged(
        name_of("commit", tip), pack_of(("commit", tip), ("tree", tree), BLOB), parents=(at.base, "3" * 40)
    )


def not_a_commit_at_all(at: Desk) -> Forged:
    body = b"tree \n"
    return Forged(name_of("commit", body), pack_of(("commit", body)), parents=())


def thin(at: Desk) -> Forged:
    """A delta against a blob that the pack does not hold, though our repository does."""
    base = at.workspace.raw("cat-file", "blob", "HEAD:readme")
    delta = bytes((len(base), len(base) + 1, 0x90, len(base), 1)) + b"x"
    blob = base + b"x"
    tree = tree_bytes(("100644", b"readme", name_of("blob", blob)))
    tip = commit_bytes(name_of("tree", tree), at.base)
    reference = bytes.fromhex(name_of("blob", base))
    pack = raw_pack(
        entry_header(1, len(tip)) + zlib.compress(tip),
        entry_header(2, len(tree)) + zlib.compress(tree),
        entry_header(7, len(delta)) + reference + zlib.compress(delta),
    )
    return Forged(name_of("commit", tip), pack, parents=(at.base,))


def truncated(at: Desk) -> Forged:
    made = forged(at, tree_bytes(("100644", b"a", B)), BLOB)
    made.pack = made.pack[:-30]
    return made


def longer(at: Desk) -> Forged:
    made = forged(at, tree_bytes(("100644", b"a", B)), BLOB)
    made.pack += b"more"
    return made


def flipped(at: Desk) -> Forged:
    made = forged(at, tree_bytes(("100644", b"a", B)), BLOB)
    made.pack = made.pack[:40] + bytes([made.pack[40] ^ 1]) + made.pack[41:]
    return made


def other_version(at: Desk) -> Forged:
    made = forged(at, tree_bytes(("100644", b"a", B)), BLOB)
    made.pack = made.pack[:7] + b"\3" + made.pack[8:]
    return made


def short_pack(at: Desk) -> Forged:
    made = forged(at, tree_bytes(("100644", b"a", B)), BLOB)
    made.pack = b"PACK\0\0\0\2"
    made.change = lambda manifest: manifest["pack"].update(objects=0)
    return made


def bomb(at: Desk) -> Forged:
    """A delta that copies one small piece again and again: a few kB that unfold to 1.6 GB."""
    base = bytes(0x10000)
    copies = 25_000
    size = len(base) * copies
    delta = varint(len(base)) + varint(size) + b"\x80" * copies  # 0x80: offset 0, size 0x10000
    blob_name = "4" * 40
    tree = tree_bytes(("100644", b"bomb", blob_name))
    tip = commit_bytes(name_of("tree", tree), at.base)
    reference = bytes.fromhex(name_of("blob", base))
    pack = raw_pack(
        entry_header(1, len(tip)) + zlib.compress(tip),
        entry_header(2, len(tree)) + zlib.compress(tree),
        entry_header(3, len(base)) + zlib.compress(base),
        entry_header(7, len(delta)) + reference + zlib.compress(delta),
    )
    assert len(pack) < 2000
    return Forged(name_of("commit", tip), pack, parents=(at.base,))


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*out, number))


def huge_blob(at: Desk) -> Forged:
    blob = ("blob", bytes(160 * 1024 * 1024))
    return forged(at, tree_bytes(("100644", b"a", name_of(*blob))), blob)


def unfolding(at: Desk) -> Forged:
    trees = [("tree", tree_bytes(("100644", b"a", B)))]
    for _ in range(12):
        below = name_of(*trees[-1])
        trees.append(("tree", tree_bytes(*(("40000", b"%d" % n, below) for n in range(10)))))
    return forged(at, trees[-1][1], *trees[:-1], BLOB)


def deep(levels: int) -> Callable[[Desk], Forged]:
    def make(at: Desk) -> Forged:
        trees = [("tree", tree_bytes(("100644", b"a", B)))]
        for _ in range(levels):
            trees.append(("tree", tree_bytes(("40000", b"d", name_of(*trees[-1])))))
        return forged(at, trees[-1][1], *trees[:-1], BLOB)

    return make


ATTACKS: dict[str, tuple[Callable[[Desk], Forged], set[CandidateReason]]] = {
    ".git": (named(b".git"), {R.PACK}),
    ".GIT as a directory": (named(b".GIT", "40000"), {R.PACK, R.PREREQUISITES}),
    "trailing space": (named(b".git "), {R.PACK}),
    "short name": (named(b"git~1"), {R.PACK}),
    "ignored code point": (named(".g\u200cit".encode()), {R.PACK}),
    "stream": (named(b".git::$INDEX_ALLOCATION"), {R.PACK, R.NAME}),
    "backslash": (named(b".git\\config"), {R.PACK, R.NAME}),
    "parent": (named(b".."), {R.PACK}),
    "here": (named(b"."), {R.PACK}),
    "slash": (named(b"a/b"), {R.PACK}),
    "empty name": (named(b""), {R.PACK}),
    "long name": (named(b"x" * 300), {R.NAME}),
    "twice": (entries(("100644", b"a"), ("100644", b"a")), {R.PACK}),
    "order": (entries(("100644", b"b"), ("100644", b"a")), {R.PACK}),
    "link and directory": (entries(("120000", b"a"), ("40000", b"a")), {R.PACK, R.PREREQUISITES}),
    "mode": (named(b"a", "100666"), {R.PACK}),
    "set uid": (named(b"a", "104755"), {R.PACK}),
    "zero padded": (named(b"a", "0100644"), {R.PACK}),
    "device": (named(b"a", "60000"), {R.PACK}),
    "submodules as a link": (named(b".gitmodules", "120000"), {R.PACK}),
    "attributes as a link": (named(b".gitattributes", "120000"), {R.PACK}),
    "ignore as a link": (named(b".gitignore", "120000"), {R.PACK}),
    "submodule option": (modules_file('[submodule "x"]\n\tpath = sub\n\turl = -u./run\n'), {R.PACK}),
    "submodule path": (modules_file('[submodule "x"]\n\tpath = -sub\n\turl = a\n'), {R.PACK}),
    "submodule name": (modules_file('[submodule "../../x"]\n\tpath = sub\n\turl = a\n'), {R.PACK}),
    "submodule update": (modules_file('[submodule "x"]\n\tpath = sub\n\tupdate = !run\n'), {R.PACK}),
    "submodule newline": (modules_file('[submodule "x"]\n\tpath = sub\n\turl = "http://a/%0ab"\n'), {R.PACK}),
    "missing blob": (missing_blob, {R.PREREQUISITES}),
    "missing tree": (missing_tree, {R.PREREQUISITES}),
    "unknown parent": (unknown_parent, {R.PREREQUISITES}),
    "thin": (thin, {R.PREREQUISITES}),
    "tag": (tag_beside, {R.OBJECT_KIND}),
    "unreachable blob": (unreachable_blob, {R.UNREACHABLE}),
    "unreachable commit": (unreachable_commit, {R.UNREACHABLE}),
    "an object twice": (twice_the_same, {R.PACK}),
    "tip is a tree": (tip_of_kind("tree"), {R.OBJECT_KIND}),
    "tip is a blob": (tip_of_kind("blob"), {R.OBJECT_KIND}),
    "tip elsewhere": (tip_elsewhere, {R.OBJECT_KIND}),
    "no parent": (parentless, {R.NOT_DESCENDED}),
    "other parents": (other_parents, {R.MANIFEST}),
    "no commit at all": (not_a_commit_at_all, {R.PACK, R.PREREQUISITES}),
    "truncated": (truncated, {R.PACK}),
    "longer": (longer, {R.PACK}),
    "flipped": (flipped, {R.PACK}),
    "other version": (other_version, {R.PACK}),
    "no pack at all": (short_pack, {R.PACK}),
    "delta bomb": (bomb, {R.TOO_LARGE}),
    "huge blob": (huge_blob, {R.TOO_LARGE}),
    "unfolding": (unfolding, {R.TOO_LARGE}),
    "deep": (deep(150), {R.TOO_LARGE}),
    "very deep": (deep(20_000), {R.TOO_LARGE, R.PACK}),
}


@attack(by=Position.AGENT)
@pytest.mark.parametrize("attack", sorted(ATTACKS))
def test_an_attack_is_refused_and_leaves_nothing(at: Desk, attack: str) -> None:
    make, reasons = ATTACKS[attack]
    at.send(make(at))
    before = at.everything()
    with pytest.raises(CandidateRefused) as refused:
        at.bring(tree=TreeLimits(entries=5000))
    assert refused.value.reason in {reason.value for reason in reasons}, str(refused.value)
    assert refused.value.code is ExitCode.VERIFY
    assert at.everything() == before
    assert not list(at.source.repository.path.glob("incoming-*"))


def test_what_the_attacks_are_made_with_is_taken_when_it_is_sound(at: Desk) -> None:
    made = forged(at, tree_bytes(("100644", b"a", B)), BLOB)
    at.send(made)
    found = at.bring()
    assert getattr(found, "commit", None) is not None
    assert found.commit.name == made.commit  # type: ignore[union-attr]


def test_an_object_that_we_have_already_may_come_again(at: Desk) -> None:
    old = at.workspace.raw("cat-file", "blob", "HEAD:readme")
    at.send(forged(at, tree_bytes(("100644", b"a", B)), BLOB, ("blob", old)))
    assert at.bring()


@pytest.mark.parametrize(
    "limits",
    [{"pack_bytes": 100}, {"objects": 2}, {"object_bytes": 5}, {"unpacked_bytes": 100}],
)
def test_each_bound_holds(at: Desk, limits: dict[str, int]) -> None:
    at.send(forged(at, tree_bytes(("100644", b"a", B)), BLOB))
    with pytest.raises(CandidateRefused) as refused:
        at.bring(**limits)
    assert refused.value.reason == R.TOO_LARGE


def test_a_base_that_is_not_here_is_said_to_be_missing(at: Desk, git: Git) -> None:
    made = forged(at, tree_bytes(("100644", b"a", B)), BLOB)
    file = at.send(made)
    empty = git.init(at.folder / "empty.git", ObjectFormat.SHA1)
    other = Desk(
        git,
        type(at.source)(repository=empty, commit=at.source.commit, shallow=False),
        at.workspace,
        file.parent,
    )
    with pytest.raises(CandidateRefused) as refused:
        other.bring()
    assert refused.value.reason == R.PREREQUISITES


def put(*path: str, value: object) -> Callable[[dict[str, Any]], object]:
    def change(manifest: dict[str, Any]) -> None:
        at: Any = manifest
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = value

    return change


CHANGES: dict[str, Callable[[dict[str, Any]], object]] = {
    "unknown key": put("more", value=1),
    "unknown key below": put("pack", "more", value=1),
    "missing key": lambda manifest: manifest.pop("branch"),
    "schema": put("schema", value=2),
    "schema as text": put("schema", value="1"),
    "schema as truth": put("schema", value=True),
    "format": put("format", value="other"),
    "object format": put("objectFormat", value="sha256"),
    "other base": put("base", value="5" * 40),
    "base is a reference": put("base", value="refs/heads/main"),
    "commit is an option": put("commit", value="--all"),
    "commit in capitals": put("commit", value="A" * 40),
    "commit of another format": put("commit", value="a" * 64),
    "null commit": put("commit", value="0" * 40),
    "a line end after the name": put("commit", value="a" * 40 + "\n"),
    "no parents": put("parents", value=[]),
    "many parents": put("parents", value=["a" * 40] * 65),
    "branch with a space": put("branch", value="a b"),
    "branch with a line end": put("branch", value="a\n"),
    "long branch": put("branch", value="a" * 300),
    "size": put("pack", "size", value=1),
    "negative size": put("pack", "size", value=-1),
    "fraction": put("pack", "objects", value=3.0),
    "hash": put("pack", "sha256", value="0" * 64),
    "objects": put("pack", "objects", value=4),
    "unknown kind": put("notExported", "entries", value=[{"kind": "x", "path": "a"}]),
    "unquoted path": put(
        "notExported",
        value={"total": 1, "complete": True, "entries": [{"kind": "modified", "path": "\x1b[2J"}]},
    ),
    "more than its total": put("notExported", "entries", value=[{"kind": "modified", "path": "a"}]),
    "too many": put(
        "notExported",
        value={"total": 9999, "complete": True, "entries": [{"kind": "modified", "path": "a"}] * 1001},
    ),
    "nothing new with a pack": lambda manifest: manifest.update(commit=manifest["base"]),
}


@pytest.mark.parametrize("change", sorted(CHANGES))
def test_a_manifest_is_taken_at_its_word_nowhere(at: Desk, change: str) -> None:
    made = forged(at, tree_bytes(("100644", b"a", B)), BLOB)
    made.change = CHANGES[change]
    at.send(made)
    before = at.everything()
    with pytest.raises(CandidateRefused) as refused:
        at.bring()
    assert refused.value.reason == R.MANIFEST
    assert at.everything() == before


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b"{", b"\xff", b'{"schema":1,"schema":1}', b"[" * 5000, b'{"schema":NaN}', b"1" * 50],
)
def test_what_is_no_manifest_is_refused(data: bytes) -> None:
    with pytest.raises(CandidateRefused) as refused:
        read_manifest(data, ObjectFormat.SHA1)
    assert refused.value.reason == R.MANIFEST


HEAD = b"agent-image-builder-export 1 "


@pytest.mark.parametrize(
    "stream",
    [
        b"",
        b"\n",
        HEAD,
        HEAD + b"2 0",
        HEAD + b"2 0\n{",
        HEAD + b"2 0\n{}x",
        HEAD + b"02 0\n{}",
        HEAD + b"-2 0\n{}",
        HEAD + b"2  0\n{}",
        HEAD + b"2 0\r\n{}",
        b"agent-image-builder-export 2 2 0\n{}",
        HEAD + b"%d 0\n" % (MAX_MANIFEST + 1) + b" " * (MAX_MANIFEST + 1),
        HEAD + b"99999999999999999999 0\n",
        b"x" * 10_000_000,
    ],
)
def test_what_is_no_frame_is_refused(at: Desk, stream: bytes) -> None:
    (at.folder / "export").write_bytes(stream)
    with pytest.raises(CandidateRefused) as refused:
        at.bring()
    assert refused.value.reason == R.FRAME


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda place: place.symlink_to("/etc/passwd")])
def test_only_a_regular_file_is_read(at: Desk, make: Callable[[Path], None]) -> None:
    make(at.folder / "export")
    with pytest.raises(BuilderError):
        at.bring()


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200), st.binary(max_size=200), st.integers(0, 300), st.integers(0, 300))
def test_any_stream_at_all_is_refused_by_an_error_of_ours(
    at: Desk, manifest: bytes, pack: bytes, one: int, two: int
) -> None:
    (at.folder / "export").write_bytes(HEAD + b"%d %d\n" % (one, two) + manifest + pack)
    with pytest.raises(CandidateRefused):
        at.bring()
