"""Wheels are read strictly: what is odd in a zip, in its metadata or in its places is refused by name."""

from __future__ import annotations

import io
import stat
import struct
import warnings
import zipfile
from collections.abc import Callable

import pytest

from builder.resolve.pypi_making import check_places
from builder.resolve.pypi_tree import read_pylock
from builder.resolve.python import Python, installed_packages, python_of
from builder.resolve.wheel import WheelFacts, read_wheel
from images.errors import PinError, UsageError
from images.oci import Platform
from images.wheels import site_packages, wheel_place
from provenance.strictzip import open_zip
from tests.fakes.locks import AMD64, ARM64
from tests.fakes.wheels import Content, Odd, make_wheel, shadowed

NAME = "quick-1.0-py3-none-any.whl"
PYTHON = Python("3.11", "2.36")


def read(raw: bytes) -> WheelFacts:
    return read_wheel(io.BytesIO(raw), NAME)


def quick(files: dict[str, Content] | None = None, **more: object) -> bytes:
    return make_wheel("quick", "1.0", files or {"quick/__init__.py": b"x = 1\n"}, **more)  # type: ignore[arg-type]


def test_what_a_wheel_says_of_itself() -> None:
    facts = read(
        quick(
            {
                "quick/__init__.py": b"",
                "quick/run.sh": (b"#!/bin/sh\n", 0o755),
                "quick-1.0.data/scripts/native": b"\x7fELF",
                "quick-1.0.data/scripts/old": b"#!python\nprint()\n",
            },
            requires=("AnyIO>=4", "foo.bar; extra == 'x'", "quick[x]", "not a requirement"),
            entry_points="[console_scripts]\nquick = quick.cli:main [x]\nodd = quick\nno/way = quick:main\n"
            "[gui_scripts]\nquickw = quick:gui\n",
        )
    )
    assert (facts.name, facts.version) == ("quick", "1.0")
    assert facts.requires == ("anyio", "foo-bar")
    assert facts.commands == (
        ("native", "bin/native"),
        ("old", "python bin/old"),
        ("quick", "quick.cli:main"),
    )
    assert facts.files["quick/run.sh"].executable
    assert not facts.files["quick/__init__.py"].executable


def member(name: str, *, mode: int = stat.S_IFREG | 0o644) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.external_attr = mode << 16
    return info


def flagged(raw: bytes, bits: int) -> bytes:
    """The wheel with flags set on its first member, in both of its headers."""
    changed = bytearray(raw)
    at = changed.index(b"PK\x01\x02")
    struct.pack_into("<H", changed, at + 8, bits)
    struct.pack_into("<H", changed, 6, bits)
    return bytes(changed)


def entered(raw: bytes, *, at: int, value: int) -> bytes:
    """The wheel with another number in the first entry of its directory."""
    changed = bytearray(raw)
    struct.pack_into("<I", changed, changed.index(b"PK\x01\x02") + at, value)
    return bytes(changed)


def ended(raw: bytes, *, at: int, value: int) -> bytes:
    """The wheel with another count of its entries, at both places."""
    changed = bytearray(raw)
    struct.pack_into("<HH", changed, len(raw) - 22 + at, value, value)
    return bytes(changed)


def twice() -> bytes:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return quick(odd=(Odd(member("quick/__init__.py"), b"x = 2\n"),))


