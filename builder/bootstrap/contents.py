"""What lies in each of the three images beside its Debian packages, and how it is run."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from builder.bootstrap.files import Entry, FileSet, collect, directory, file, from_disk, join, read, symlink
from builder.bootstrap.wheels import node_files, uv_files
from images.errors import BuildFailed

PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
BUILDX_IN_IMAGE: Final = "usr/local/libexec/docker/cli-plugins/docker-buildx"
SOCKET_DIR: Final = "/run/user/1000/buildkit"
SOCKET: Final = f"{SOCKET_DIR}/buildkitd.sock"
BUILD_USER: Final = 1000

_CAP_SETGID, _CAP_SETUID = 6, 7


def _effective_capability(number: int) -> bytes:
    """The v2 form of security.capability (Linux capability.h): permitted and effective, no user namespace.

    An ordinary user's setcap would write the v3 form, which is worth nothing outside his namespace.
    """
    revision_2_effective = 0x02000000 | 1
    return struct.pack("<5I", revision_2_effective, 1 << number, 0, 0, 0)


# Setuid alone is not enough in an unprivileged container: the kernel wants the capability on the file.
_MAPPERS: Final = {"usr/bin/newuidmap": _CAP_SETUID, "usr/bin/newgidmap": _CAP_SETGID}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """An image before it is written: its parts, each of which gets a digest in the lock, and its settings."""

    parts: Mapping[str, FileSet]
    user: str = ""
    environment: tuple[str, ...] = (f"PATH={PATH}",)
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    working_dir: str = "/"
    volumes: tuple[str, ...] = ()

    def files(self) -> dict[str, Entry]:
        """All parts together."""
        return join(*self.parts.values())


def base(debian: FileSet, init: str) -> Plan:
    """The base of agent images. Raises BuildFailed when what every image needs is not in it."""
    for path in (init, "/usr/bin/timeout", "/usr/bin/cat", "/usr/bin/tar", "/usr/bin/git", "/usr/bin/sh"):
        if path.lstrip("/") not in debian and path.lstrip("/").removeprefix("usr/") not in debian:
            raise BuildFailed(f"the base lacks {path}", where="bootstrap")
    return Plan(parts={"debian": debian}, command=("/bin/sh",))


def build_container(debian: FileSet, programs: Mapping[str, Path]) -> Plan:
    """BuildKit as an ordinary user: no privilege, no added capability, no network of its own."""
    home = "home/user"
    tools = [from_disk(f"usr/local/bin/{name}", programs[name], mode=0o755) for name in _ON_THE_PATH]
    tools.append(from_disk(BUILDX_IN_IMAGE, programs["buildx"], mode=0o755))
    # In a rootless engine only 65,536 ids exist: the nested range must fit below.
    subordinate = b"user:1001:64535\n"
    settings = [
        symlink("usr/local/bin/buildkit-runc", "/usr/sbin/runc"),
        file("etc/subuid", subordinate),
        file("etc/subgid", subordinate),
        _with_line(debian, "etc/passwd", f"user:x:{BUILD_USER}:{BUILD_USER}::/{home}:/bin/sh"),
        _with_line(debian, "etc/group", f"user:x:{BUILD_USER}:"),
        _with_line(debian, "etc/shadow", "user:!:1::::::"),
        *(_owned(path) for path in (home, *_parents_within(home, f"{home}/.local/share/buildkit"))),
        directory("run/user"),
        _owned("run/user/1000"),
        _owned(SOCKET_DIR.lstrip("/")),
        *(
            replace(debian[path], mode=0o755, capability=_effective_capability(number))
            for path, number in _MAPPERS.items()
        ),
    ]
    return Plan(
        parts={"debian": debian, "programs": collect(tools), "settings": collect(settings)},
        user=f"{BUILD_USER}:{BUILD_USER}",
        environment=(
            f"PATH={PATH}",
            "USER=user",
            f"HOME=/{home}",
            "XDG_RUNTIME_DIR=/run/user/1000",
            f"BUILDKIT_HOST=unix://{SOCKET}",
        ),
        entrypoint=("rootlesskit", "--state-dir=/run/user/1000/rootlesskit", "buildkitd"),
        command=(f"--addr=unix://{SOCKET}",),
        volumes=(f"/{home}/.local/share/buildkit",),
    )


_ON_THE_PATH: Final = ("buildkitd", "buildctl", "rootlesskit")


def resolver(debian: FileSet, node_wheel: Path, uv_wheel: Path) -> Plan:
    """Where artifacts are resolved and fetched: Node, npm, uv and apt."""
    return Plan(
        parts={
            "debian": debian,
            "node": collect(node_files(node_wheel)),
            "uv": collect(uv_files(uv_wheel)),
        },
        command=("/bin/sh",),
    )


def _owned(path: str) -> Entry:
    return directory(path, mode=0o700, uid=BUILD_USER, gid=BUILD_USER)


def _parents_within(top: str, path: str) -> tuple[str, ...]:
    parts = path.removeprefix(top + "/").split("/")
    return tuple("/".join((top, *parts[: count + 1])) for count in range(len(parts)))


def _with_line(files: FileSet, path: str, line: str) -> Entry:
    return replace(files[path], content=read(files[path].content) + line.encode() + b"\n")
