"""What a tarball says is read within bounds, and any odd shape is refused by name."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builder.resolve import tarball as module
from builder.resolve.npm_platform import (
    Declared,
    NpmPlatform,
    accepts,
    names_another_libc,
    names_another_platform,
)
from builder.resolve.tarball import PackageFacts, read_package
from builder.resources import resource
from images.errors import BuilderError, PinError
from images.lock import ScriptEvent
from tests.attacks import Position, attack
from tests.fakes.registry import tarball

X64 = NpmPlatform("linux", "x64")


def read(data: bytes) -> PackageFacts:
    return read_package(io.BytesIO(data), "pkg@1.0.0")


def odd(member: tarfile.TarInfo, content: bytes = b"") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    return gzip.compress(out.getvalue())


def named(name: str, kind: bytes = tarfile.REGTYPE) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type = kind
    member.linkname = "target" if kind in (tarfile.SYMTYPE, tarfile.LNKTYPE) else ""
    return member


def test_facts() -> None:
    manifest = {
        "name": "@scope/pkg",
        "version": "1.0.0",
        "bin": {"tool": "./bin//tool.js", "../evil": "../../etc/passwd", "abs": "/bin/x"},
        "scripts": {"preinstall": "a", "install": " b ", "postinstall": "", "prepare": "no", "test": 1},
        "dependencies": {"a": "1"},
        "optionalDependencies": {"b": "1"},
        "peerDependencies": {"c": "1"},
        "devDependencies": {"d": "1"},
    }
    facts = read(tarball(manifest, top="anything"))
    assert facts.dependencies == ("a", "b", "c")
    assert facts.bins == (("abs", "bin/x"), ("tool", "bin/tool.js"))
    assert [(script.event, script.command) for script in facts.scripts] == [
        (ScriptEvent.INSTALL, "b"),
        (ScriptEvent.PREINSTALL, "a"),
    ]


def test_a_single_bin_has_the_name_of_the_package() -> None:
    assert read(tarball({"name": "@s/pkg", "version": "1.0.0", "bin": "cli.js"})).bins == (("pkg", "cli.js"),)


def test_the_script_that_npm_adds_for_native_code_is_seen() -> None:
    plain = {"name": "pkg", "version": "1.0.0"}
    files = {"binding.gyp": b"{}"}
    assert read(tarball(plain, files)).scripts[0].command == "node-gyp rebuild"
    assert read(tarball({**plain, "gypfile": False}, files)).scripts == ()
    assert read(tarball({**plain, "scripts": {"install": "x"}}, files)).scripts[0].command == "x"
    assert read(tarball(plain, {"deep/binding.gyp": b"{}"})).scripts == ()


def test_a_byte_order_mark_and_a_doubled_key_are_read_as_npm_does() -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        content = b'\xef\xbb\xbf{"name":"old","name":"pkg","version":"1.0.0"}'
        member = named("package/package.json")
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    assert read(gzip.compress(out.getvalue())).name == "pkg"


@attack(by=Position.NPM_PACKAGE)
@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "damaged"),
        (b"not gzip", "damaged"),
        (gzip.compress(b"not tar" * 1000), "damaged"),
        (tarball({"name": "x", "version": "1.0.0"}, {"big": b"\0" * 9000})[:-40], "damaged"),
        (odd(named("package/x"), b"x"), "no package.json"),
        (odd(named("package.json"), b"{}"), "no package.json"),
        (odd(named("package/package.json"), b"{"), "not JSON"),
        (odd(named("package/package.json"), b"[]"), "not an object"),
        (odd(named("package/package.json"), b'{"a":NaN}'), "NaN"),
        (odd(named("package/package.json"), b"[" * 100_000), "not JSON"),
        (odd(named("package/x", tarfile.SYMTYPE)), "no file"),
        (odd(named("package/x", tarfile.LNKTYPE)), "no file"),
        (odd(named("package/x", tarfile.FIFOTYPE)), "no file"),
        (odd(named("package/x", tarfile.CHRTYPE)), "no file"),
        (odd(named("package/../../x")), "leaves it"),
        (odd(named("/package/x")), "leaves it"),
    ],
)
def test_odd_tarballs_are_refused(data: bytes, said: str) -> None:
    with pytest.raises(PinError, match=r"pkg@1\.0\.0") as refused:
        read(data)
    assert said in str(refused.value)
    assert refused.value.where or refused.value.hint


def test_two_manifests_are_refused() -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for top in ("package", "other"):
            content = json.dumps({"name": top, "version": "1.0.0"}).encode()
            member = named(f"{top}/package.json")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    with pytest.raises(PinError, match=r"two package\.json"):
        read(gzip.compress(out.getvalue()))


def test_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    data = tarball({"name": "p", "version": "1.0.0"}, {f"f{n}": b"x" * 1000 for n in range(50)})
    monkeypatch.setattr(module, "MAX_UNPACKED", 20_000)
    with pytest.raises(PinError, match="unpacks to more"):
        read(data)
    monkeypatch.setattr(module, "MAX_UNPACKED", 1 << 30)
    monkeypatch.setattr(module, "MAX_MEMBERS", 10)
    with pytest.raises(PinError, match="no file"):
        read(data)


@pytest.mark.parametrize("command", ["a\nb", "a\tb", "x" * 8193])
def test_a_script_that_cannot_be_shown_on_a_line_is_refused(command: str) -> None:
    with pytest.raises(PinError, match="install script"):
        read(tarball({"name": "p", "version": "1.0.0", "scripts": {"install": command}}))


@given(st.binary(max_size=400))
def test_any_manifest_is_facts_or_a_clean_error(content: bytes) -> None:
    with contextlib.suppress(BuilderError):  # anything else fails the test
        read(odd(named("package/package.json"), content))


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        (Declared(), True),
        (Declared(os=("linux",), cpu=("x64",), libc=("glibc",)), True),
        (Declared(os=("any",)), True),
        (Declared(os=("!win32",)), True),
        (Declared(os=("!linux",)), False),
        (Declared(os=("darwin", "linux")), True),
        (Declared(cpu=("arm64",)), False),
        (Declared(libc=("musl",)), False),
        (Declared(os=("darwin",), cpu=("x64",)), False),
    ],
)
def test_platform_fields_as_npm_reads_them(declared: Declared, expected: bool) -> None:
    assert accepts(declared, X64) is expected


@pytest.mark.parametrize(
    ("name", "foreign"),
    [
        ("opencode-linux-x64", False),
        ("opencode-linux-x64-baseline", False),
        ("opencode-linux-x64-musl", True),
        ("opencode-darwin-arm64", True),
        ("opencode-windows-x64", True),
        ("@mariozechner/clipboard-linux-x64-gnu", False),
        ("@mariozechner/clipboard-win32-x64-msvc", True),
        ("@mariozechner/clipboard-darwin-universal", True),
        ("@img/sharp-linuxmusl-x64", True),
        ("@rollup/rollup-linux-arm-gnueabihf", True),
        ("x86_64-native", False),
        ("fsevents", False),
        ("bufferutil", False),
    ],
)
def test_names_of_packages_that_cannot_be_asked(name: str, foreign: bool) -> None:
    assert names_another_platform(name, X64) is foreign


def test_libc_by_name() -> None:
    assert names_another_libc("opencode-linux-x64-musl", X64)
    assert not names_another_libc("opencode-linux-x64", X64)
    assert not names_another_libc("x-gnu", X64)


def test_the_script_of_the_container_ships() -> None:
    assert resource("resolve.mjs").read_text().startswith("// Runs npm inside the resolver container")