HOSTILE: list[tuple[Callable[[], bytes], str]] = [
    (lambda: quick(odd=(Odd(member("../evil.py")),)), "a path that leaves it"),
    (lambda: quick(odd=(Odd(member("quick/../../evil.py")),)), "a path that leaves it"),
    (lambda: quick(odd=(Odd(member("/etc/passwd")),)), "a path that leaves it"),
    (lambda: quick(odd=(Odd(member("quick//x.py")),)), "a path that leaves it"),
    (lambda: quick(odd=(Odd(member("quick\\x.py")),)), "not plain text"),
    (lambda: quick(odd=(Odd(member("quick/\x07.py")),)), "not plain text"),
    (lambda: quick(odd=(Odd(member("q" * 401)),)), "not plain text"),
    (lambda: quick(odd=(Odd(member("quick/x", mode=stat.S_IFLNK | 0o777), b"/etc"),)), "is a link"),
    (lambda: quick(odd=(Odd(member("quick/x", mode=stat.S_IFIFO | 0o644)),)), "is a link"),
    (lambda: quick(odd=(Odd(member("quick/dir/", mode=stat.S_IFLNK | 0o777)),)), "is a link"),
    (twice, "twice"),
    (lambda: quick(odd=(Odd(member("Quick/__init__.py")),)), "letter case alone"),
    (lambda: quick(odd=(Odd(member("quick/__init__.py/x")),)), "a file and a directory"),
    (lambda: flagged(quick(), 0x1), "encrypted"),
    (lambda: flagged(quick(), 0x40), "encrypted"),
    (lambda: b"PK" + quick(), "something around it"),
    (lambda: quick() + b"x", "ends with its directory"),
    (lambda: shadowed(quick(), "../evil.py", b"x = 1\n"), "the 64 bit form"),
    (lambda: ended(quick(), at=8, value=2), "something behind its entries"),
    (lambda: ended(quick(), at=8, value=9), "cut short"),
    (lambda: entered(quick(), at=0, value=0), "a broken entry"),
    (lambda: entered(quick(), at=20, value=0xFFFFFFFF), "a member of the 64 bit form"),
    (lambda: entered(quick(), at=24, value=0xFFFFFFFF), "a member of the 64 bit form"),
    (lambda: entered(quick(), at=42, value=0xFFFFFFFF), "a member of the 64 bit form"),
    (lambda: quick()[:-2] + b"\x01\x00x", "ends with its directory"),
    (lambda: b"no zip at all, but long enough for one", "ends with its directory"),
    (lambda: b"", "no zip"),
    (lambda: quick().replace(b"PK\x03\x04", b"PK\x03\x05", 1), "damaged"),
    (lambda: quick(without=("METADATA",)), "no METADATA"),
    (lambda: quick(without=("WHEEL",)), "no WHEEL or no RECORD"),
    (lambda: quick(without=("RECORD",)), "no WHEEL or no RECORD"),
    (lambda: quick({"other-2.0.dist-info/METADATA": b""}), "2 directories of metadata"),
    (lambda: quick({"other-2.0.data/scripts/x": b""}), "data of another package"),
    (lambda: quick({"quick-1.0.data/evil/x": b""}), "in no scheme"),
    (lambda: quick({"quick-1.0.data/scripts": b""}), "in no scheme"),
    (lambda: quick({"quick-1.0.data/data/pyvenv.cfg": b""}), "take the place of what is generated"),
    (lambda: quick({"quick-1.0.data/data/run": b""}), "take the place of what is generated"),
    (lambda: quick({"quick-1.0.data/scripts/python3": b""}), "take the place of what is generated"),
    (lambda: quick({"x.py": b"", "quick-1.0.data/purelib/x.py": b""}), "have the same place"),
    (lambda: quick(entry_points="[console_scripts\n"), "entry_points.txt cannot be read"),
]


@pytest.mark.parametrize(("make", "said"), HOSTILE, ids=[said for _, said in HOSTILE])
def test_a_hostile_wheel_is_refused_by_name(make: Callable[[], bytes], said: str) -> None:
    with pytest.raises(PinError) as refused:
        read(make())
    assert said in refused.value.what
    assert NAME in refused.value.what
    assert "builder lock" in refused.value.hint


# What is said of the zip itself, before any of its members.
ODD_ZIPS = (
    "around it",
    "ends with its",
    "no zip",
    "64 bit form",
    "behind its entries",
    "cut short",
    "broken entry",
)


@pytest.mark.parametrize("make", [make for make, said in HOSTILE if any(odd in said for odd in ODD_ZIPS)])
def test_an_audit_reads_no_zip_that_readers_differ_on(make: Callable[[], bytes]) -> None:
    with pytest.raises(zipfile.BadZipFile):
        open_zip(io.BytesIO(make()))


