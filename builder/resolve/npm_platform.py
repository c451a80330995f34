"""Which npm packages belong to a platform: by what they declare, and by name when nothing else is left."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from images.oci import Platform


@dataclass(frozen=True, slots=True)
class NpmPlatform:
    """A platform in npm's words. Images here are glibc images."""

    os: str
    cpu: str
    libc: str = "glibc"


@dataclass(frozen=True, slots=True)
class Declared:
    """What a package says of itself; an empty list allows everything. ``!x`` excludes x."""

    os: tuple[str, ...] = ()
    cpu: tuple[str, ...] = ()
    libc: tuple[str, ...] = ()


_CPUS: Final = {"amd64": "x64", "arm64": "arm64"}

# Words in package names, such as clipboard-linux-x64-musl, and what they say.
_OS_WORDS: Final = {
    **dict.fromkeys(("linux", "linuxmusl"), "linux"),
    **dict.fromkeys(("darwin", "macos", "osx", "mac"), "darwin"),
    **dict.fromkeys(("win32", "windows", "win", "msvc"), "win32"),
    **{name: name for name in ("android", "freebsd", "openbsd", "netbsd", "sunos", "aix", "openharmony")},
}
_CPU_WORDS: Final = {
    **dict.fromkeys(("x64", "amd64", "x8664"), "x64"),
    **dict.fromkeys(("arm64", "aarch64"), "arm64"),
    **dict.fromkeys(("ia32", "i386", "i686", "x86"), "ia32"),
    **dict.fromkeys(("arm", "armv6", "armv7", "armv7l", "armhf"), "arm"),
    **dict.fromkeys(("wasm", "wasm32", "wasi"), "wasm32"),
    **{name: name for name in ("ppc64", "ppc64le", "s390x", "riscv64", "loong64", "mips64el")},
}
_LIBC_WORDS: Final = {
    **dict.fromkeys(("musl", "linuxmusl", "musleabihf"), "musl"),
    **dict.fromkeys(("gnu", "glibc", "gnueabihf"), "glibc"),
}


def npm_platform(platform: Platform) -> NpmPlatform:
    """A declared platform (the configuration holds that it is a supported one)."""
    return NpmPlatform(platform.os, _CPUS[platform.architecture])


def accepts(declared: Declared, platform: NpmPlatform) -> bool:
    """The package may be installed there, by its own words, as npm reads them."""
    return all(
        _listed(value, allowed)
        for value, allowed in (
            (platform.os, declared.os),
            (platform.cpu, declared.cpu),
            (platform.libc, declared.libc),
        )
    )


def names_another_libc(name: str, platform: NpmPlatform) -> bool:
    """``…-musl`` is for musl even if it does not declare so: an optional package of that name is left out."""
    words = _said(name, _LIBC_WORDS)
    return bool(words) and platform.libc not in words


def names_another_platform(name: str, platform: NpmPlatform) -> bool:
    """The name of a package that cannot be asked says that it is for something else."""
    pairs = (
        (platform.os, _said(name, _OS_WORDS)),
        (platform.cpu, _said(name, _CPU_WORDS)),
        (platform.libc, _said(name, _LIBC_WORDS)),
    )
    return any(words and wanted not in words for wanted, words in pairs)


def _said(name: str, table: dict[str, str]) -> set[str]:
    words = re.split(r"[^a-z0-9]+", name.lower().replace("x86_64", "x8664").replace("x86-64", "x8664"))
    return {table[word] for word in words if word in table}


def _listed(value: str, allowed: tuple[str, ...]) -> bool:
    if not allowed or allowed == ("any",):
        return True
    if f"!{value}" in allowed:
        return False
    positive = [item for item in allowed if not item.startswith("!")]
    return value in positive if positive else True
