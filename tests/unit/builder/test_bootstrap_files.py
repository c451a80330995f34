"""Entries, layers and Debian trees: nothing but the files decides the bytes."""

from __future__ import annotations

import io
import struct
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from builder.bootstrap.contents import _effective_capability
from builder.bootstrap.files import (
    Entry,
    Kind,
    Stretch,
    chunks,
    collect,
    digest_of,
    directory,
    file,
    from_disk,
    join,
    read,
    symlink,
)
from builder.bootstrap.layer import write_layer, write_tar
from builder.bootstrap.tree import read_tree
from images.digests import Digest
from images.errors import BuildFailed

EPOCH = 1_795_910_400
SETUID = _effective_capability(7)


def tar_bytes(entries: list[Entry]) -> bytes:
    out = io.BytesIO()
    write_tar(collect(entries), EPOCH, out)
    return out.getvalue()


def members(data: bytes) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        return {member.name: member for member in archive}


ENTRIES = [
    directory("bin"),
    file("bin/tool", b"tool\n", mode=0o755),
    symlink("bin/alias", "tool"),
    file("etc/ssl/Főtanúsítvány.pem", b"x"),
    file("long/" + "n" * 120, b"y"),
]


@given(st.permutations(ENTRIES))
def test_the_order_of_entries_never_matters(entries: list[Entry]) -> None:
    assert tar_bytes(entries) == tar_bytes(ENTRIES)
    assert digest_of(collect(entries)) == digest_of(collect(ENTRIES))


def test_every_entry_is_dated_and_owned_as_planned() -> None:
    for member in members(tar_bytes([*ENTRIES, directory("home", uid=1000, gid=1000)])).values():
        assert member.mtime == EPOCH
        assert (member.uname, member.gname) == ("", "")
        assert (member.uid, member.gid) == ((1000, 1000) if member.name == "home" else (0, 0))


@pytest.mark.parametrize("attribute", ["mode", "uid", "gid", "path", "content", "target", "capability"])
def test_each_attribute_changes_the_digest_of_a_set(attribute: str) -> None:
    other = {
        "mode": 0o700,
        "uid": 1,
        "gid": 1,
        "path": "b",
        "content": b"2",
        "target": "t",
        "capability": b"c",
    }
    entry = file("a", b"1")
    assert digest_of(collect([replace(entry, **{attribute: other[attribute]})])) != digest_of(
        collect([entry])
    )


def test_a_file_capability_is_a_pax_record_with_the_exact_value() -> None:
    data = tar_bytes([file("usr/bin/newuidmap", b"elf", mode=0o755, capability=SETUID), file("z", b"z")])
    found = members(data)
    value = found["usr/bin/newuidmap"].pax_headers["SCHILY.xattr.security.capability"]
    assert value.encode("utf-8", "surrogateescape") == struct.pack("<5I", 0x02000001, 1 << 7, 0, 0, 0)
    assert b"hdrcharset" not in data
    assert found["z"].pax_headers == {}
    assert found["usr/bin/newuidmap"].mtime == EPOCH


def test_a_capability_on_a_path_that_needs_its_own_record_is_a_bug() -> None:
    with pytest.raises(ValueError, match="short, plain path"):
        tar_bytes([file("n" * 101, b"", capability=SETUID)])


def test_the_first_path_of_hard_links_carries_the_content() -> None:
    link = Entry(path="a", kind=Kind.HARDLINK, mode=0o755, target="b")
    found = collect([file("b", b"content", mode=0o755), link, replace(link, path="c")])
    assert found["a"].content == b"content"
    assert [(found[name].kind, found[name].target) for name in "bc"] == [(Kind.HARDLINK, "a")] * 2
    assert members(tar_bytes(list(found.values())))["b"].islnk()


