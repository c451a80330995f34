"""What engines and containers say: documents, accounts of the inside, exports, git's objects, probes."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from backend.commands import Command
from backend.detect import _VERSION
from backend.engines import docker_documents as docker
from backend.engines import podman_documents as podman
from backend.engines.client import Client, complaint
from backend.inside import inside_argv, read_inside
from backend.probe_cache import keep, read_kept
from backend.runner import run
from backend.workspace.checking import faults
from backend.workspace.export_frame import read_frame
from backend.workspace.export_manifest import FORMAT, read_manifest
from backend.workspace.objects import BatchReader, Collected, ObjectFormat, Wanted
from backend.workspace.trees import Mode, _entries, tree_line
from backend.workspace.unseen import MAX_UNSEEN, read_status
from images.errors import HostError
from images.strictjson import read_json
from tests.fakes.admitted import probe_of
from tests.fuzz.mutate_bytes import mutate_bytes
from tests.fuzz.mutate_json import mutate_json
from tests.fuzz.target import Ready, law, target

DOCUMENTS = Path(__file__).resolve().parents[2] / "unit" / "backend" / "documents"
NONCE = "c0ffee"


def _document(name: str) -> bytes:
    return (DOCUMENTS / f"{name}.json").read_bytes()


def _client(product: str) -> Client:
    return Client(product=product, start=(product,), environment={})


@target(mutate_json, share=0.3)
def docker_container(folder: Path) -> Ready:
    """docker container inspect."""
    client = _client("docker")

    def look(raw: bytes) -> object:
        value = client.read(raw, "container inspect")
        found = docker.container_of(docker.read_document(docker.ContainerDocument, value, "docker"))
        hash(found)
        return found

    return Ready((json.dumps(_first(_document("docker-20.10-container"))).encode(),), look)


def _first(raw: bytes) -> Any:
    value = json.loads(raw)
    return value[0] if isinstance(value, list) else value


@target(mutate_json, share=0.3)
def podman_container(folder: Path) -> Ready:
    """podman container inspect."""
    client = _client("podman")

    def look(raw: bytes) -> object:
        value = client.read(raw, "container inspect")
        found = podman.container_of(docker.read_document(podman.ContainerDocument, value, "podman"))
        hash(found)
        return found

    return Ready((json.dumps(_first(_document("podman-4.3-container"))).encode(),), look)


@target(mutate_json, share=0.6)
def docker_identity(folder: Path) -> Ready:
    """docker version and docker info, as two members of one document."""

    def look(raw: bytes) -> object:
        both = read_json(raw, "docker", error=HostError)
        if not isinstance(both, list) or len(both) != 2:
            raise HostError("two are asked for", where="docker")
        facts = docker.facts_of(
            docker.read_document(docker.VersionDocument, both[0], "version"),
            docker.read_document(docker.InfoDocument, both[1], "info"),
            endpoint="unix:///run/docker.sock",
            host_name="h",
            kernel="k",
        )
        hash(facts)
        return facts

    return Ready(
        (b"[" + _document("docker-20.10-version") + b"," + _document("docker-20.10-info") + b"]",), look
    )


@target(mutate_json, share=0.6)
def podman_identity(folder: Path) -> Ready:
    """podman info."""
    client = _client("podman")

    def look(raw: bytes) -> object:
        info = docker.read_document(podman.InfoDocument, client.read(raw, "info"), "podman info")
        facts = podman.facts_of(info, host_name="h", kernel="k")
        hash(facts)
        return facts

    return Ready((_document("podman-4.3-info"),), look)


@target(mutate_json, share=3)
def engine_image(folder: Path) -> Ready:
    """image inspect, of both."""
    client = _client("podman")
    raw = json.dumps(
        {"Id": "a" * 64, "Digest": "sha256:" + "a" * 64, "RootFS": {"Layers": ["sha256:" + "b" * 64]}}
    ).encode()

    def look(data: bytes) -> object:
        value = client.read(data, "image inspect")
        docker.read_document(docker.ImageDocument, value, "docker")
        found = docker.read_document(podman.ImageDocument, value, "podman")
        return podman.digest_of_id(found.Id)

    return Ready((raw,), look)


@target(mutate_bytes, share=3)
def engine_complaint(folder: Path) -> Ready:
    """What an engine writes to standard error: a short line that a terminal can show."""

    def look(raw: bytes) -> object:
        said = complaint(raw)
        law(len(said) <= 400 and (said.isprintable() or not said), "a complaint that is no short line")
        return said

    return Ready(
        (b"Error: no such container\n", b"\x1b[31mError\x1b[0m: token sk-ant-api03-xxxx\nlast line"), look
    )


@target(mutate_bytes)
def account_of_the_inside(folder: Path) -> Ready:
    """What a container says of itself."""
    seed = _inside()
    cgroup_two = seed.replace(
        b"limits\n", b"limits\nmemory.max 1073741824\npids.max 512\ncpu.max 200000 100000\n"
    )
    cgroup_one = seed.replace(
        b"limits\n",
        b"limits\nmemory/memory.limit_in_bytes 1024\ncpu/cpu.cfs_quota_us 1000\ncpu/cpu.cfs_period_us 1000\n",
    )

    def look(raw: bytes) -> object:
        found = read_inside(raw, NONCE)
        hash(found)
        limits = found.limits
        for value in (limits.memory, limits.pids, limits.cpus):
            law(value is None or value >= 0, "a negative limit")
        return found

    return Ready((seed, cgroup_one, cgroup_two), look)


def _inside() -> bytes:
    """The real script of this very process, without its limits, which are the machine's."""
    outcome = run(
        Command(
            argv=inside_argv(NONCE, "cat", ("/tmp", "/proc/1")),
            environment={"PATH": "/usr/bin:/bin"},
            deadline=30,
            working_dir=Path("/"),
        )
    )
    before, mark, after = outcome.stdout.partition(f"\n{NONCE} limits\n".encode())
    return before + mark + after[after.index(f"\n{NONCE} writable".encode()) :]


