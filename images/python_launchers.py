"""What is generated around wheels: the virtual environment's two files, starters of servers and tools."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from images.errors import UsageError
from images.lock import Lock
from images.lock_additions import PypiInstalled, PypiServerLock
from images.oci import Platform
from images.rootfs import RootEntry
from images.wheels import PYTHON

_PYTHON_FILE = "python "


def python_root(lock: Lock, platform: Platform) -> Iterator[RootEntry]:
    """Every generated entry of servers and tools from PyPI, and of the commands of archives."""
    for one in lock.pypi_installed:
        yield from _environment(one, platform)
    for server in lock.pypi_mcp:
        script = pypi_server_script(lock, server, platform)
        yield RootEntry(_relative(f"{server.directory}/run"), 0o755, content=script)
    for tool in lock.pypi_tools:
        for name, start in lock.artifact(tool.tree(platform).root).bins:
            yield _command(name, start, tool)
    for archive in lock.archives:
        for name, file in lock.artifact(archive.artifact).bins:
            yield _link(f"/usr/local/bin/{name}", f"{archive.directory}/{file}")


def pypi_server_script(lock: Lock, server: PypiServerLock, platform: Platform) -> bytes:
    """The text of a server's starter: the installed command, the locked arguments; nothing else."""
    root = lock.artifact(server.tree(platform).root)
    start = server.entry(root.bins)
    if start is None:
        raise UsageError(
            f"{server.package} {server.version} has no command that could be the server",
            where=server.place,
            hint="choose a version of it that has",
        )
    if _is_program(start):
        words = " ".join(shlex.quote(word) for word in (f"{server.directory}/{start}", *server.args))
        return f'#!/bin/sh\nexec {words} "$@"\n'.encode()
    return _python_script(server, start, server.args)


def _environment(one: PypiInstalled, platform: Platform) -> Iterator[RootEntry]:
    """A virtual environment is these two files: Python finds its packages by them, and no others."""
    settings = (
        f"home = {PYTHON.rpartition('/')[0]}\n"
        "include-system-site-packages = false\n"
        f"version = {one.tree(platform).python}\n"
    )
    yield RootEntry(_relative(one.directory), 0o755)
    yield RootEntry(_relative(f"{one.directory}/bin"), 0o755)
    yield RootEntry(_relative(f"{one.directory}/pyvenv.cfg"), 0o644, content=settings.encode())
    yield _link(f"{one.directory}/bin/python3", PYTHON)


def _command(name: str, start: str, tool: PypiInstalled) -> RootEntry:
    path = f"/usr/local/bin/{name}"
    if _is_program(start):
        return _link(path, f"{tool.directory}/{start}")
    return RootEntry(_relative(path), 0o755, content=_python_script(tool, start, ()))


def _is_program(start: str) -> bool:
    """A file that the kernel starts: neither an entry point nor a script that needs its Python named."""
    return ":" not in start and not start.startswith(_PYTHON_FILE)


def _python_script(one: PypiInstalled, start: str, args: tuple[str, ...]) -> bytes:
    """Isolated (-I: no variable, no user's packages, no current directory), and writing no bytecode (-B)."""
    lines = [f"#!{one.directory}/bin/python3 -IB", "import sys"]
    if args:
        lines.append(f"sys.argv[1:1] = {list(args)!a}")
    if start.startswith(_PYTHON_FILE):
        file = f"{one.directory}/{start.removeprefix(_PYTHON_FILE)}"
        lines += ["from runpy import run_path", f'run_path({file!a}, run_name="__main__")']
    else:
        module, _, function = start.partition(":")
        lines += [f"from {module} import {function.partition('.')[0]}", f"sys.exit({function}())"]
    return ("\n".join(lines) + "\n").encode()


def _link(path: str, to: str) -> RootEntry:
    return RootEntry(_relative(path), 0o777, link=to)


def _relative(path: str) -> str:
    return path.lstrip("/")