def test_a_layer_is_the_same_bytes_again_and_its_tar_has_the_diff_id(tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(bytes(range(256)) * 20_000)
    files = collect([*ENTRIES, from_disk("big", tmp_path / "big", mode=0o644)])
    first, second = (write_layer(files, EPOCH, tmp_path / name) for name in ("one", "two"))
    assert first.path.read_bytes() == second.path.read_bytes()
    raw = zstandard.ZstdDecompressor().decompressobj().decompress(first.path.read_bytes())
    assert Digest.of(raw) == first.diff_id == second.diff_id
    assert len(raw) % 512 == 0
    assert members(raw)["big"].size == 256 * 20_000


def test_join_lets_the_later_win_and_makes_parents() -> None:
    found = join(
        {"a": directory("a", mode=0o700)},
        {"a": directory("a"), "a/b/c": file("a/b/c", b"1")},
        {"a/b/c": file("a/b/c", b"2")},
    )
    assert list(found) == ["a", "a/b", "a/b/c"]
    assert found["a"].mode == 0o700
    assert read(found["a/b/c"].content) == b"2"


def test_a_file_that_became_shorter_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "short"
    path.write_bytes(b"123")
    with pytest.raises(EOFError, match="1 bytes early"):
        list(chunks(Stretch(path, 0, 4)))


# -- trees ---------------------------------------------------------------------------------------


def a_tree(path: Path, *names: str, kinds: dict[str, bytes] | None = None) -> Path:
    with tarfile.open(path, "w") as archive:
        for name in names:
            member = tarfile.TarInfo("./" + name)
            member.mtime = 12345
            if name.endswith("/"):
                member.type = tarfile.DIRTYPE
            content = CONTENTS.get(name, b"x")
            if (kinds or {}).get(name):
                member.type = (kinds or {})[name]
                content = b""
            member.size = 0 if name.endswith("/") else len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


CONTENTS = {"etc/shadow": b"root:*:20000:0:99999:7:::\n_apt:!:20001::::::\nodd\n"}
GOES = [
    "etc/apt/sources.list",
    "etc/apt/sources.list.d/0000debian.list",
    "etc/apt/apt.conf.d/99mmdebstrap",
    "etc/dpkg/dpkg.cfg.d/99mmdebstrap",
    "etc/resolv.conf",
    "etc/hostname",
    "etc/machine-id",
    "var/lib/dbus/machine-id",
    "etc/passwd-",
    "etc/shadow-",
    "etc/ssh/ssh_host_rsa_key",
    "var/lib/apt/lists/lock",
    "var/lib/dpkg/status-old",
    "var/lib/dpkg/lock",
    "var/cache/apt/archives/lock",
    "var/cache/apt/pkgcache.bin",
    "var/cache/ldconfig/aux-cache",
    "var/cache/debconf/config.dat-old",
    "var/log/dpkg.log",
    "var/log/apt/history.log",
    "tmp/left",
    "run/left",
    "dev/console",
]
STAYS = [
    "etc/passwd",
    "etc/ld.so.cache",
    "etc/apt/apt.conf.d/01autoremove",
    "etc/ssl/certs/ca-certificates.crt",
    "var/lib/dpkg/status",
    "var/cache/debconf/config.dat",
    "usr/share/doc/base-files/copyright",
]


def test_a_tree_keeps_nothing_of_its_making(tmp_path: Path) -> None:
    folders = ["var/log/", "var/log/apt/", "run/", "run/lock/", "tmp/"]
    tree = a_tree(tmp_path / "t.tar", *folders, *GOES, *STAYS, kinds={"dev/console": tarfile.CHRTYPE})
    assert set(read_tree(tree, EPOCH)) == {*STAYS, *(name.rstrip("/") for name in folders)}


def test_the_password_file_is_dated_by_the_epoch(tmp_path: Path) -> None:
    found = read_tree(a_tree(tmp_path / "t.tar", "etc/shadow"), EPOCH)
    day = EPOCH // 86400
    assert (
        read(found["etc/shadow"].content) == f"root:*:{day}:0:99999:7:::\n_apt:!:{day}::::::\nodd\n".encode()
    )


@pytest.mark.parametrize("kind", [tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE])
def test_a_device_outside_of_dev_is_refused(tmp_path: Path, kind: bytes) -> None:
    with pytest.raises(BuildFailed, match="unexpected kind or path: 'usr/evil'"):
        read_tree(a_tree(tmp_path / "t.tar", "usr/evil", kinds={"usr/evil": kind}), EPOCH)


def test_a_path_upwards_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BuildFailed, match="unexpected kind or path"):
        read_tree(a_tree(tmp_path / "t.tar", "usr/../../evil"), EPOCH)


def test_what_is_no_tar_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.tar").write_bytes(b"no tar at all" * 100)
    with pytest.raises(BuildFailed, match="cannot be read"):
        read_tree(tmp_path / "t.tar", EPOCH)
