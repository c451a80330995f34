"""Which engine: found on the given PATH, identified by its own words, with a configuration that we own."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from backend.containers import EngineFacts
from backend.engines.client import Client
from backend.engines.docker import Docker
from backend.engines.podman import Podman
from backend.engines.protocol import Engine
from backend.runner import Command, run
from images.errors import HostError
from images.strictjson import JsonValue, read_json
from provenance.writing import replace_file, state_errors

ENGINES: Final = ("docker", "podman")
_HINT_NONE: Final = "install or start Docker or Podman, then builder doctor"
UNDECIDED: Final = "engine-undecided"  # the reason of a refusal: several could be used
DEFAULT_ENDPOINT: Final = "unix:///var/run/docker.sock"

_CONTAINERS_CONF: Final = """\
[containers]
env = []
http_proxy = false

[engine]
cgroup_manager = "cgroupfs"
events_logger = "none"
"""
_POLICY: Final = '{"default":[{"type":"insecureAcceptAnything"}]}\n'


def unjudged(_: Engine) -> str:
    """Nothing speaks against an engine that nobody probed."""
    return ""


def connect(
    name: str | None,
    client_home: Path,
    environment: Mapping[str, str],
    why_not: Callable[[Engine], str] = unjudged,
) -> Engine:
    """The engine of this name, or the only usable one. HostError lists what was tried.

    ``why_not``: what speaks against using an engine, empty for nothing; asked only where several answer.

    ``client_home``: a private directory of ours for the clients' configuration. From the ``environment`` are
    read PATH, HOME, DOCKER_HOST, DOCKER_CONTEXT, DOCKER_CONFIG, XDG_RUNTIME_DIR and XDG_DATA_HOME.
    A rootful engine never competes with a rootless one; between equals an exported DOCKER_HOST decides.
    """
    if name is not None and name not in ENGINES:
        raise HostError(f"no such engine: {name[:40]!r}", hint="use --engine docker or --engine podman")
    found: list[tuple[Engine, EngineFacts]] = []
    refused: list[str] = []
    for product in (name,) if name is not None else ENGINES:
        try:
            found.append(_connect_one(product, client_home, environment))
        except HostError as broken:
            if name is not None:
                raise
            refused.append(f"{product}: {broken.what}")
    best = [pair for pair in found if pair[1].rootless] or found
    if len(best) == 1:
        return best[0][0]
    if best:
        return _only_usable([engine for engine, _ in best], why_not, environment)
    raise HostError(f"no container engine answers ({'; '.join(refused)})", hint=_HINT_NONE)


def _only_usable(
    engines: list[Engine], why_not: Callable[[Engine], str], environment: Mapping[str, str]
) -> Engine:
    judged = [(engine, why_not(engine)) for engine in engines]
    usable = [engine for engine, against in judged if not against]
    # Who exports an address of Docker's has chosen; Podman has none here that could contradict it.
    chosen = [engine for engine in usable if engine.product == "docker" and environment.get("DOCKER_HOST")]
    if len(chosen or usable) == 1:
        return (chosen or usable)[0]
    hint = f"use --engine {(usable or engines)[0].product}, or write engine in settings.toml"
    if usable:
        names = " and ".join(engine.product for engine in usable)
        raise HostError(f"{names} both answer; choose one", hint=hint, reason=UNDECIDED)
    reasons = "; ".join(f"{engine.product}: {against}" for engine, against in judged)
    raise HostError(f"no container engine is usable ({reasons})", hint=hint)


def _connect_one(
    product: str, client_home: Path, environment: Mapping[str, str]
) -> tuple[Engine, EngineFacts]:
    path = environment.get("PATH", os.defpath)
    program = shutil.which(product, path=path)
    if program is None:
        raise HostError(
            f"{product} is not on the PATH", where=product, hint=f"install {product}, then builder doctor"
        )
    private_directory(client_home)
    engine = (
        _docker(program, client_home, environment)
        if product == "docker"
        else _podman(program, client_home, environment)
    )
    facts = engine.facts()
    if facts.product != product:
        raise HostError(
            f"{program} reaches {facts.product} {facts.version}, not {product}",
            where=product,
            hint=f"use --engine {facts.product}",
            reason="engine-identity",
        )
    return (replace(engine, told=facts) if isinstance(engine, Podman) else engine), facts


def _docker(program: str, client_home: Path, environment: Mapping[str, str]) -> Docker:
    endpoint = docker_endpoint(program, environment)
    home = private_directory(client_home / "docker")
    write_setting(home / "config.json", "{}\n")
    client = Client(
        product="docker",
        start=(program,),
        environment={
            "PATH": environment.get("PATH", os.defpath),
            "HOME": str(home),
            "DOCKER_CONFIG": str(home),
            "DOCKER_HOST": endpoint,
            "LC_ALL": "C.UTF-8",
        },
    )
    if "host" in (said := _said_by(client)) and "store" in said:
        raise HostError(
            f"{program} is Podman under another name",
            where="docker",
            hint="use --engine podman",
            reason="engine-identity",
        )
    return Docker(client=client, endpoint=endpoint)


def _said_by(client: Client) -> dict[str, JsonValue]:
    value = client.document("info", "--format={{json .}}", what="describe itself")
    return value if isinstance(value, dict) else {}


def docker_endpoint(program: str, environment: Mapping[str, str]) -> str:
    """The daemon that the operator's own client would use: DOCKER_HOST, else the current context.

    Anything but a unix socket is refused, without being repeated: an address may hold a password.
    """
    address = environment.get("DOCKER_HOST", "")
    if not address:
        names = ("PATH", "HOME", "DOCKER_CONFIG", "DOCKER_CONTEXT")
        asked = run(
            Command(
                argv=(program, "context", "inspect", "--format={{json .Endpoints.docker.Host}}"),
                environment={name: environment[name] for name in names if name in environment},
                deadline=10,
            )
        )
        said = read_json(asked.stdout, "docker context", error=HostError) if asked.ok else None
        address = said if isinstance(said, str) and said else DEFAULT_ENDPOINT
    if not address.startswith("unix:///") or not address.isprintable():
        scheme = address.split(":", 1)[0][:10]
        raise HostError(
            f"the docker endpoint is not a local socket (it begins with {scheme!r})",
            where="docker",
            hint="export DOCKER_HOST=unix:///path/to/docker.sock",
            reason="engine-remote",
        )
    return address


def _podman(program: str, client_home: Path, environment: Mapping[str, str]) -> Podman:
    home = private_directory(client_home / "podman")
    runtime_dir = environment.get("XDG_RUNTIME_DIR") or str(private_directory(client_home / "run"))
    rootless = os.geteuid() != 0
    settings = {
        "containers.conf": _CONTAINERS_CONF,
        "storage.conf": _storage(environment, runtime_dir, rootless=rootless),
        "registries.conf": "unqualified-search-registries = []\n",
        "policy.json": _POLICY,
        "mounts.conf": "",
    }
    for name, text in settings.items():
        write_setting(home / name, text)
    path = environment.get("PATH", os.defpath)
    # crun refuses a hybrid cgroup tree; runc takes every kind.
    runtime = ("--runtime=runc",) if shutil.which("runc", path=path) else ()
    client = Client(
        product="podman",
        start=(
            program,
            *runtime,
            "--cgroup-manager=cgroupfs",
            f"--default-mounts-file={home / 'mounts.conf'}",
        ),
        environment={
            "PATH": path,
            "HOME": str(home),
            "XDG_RUNTIME_DIR": runtime_dir,
            "CONTAINERS_CONF": str(home / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(home / "storage.conf"),
            "CONTAINERS_REGISTRIES_CONF": str(home / "registries.conf"),
            "LC_ALL": "C.UTF-8",
        },
    )
    return Podman(client=client, signature_policy=home / "policy.json", rootless=rootless)


def _storage(environment: Mapping[str, str], runtime_dir: str, *, rootless: bool) -> str:
    """The operator's own store, with overlay by name: otherwise Podman may take vfs without a word."""
    if not rootless:
        graph, run_root = "/var/lib/containers/storage", "/run/containers/storage"
    else:
        data = environment.get("XDG_DATA_HOME") or f"{environment.get('HOME', '')}/.local/share"
        graph, run_root = f"{data}/containers/storage", f"{runtime_dir}/containers"
    for place in (graph, run_root):
        if not place.startswith("/") or not place.isprintable() or set(place) & set('"\\'):
            raise HostError(
                "podman's storage has no plain absolute path",
                where="podman",
                hint="set HOME and XDG_RUNTIME_DIR",
            )
    return (
        f'[storage]\ndriver = "overlay"\ngraphroot = "{graph}"\nrootless_storage_path = "{graph}"\n'
        f'runroot = "{run_root}"\n'
    )


def private_directory(path: Path) -> Path:
    """Made with mode 0700 if missing. HostError if it is a link, somebody else's, or open to others."""
    with state_errors(path):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise HostError("not a private directory of this user", where=str(path), hint=f"chmod 700 {path}")
    return path


def write_setting(path: Path, text: str) -> None:
    """Written anew unless it holds exactly this: nothing that was slipped in survives."""
    if path.is_file() and not path.is_symlink() and path.read_text(errors="replace") == text:
        return
    replace_file(path, text.encode(), 0o600)