def test_a_bomb_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("builder.resolve.wheel.MAX_UNPACKED", 10_000)
    with pytest.raises(PinError, match="holds more than"):
        read(quick({"quick/zeros": bytes(100_000)}))
    monkeypatch.setattr("builder.resolve.wheel.MAX_UNPACKED", 1 << 30)
    monkeypatch.setattr("builder.resolve.wheel.MAX_MEMBER", 10_000)
    with pytest.raises(PinError, match="larger than 10000 bytes"):
        read(quick({"quick/zeros": bytes(100_000)}))


def test_a_member_that_is_larger_than_it_says_is_refused() -> None:
    raw = bytearray(quick({"quick/zeros": bytes(5000)}))
    at = raw.index(b"PK\x01\x02")
    assert struct.unpack_from("<I", raw, at + 24)[0] == 5000
    struct.pack_into("<I", raw, at + 24, 4000)
    with pytest.raises(PinError, match=r"damaged|another size"):
        read(bytes(raw))


@pytest.mark.parametrize(
    ("path", "placed"),
    [
        ("quick/a.py", ("lib/python3.11/site-packages/quick/a.py", False)),
        ("quick-1.0.data/platlib/a.so", ("lib/python3.11/site-packages/a.so", False)),
        ("quick-1.0.data/scripts/tool", ("bin/tool", True)),
        ("quick-1.0.data/data/share/man/x.1", ("share/man/x.1", False)),
        ("quick-1.0.data/headers/q.h", ("include/site/python3.11/quick/q.h", False)),
        (
            "quick-1.0.dist-info/METADATA",
            ("lib/python3.11/site-packages/quick-1.0.dist-info/METADATA", False),
        ),
        ("quick-1.0.dist-info/INSTALLER", None),
        ("quick-1.0.dist-info/direct_url.json", None),
        ("quick/__pycache__/a.cpython-311.pyc", None),
        ("quick/old.pyc", None),
    ],
)
def test_where_each_member_lies(path: str, placed: tuple[str, bool] | None) -> None:
    assert wheel_place(path, site_packages("3.11"), "quick") == placed


ONE, TWO = "one-1.0-py3-none-any.whl", "two-1.0-py3-none-any.whl"


def test_two_wheels_may_share_a_file_and_not_a_place() -> None:
    first = read_wheel(io.BytesIO(make_wheel("one", "1.0", {"ns/__init__.py": b"", "one.py": b"1"})), "one")
    same = read_wheel(io.BytesIO(make_wheel("two", "1.0", {"ns/__init__.py": b""})), "two")
    check_places({ONE: first, TWO: same}, "3.11", "mcp.x")
    for files, said in (
        ({"one.py": b"2"}, "different files at lib/python3.11/site-packages/one.py"),
        ({"one.py": (b"1", 0o755)}, "different files at"),
        ({"one.py/x": b"2"}, "is a file of"),
    ):
        other = read_wheel(io.BytesIO(make_wheel("two", "1.0", files)), "two")  # type: ignore[arg-type]
        with pytest.raises(PinError) as refused:
            check_places({ONE: first, TWO: other}, "3.11", "mcp.x")
        assert said in refused.value.what
        assert ONE in refused.value.what
        assert TWO in refused.value.what


def pylock(*files: str, name: str = "quick", version: str = "1.0") -> bytes:
    wheels = ", ".join(
        f'{{ url = "https://x.test/a/{file}", upload-time = 2026-01-02T03:04:05Z, size = 1, '
        f'hashes = {{ sha256 = "{number:064x}" }} }}'
        for number, file in enumerate(files)
    )
    return (
        f'lock-version = "1.0"\ncreated-by = "uv"\n[[packages]]\nname = "{name}"\nversion = "{version}"\n'
        f"wheels = [{wheels}]\n"
    ).encode()


ANY = "quick-1.0-py3-none-any.whl"
OLD = "quick-1.0-cp38-abi3-manylinux2014_x86_64.manylinux_2_17_x86_64.whl"
OWN = "quick-1.0-cp311-cp311-manylinux_2_28_x86_64.whl"
NEW = "quick-1.0-cp311-cp311-manylinux_2_38_x86_64.whl"
ARM = "quick-1.0-cp311-cp311-manylinux_2_17_aarch64.whl"
MUSL = "quick-1.0-cp311-cp311-musllinux_1_2_x86_64.whl"