@target(mutate_bytes, share=3)
def check_of_the_workspace(folder: Path) -> Ready:
    """What a container says about /workspace and /source: anything but its last line is a fault."""
    good = f"checked {NONCE}\n".encode()

    def look(raw: bytes) -> object:
        found = faults(raw, NONCE)
        law(found or raw == good, "an answer with something else in it passed")
        law(all(text.isprintable() for text in found), "a fault that no terminal can show")
        if found:
            raise HostError("faults", where="check")
        return found

    return Ready((good,), look)


@target(mutate_bytes, share=3)
def workspace_status(folder: Path) -> Ready:
    """git status of the agent's repository."""
    text = (
        b"1 .M N... 100644 100644 100644 " + b"a" * 40 + b" " + b"b" * 40 + b" a file\n"
        b"? untracked\n? nested/\nu UU N... 100644 100644 100644 100644 "
        + b" ".join([b"c" * 40] * 3)
        + b' "q\\303"\n'
    )

    def look(raw: bytes) -> object:
        for complete in (True, False):
            found = read_status(raw, complete=complete)
            law(len(found.entries) <= min(MAX_UNSEEN, found.total), "more entries than there may be")
        return found

    return Ready((text,), look)


def _manifest() -> dict[str, Any]:
    return {
        "schema": 1,
        "format": FORMAT,
        "objectFormat": "sha1",
        "base": "a" * 40,
        "commit": "b" * 40,
        "parents": ["a" * 40],
        "branch": "work",
        "pack": {"size": 20, "sha256": "0" * 64, "objects": 3},
        "notExported": {"total": 1, "complete": True, "entries": [{"kind": "untracked", "path": "x"}]},
    }


@target(mutate_json)
def export_manifest(folder: Path) -> Ready:
    """The manifest of an export."""

    def look(raw: bytes) -> object:
        found = read_manifest(raw, ObjectFormat.SHA1)
        law(type(json.loads(raw)["schema"]) is int, "a schema that is no whole number was taken")
        law(
            all(ObjectFormat.SHA1.is_name(name) for name in (found.base, found.commit, *found.parents)),
            "a name",
        )
        return found.unseen

    return Ready(
        (json.dumps(_manifest()).encode(), json.dumps(_manifest() | {"branch": None}).encode()), look
    )


