"""Tars from elsewhere: what Python's reader would forgive is refused by everything that reads one."""

from __future__ import annotations

import ast
import gzip
import io
import tarfile
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from builder.building.base_check import _read_layer, _Tree
from builder.resolve.archive import read_archive
from builder.resolve.exchange import _read_result
from builder.resolve.tarball import read_package
from images.errors import BuilderError, StateError
from provenance.audit.members import _members, index_artifact
from provenance.audit.pieces import Pieces
from provenance.debs import read_control, read_data
from provenance.stricttar import StrictTar
from tests.attacks import Position, attack
from tests.fakes.debs import ar_member
from tests.fakes.hostile_tars import END, HARMLESS_FOR_AUDIT, HOSTILE, block, extended
from tests.fakes.locks import npm

ROOT = Path(__file__).resolve().parents[3]


def names(raw: bytes) -> list[str]:
    with StrictTar.open(fileobj=io.BytesIO(raw), mode="r|", errorlevel=2) as archive:
        return [member.name for member in archive]


def deb(part: str, raw: bytes) -> io.BytesIO:
    parts = {"debian-binary": b"2.0\n", "control.tar": END, "data.tar": END, part: raw}
    return io.BytesIO(b"!<arch>\n" + b"".join(ar_member(name, content) for name, content in parts.items()))


READERS: dict[str, Callable[[bytes], object]] = {
    "an npm tarball": lambda raw: read_package(io.BytesIO(gzip.compress(raw)), "pkg@1.0.0"),
    "an operator's archive": lambda raw: read_archive(io.BytesIO(raw), "archives.x"),
    "a package's data": lambda raw: list(read_data(deb("data.tar", raw), "tool")),
    "a package's control files": lambda raw: read_control(deb("control.tar", raw), "tool"),
    "a base's layer": lambda raw: _read_layer(io.BytesIO(raw), _Tree(), "layer 0"),
    "a resolver's answer": lambda raw: _read_result(io.BytesIO(raw), lambda _: None),
}


@pytest.mark.parametrize("raw", HOSTILE.values(), ids=HOSTILE.keys())
def test_what_readers_differ_on_is_refused(raw: bytes) -> None:
    with pytest.raises(tarfile.TarError):
        names(raw)


@attack(by=Position.NPM_PACKAGE)
@pytest.mark.parametrize("raw", HOSTILE.values(), ids=HOSTILE.keys())
@pytest.mark.parametrize("read", READERS.values(), ids=READERS.keys())
def test_every_reader_refuses_it_in_its_own_words(read: Callable[[bytes], object], raw: bytes) -> None:
    with pytest.raises(BuilderError):
        read(raw)


@pytest.mark.parametrize("name", HOSTILE.keys() - HARMLESS_FOR_AUDIT)
def test_the_audit_s_own_reader_ends_with_a_refusal(name: str) -> None:
    with pytest.raises((ValueError, BuilderError)):
        _members(Pieces(iter([HOSTILE[name]])), 1)


@pytest.mark.parametrize("at", [2, 3, 12, -9, -5, -1])
def test_a_stream_that_does_not_decompress_is_refused(at: int) -> None:
    raw = bytearray(gzip.compress(block("package/a") + END, mtime=0))
    raw[at] ^= 0xFF
    for read in (read_package, read_archive):
        with pytest.raises(BuilderError):
            read(io.BytesIO(bytes(raw)), "x")
    with pytest.raises(StateError):
        index_artifact(npm("a", "1.0.0"), lambda _: nullcontext(io.BytesIO(bytes(raw))))


def test_what_common_writers_write_is_read() -> None:
    long = "package/" + "x" * 300
    for form in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=form) as archive:
            for name in ("package/a", *(() if form == tarfile.USTAR_FORMAT else (long,))):
                archive.addfile(tarfile.TarInfo(name))
        assert names(out.getvalue())[0] == "package/a"
    git = extended(b"g", b"52 comment=0123456789012345678901234567890123456789\n")
    assert names(git + extended(b"x", "13 path=p/é\n".encode()) + block("p/e") + END) == ["p/é"]
    assert names(block("p/a")) == ["p/a"]  # without the zeros at the end


def test_nothing_else_reads_streams_of_tar() -> None:
    """The library's own reader is for tars that this program made itself a moment ago."""
    for layer in ("images", "provenance", "backend", "builder"):
        for path in (ROOT / layer).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if not isinstance(node, ast.Call) or ast.unparse(node.func) != "tarfile.open":
                    continue
                modes = [ast.unparse(word.value) for word in node.keywords if word.arg == "mode"]
                modes += [ast.unparse(given) for given in node.args[1:2]]
                known = (modes == ["'w'"], path.relative_to(ROOT).as_posix() == "builder/bootstrap/tree.py")
                assert any(known), f"{path}:{node.lineno}"