@pytest.mark.parametrize(
    ("files", "platform", "chosen"),
    [
        ((ANY, OLD, OWN, NEW, ARM), AMD64, OWN),
        ((ANY, OLD), AMD64, OLD),
        ((ANY, OLD, OWN, ARM), ARM64, ARM),
        ((ANY, NEW), AMD64, ANY),
        (
            ("quick-1.0-1-py3-none-any.whl", "quick-1.0-2-py3-none-any.whl"),
            AMD64,
            "quick-1.0-2-py3-none-any.whl",
        ),
    ],
)
def test_the_wheel_that_this_python_likes_most(
    files: tuple[str, ...], platform: Platform, chosen: str
) -> None:
    ((wheel, published),) = read_pylock(pylock(*files), "x", PYTHON, platform)
    assert wheel.filename == chosen
    assert wheel.integrity.hex == f"{files.index(chosen):064x}"
    assert published == "2026-01-02T03:04:05+00:00"


@pytest.mark.parametrize("files", [(), (NEW,), (ARM,), (MUSL,)])
def test_a_package_without_a_wheel_for_a_platform_is_named(files: tuple[str, ...]) -> None:
    with pytest.raises(PinError) as refused:
        read_pylock(pylock(*files), "toolchain.pypi.quick", PYTHON, AMD64)
    assert "quick==1.0 has no wheel for the image's python on linux/amd64" in refused.value.what


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\xff",
        b"x = " + b"[" * 3000 + b"]" * 3000,
        b"x" + b".x" * 70 + b" = 1",
        b'lock-version = "2.0"\npackages = []\n',
        b'lock-version = "1.0"\npackages = 1\n',
        pylock(ANY, name="Quick"),
        pylock(ANY, version="latest"),
        pylock("other-1.0-py3-none-any.whl"),
        pylock("quick-2.0-py3-none-any.whl"),
        pylock("quick-1.0.tar.gz"),
        pylock(ANY).replace(b'sha256 = "0', b'sha256 = "x'),
        pylock(ANY) + pylock(ANY).partition(b'"uv"\n')[2],
    ],
)
def test_an_answer_of_another_form_is_refused(raw: bytes) -> None:
    with pytest.raises(PinError, match=r"unknown form|two versions"):
        read_pylock(raw, "x", PYTHON, AMD64)


STATUS = """\
Package: python3
Status: install ok installed
Version: 3.11.2-1+b1

Package: gone
Status: deinstall ok config-files
Version: 1

Package: libc6
Status: install ok installed
Version: 2.36-9+deb12u10
"""


def test_the_python_of_the_image_is_that_of_its_packages() -> None:
    packages = installed_packages(STATUS)
    assert packages == {"python3": "3.11.2-1+b1", "libc6": "2.36-9+deb12u10"}
    assert python_of(packages, "mcp.x") == PYTHON
    assert PYTHON.uv_platform(AMD64) == "x86_64-manylinux_2_36"
    assert Python("3.9", "2.19").uv_platform(ARM64) == "aarch64-manylinux_2_17"
    assert Python("3.14", "2.60").uv_platform(AMD64) == "x86_64-manylinux_2_40"


@pytest.mark.parametrize(
    ("packages", "said", "hint"),
    [
        ({"libc6": "2.36"}, "mcp.x needs python3, and neither", 'debian = ["python3"]'),
        ({"python3": "2.7.18-1", "libc6": "2.36"}, "from 3.8", "a newer base"),
        ({"python3": "3.11.2-1"}, "there are 3.11 and none", "a newer base"),
    ],
)
def test_an_image_without_a_python_is_refused(packages: dict[str, str], said: str, hint: str) -> None:
    with pytest.raises(UsageError) as refused:
        python_of(packages, "mcp.x")
    assert said in refused.value.what
    assert hint in refused.value.hint