@target(mutate_bytes)
def export_frame(folder: Path) -> Ready:
    """The whole stream of an export: its sizes add up, and its pack is what was hashed."""
    pack = b"PACK\0\0\0\2\0\0\0\3" + b"x" * 50
    manifest = json.dumps(_manifest()).encode()
    file = folder / "export"

    def frame(body: bytes) -> bytes:
        return f"{FORMAT} 1 {len(manifest)} {len(body)}\n".encode() + manifest + body

    def look(raw: bytes) -> object:
        file.write_bytes(raw)
        found = read_frame(file, 1 << 20)
        body = b"".join(found.pack())
        law(
            hashlib.sha256(body).hexdigest() == found.pack_sha256 and len(body) == found.pack_size,
            "another pack",
        )
        law(raw.endswith(found.manifest + body), "something between or behind")
        return read_manifest(found.manifest, ObjectFormat.SHA1)

    return Ready((frame(pack), frame(b"")), look)


@target(mutate_bytes, share=3)
def git_objects(folder: Path) -> Ready:
    """git cat-file --batch over an agent's objects: each is what its name says."""
    contents = (b"tree " + b"a" * 40 + b"\nauthor x\n\nword\n", b"another\n" * 9)
    wanted = [
        Wanted(name=ObjectFormat.SHA1.name_of(kind, content), kind=kind, max_bytes=1000)
        for kind, content in zip(("commit", "blob"), contents, strict=True)
    ]
    stream = b"".join(
        f"{one.name} {one.kind} {len(content)}\n".encode() + content + b"\n"
        for one, content in zip(wanted, contents, strict=True)
    )

    def look(raw: bytes) -> object:
        taken = Collected(2000)
        reader = BatchReader(wanted, ObjectFormat.SHA1, taken)
        for at in range(0, len(raw), 37):
            reader.take(raw[at : at + 37])
        reader.close()
        law(raw == stream, "another stream was taken for the objects asked for")
        return taken.contents

    return Ready((stream,), look)


@target(mutate_bytes, share=3)
def git_tree(folder: Path) -> Ready:
    """A tree object of an agent's commit: written again it is the same bytes."""
    lines = (
        (b".gitattributes", Mode.FILE),
        (b"bin.sh", Mode.EXECUTABLE),
        (b"bin", Mode.DIRECTORY),
        (b"link", Mode.LINK),
        ("näme".encode(), Mode.FILE),
    )
    seed = b"".join(tree_line(name, mode, "ab" * 20) for name, mode in lines)

    def look(raw: bytes) -> object:
        found = _entries(raw, ObjectFormat.SHA1, "t" * 40)
        law(
            b"".join(tree_line(one.path, one.mode, one.name) for one in found) == raw,
            "another spelling was taken",
        )
        law(
            all(one.path.lower() not in (b".git", b"..", b".") and b"/" not in one.path for one in found),
            "a name",
        )
        return found

    return Ready((seed,), look)


@target(mutate_json, share=0.3)
def probe_cache(folder: Path) -> Ready:
    """The kept answers of a probe: whole and as written, or none."""
    path = folder / "probe.json"
    keep(probe_of(), path)
    seed = path.read_bytes()

    def look(raw: bytes) -> object:
        path.write_bytes(raw)
        found = read_kept(path)
        if found is None:
            raise HostError("asked anew", where="probe")
        hash(found.facts)
        return found

    return Ready((seed,), look)


@target(mutate_bytes, share=3)
def version_of_an_agent(folder: Path) -> Ready:
    """What a CLI prints when asked for its version."""

    def look(raw: bytes) -> object:
        found = _VERSION.search(raw)
        if found is None:
            raise HostError("no version", where="detect")
        law(found[1].decode("ascii").isprintable(), "a version that no terminal can show")
        return found[1]

    return Ready((b"2.1.328 (Claude Code)\n", b"warning: old\nv1.18.33\n"), look)
