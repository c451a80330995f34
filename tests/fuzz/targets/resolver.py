"""What the resolver container answers: locks of npm, uv and apt, facts, registries' documents, its tar."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from backend.commands import Feed
from backend.runner import Ending, Outcome
from builder.resolve.debian import MAX_ANSWER, _read_answer
from builder.resolve.exchange import Member, Resolver, Secrets, exchange
from builder.resolve.facts import FactsRequest, read_facts
from builder.resolve.job import FetchRequest, Job, NewestRequest, RootRequest, ViewRequest, perform
from builder.resolve.npm_platform import NpmPlatform
from builder.resolve.npm_tree import prune, read_npm_lock
from builder.resolve.pulling import pull
from builder.resolve.pypi_job import PypiJob, _offers, perform_pypi
from builder.resolve.pypi_tree import read_pylock
from builder.resolve.python import Python
from builder.resolve.tags import look_up
from builder.resolve.tarball import read_manifest
from builder.storage.store import ContentStore
from images.config import parse_base
from images.digests import Digest
from images.oci import MEDIA_INDEX, MEDIA_MANIFEST
from provenance.layout_writing import init_layout
from tests.fakes.layouts import make_image
from tests.fakes.locks import AMD64, SIGNER
from tests.fakes.registry import integrity_of
from tests.fuzz.mutate_archives import mutate_tar
from tests.fuzz.mutate_bytes import mutate_bytes
from tests.fuzz.mutate_json import mutate_json
from tests.fuzz.mutate_toml import mutate_toml
from tests.fuzz.target import Ready, law, target

PLATFORM = NpmPlatform("linux", "x64")
PYTHON = Python("3.11", "2.36")


def raw(document: object) -> bytes:
    return json.dumps(document).encode()


def answer_tar(*members: tuple[str, bytes]) -> bytes:
    """As the container writes it: one name may come more than once."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, content in members:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return out.getvalue()


def resolver_that_says(folder: Path, data: Callable[[], bytes]) -> Resolver:
    """A container whose whole answer is these bytes."""
    (folder / "staging").mkdir(exist_ok=True)
    (folder / "store").mkdir(exist_ok=True)

    def run(_job: bytes, result: Path, said: Callable[[bytes], None], _feed: Feed) -> Outcome:
        said(b'{"step":"resolve","name":"x","done":1,"total":2,"bytes":3}\nnpm error x\n')
        result.write_bytes(data())
        return Outcome(ending=Ending.EXITED, exit_code=0)

    return Resolver(
        run=run,
        secrets=Secrets(),
        store=ContentStore(folder / "store"),
        staging=folder / "staging",
        on_progress=lambda _: None,
    )


NPM_LOCK = {
    "name": "x",
    "lockfileVersion": 3,
    "requires": True,
    "packages": {
        "": {"dependencies": {"@a/b": "1.0.0"}},
        "node_modules/@a/b": {
            "version": "1.0.0",
            "integrity": integrity_of(b"b").sri,
            "dependencies": {"c": "^1"},
            "optionalDependencies": {"d": "1", "e": "2"},
            "bin": {"b": "cli.js"},
            "os": ["linux"],
        },
        "node_modules/c": {
            "version": "1.2.3",
            "integrity": "sha1-x= " + integrity_of(b"c").sri,
            "peerDependencies": {"z": "*"},
        },
        "node_modules/@a/b/node_modules/d": {
            "version": "1.0.0",
            "inBundle": True,
            "optional": True,
            "cpu": ["arm64"],
        },
    },
}


@target(mutate_json)
def npm_lock(folder: Path) -> Ready:
    """package-lock.json as npm left it."""
    return Ready((raw(NPM_LOCK),), lambda data: prune(read_npm_lock(data, "agents.b"), PLATFORM, "agents.b"))


@target(mutate_json, share=3)
def npm_package_json(folder: Path) -> Ready:
    """package.json in a tarball; published ones have a key twice."""
    document = {
        "name": "@a/b",
        "version": "1.0.0",
        "bin": "x",
        "scripts": {"install": "x"},
        "dependencies": {"c": "1"},
    }
    return Ready((raw(document),), lambda data: read_manifest(data, "@a/b@1.0.0"))


@target(mutate_json, share=3)
def registry_facts(folder: Path) -> Ready:
    """What registries say of versions: dates, signatures, statements."""
    asked = (FactsRequest("@a/b", ("1.0.0",)), FactsRequest("c"))
    release = {
        "version": "1.0.0",
        "published": "2026-01-01T00:00:00Z",
        "deprecated": False,
        "attested": True,
        "signatures": [{"keyid": "SHA256:x", "sig": "MEUC"}],
        "statements": {"document": "{}", "code": ""},
    }
    seed = raw([{"versions": [release]}, {"code": "E404"}])
    return Ready((seed,), lambda data: read_facts(data, asked))


def _job() -> Job:
    return Job(
        resolve=(RootRequest("agents.b", "@a/b", "1.0.0", PLATFORM),),
        view=(ViewRequest("d", "1"),),
        newest=(NewestRequest("c", "^1", "1.2.3"),),
        fetch=(FetchRequest("c", "1.2.3", integrity_of(b"tarball")),),
        facts=(FactsRequest("c"),),
    )


NPM_RESULT = {
    "view": [{"code": "", "os": ["linux"], "cpu": "x64"}],
    "newest": [
        {"found": {"versions": [{"version": "1.3.0", "deprecated": False}]}, "pinned": {"code": "E404"}}
    ],
    "error": None,
}


@target(mutate_tar, share=0.3)
def answer_to_npm_s_job(folder: Path) -> Ready:
    """The one tar of a whole answer: what was not asked for ends the job."""
    given = [b""]
    resolver = resolver_that_says(folder, lambda: given[0])
    seed = answer_tar(
        ("locks/0.json", raw(NPM_LOCK)),
        ("facts.json", raw([{"versions": []}])),
        ("tarballs/0.tgz", b"tarball"),
        ("result.json", raw(NPM_RESULT)),
    )

    def look(data: bytes) -> object:
        given[0] = data
        return perform(_job(), resolver)

    return Ready((seed,), look)


@target(mutate_json, share=0.15)
def result_of_npm_s_job(folder: Path) -> Ready:
    """result.json of such an answer, errors included."""
    given = [b""]
    resolver = resolver_that_says(folder, lambda: given[0])
    job = Job(view=(ViewRequest("d", "1"),), newest=(NewestRequest("c", "^1", "1.2.3"),))
    # An error is a refusal too: its seed is the answer without.
    with_error = {**NPM_RESULT, "error": {"code": "E404", "label": "x", "spec": "y", "step": "resolve"}}

    def look(data: bytes) -> object:
        given[0] = answer_tar(("result.json", data))
        return perform(job, resolver)

    def also(data: bytes) -> object:
        document = data.replace(b'"error": null', raw({"error": with_error["error"]})[1:-1])
        try:
            look(document)
        except Exception as broken:  # noqa: BLE001  (its kind is the question)
            law(
                type(broken).__module__ == "images.errors",
                f"{type(broken).__name__} for an error of the container's",
            )
        return look(data)

    return Ready((raw(NPM_RESULT),), also)


@target(mutate_json, share=0.3)
def result_of_uv_s_job(folder: Path) -> Ready:
    """result.json of a job about Python packages."""
    given = [b""]
    resolver = resolver_that_says(folder, lambda: given[0])
    seed = raw({"newest": [], "yanked": [], "error": None})

    def look(data: bytes) -> object:
        given[0] = answer_tar(("result.json", data))
        return perform_pypi(PypiJob(), resolver)

    return Ready((seed,), look)


@target(mutate_bytes, share=0.3)
def words_of_the_resolver(folder: Path) -> Ready:
    """What the container writes to standard error, line by line."""
    given = [b""]
    seen: list[object] = []
    inner = resolver_that_says(folder, lambda: answer_tar(("result.json", b"{}")))

    def run(job: bytes, result: Path, said: Callable[[bytes], None], _feed: Feed) -> Outcome:
        for at in range(0, len(given[0]), 29):
            said(given[0][at : at + 29])
        return inner.run(job, result, lambda _: None, _feed)

    resolver = Resolver(
        run=run, secrets=Secrets(), store=inner.store, staging=inner.staging, on_progress=seen.append
    )
    seed = b'{"step":"resolve","name":"x","done":1,"total":2}\nnpm error x\n{"step":"fetch","name":"y"}\n'

    def look(data: bytes) -> object:
        given[0] = data
        return exchange({}, resolver, lambda _: None)

    return Ready((seed,), look)


PYLOCK = b"""lock-version = "1.0"
created-by = "uv"
requires-python = ">=3.11"
[[packages]]
name = "quick"
version = "1.0"
wheels = [
  { url = "http://x/quick-1.0-py3-none-any.whl", upload-time = 2026-01-02T03:04:05Z, hashes={sha256="@0"} },
  { url = "https://x.test/a/quick-1.0-cp311-cp311-manylinux_2_28_x86_64.whl", hashes = { sha256 = "@1" } },
]
[[packages]]
name = "other"
version = "2.0.1"
wheels = [{ url = "https://x.test/a/other-2.0.1-py3-none-any.whl", hashes = { sha256 = "@2" } }]
"""
for _digit in b"012":
    PYLOCK = PYLOCK.replace(b"@%c" % _digit, b"%c" % _digit * 64)


@target(mutate_toml, share=0.6)
def pylock(folder: Path) -> Ready:
    """uv's answer."""
    return Ready((PYLOCK,), lambda data: read_pylock(data, "toolchain.pypi.quick", PYTHON, AMD64))


@target(mutate_json, share=3)
def statements_of_publishers(folder: Path) -> Ready:
    """What an index offers about publishers."""
    seed = raw([{"document": "{}", "code": ""}, {"code": "E404"}])
    return Ready((seed,), lambda data: list(_offers(data)))


@target(mutate_json, share=3)
def debian_answer(folder: Path) -> Ready:
    """apt's answer."""
    package = {
        "name": "make",
        "architecture": "amd64",
        "version": "4.3-4.1",
        "sha256": "0" * 64,
        "size": 10,
        "signer": SIGNER,
    }
    seed: dict[str, Any] = {
        "packages": [package, {**package, "name": "libgc1", "architecture": "all"}],
        "steps": [
            {"action": "unpack", "names": ["libgc1", "make"]},
            {"action": "configure", "names": ["make"]},
        ],
    }

    def look(data: bytes) -> object:
        return _read_answer(Member("debian.json", min(len(data), MAX_ANSWER), io.BytesIO(data)))

    return Ready((raw(seed),), look)


@target(mutate_json, share=0.15)
def registry_manifest(folder: Path) -> Ready:
    """What a registry sends when a base is pulled by digest: other bytes are never taken."""
    layout = folder / "from"
    digest = make_image(layout)
    path = layout / "blobs" / "sha256" / digest.hex
    manifest = path.read_bytes()
    document = json.loads(manifest)
    blobs = [
        (one["digest"], (layout / "blobs" / "sha256" / one["digest"][7:]).read_bytes())
        for one in (document["config"], *document["layers"])
    ]
    given = [b""]
    resolver = resolver_that_says(folder, lambda: given[0])
    base = parse_base(f"registry.test/team/base@{digest}")
    count = [0]

    def look(data: bytes) -> object:
        count[0] += 1
        to = folder / f"to-{count[0]}"
        init_layout(to)
        members = [
            (f"blobs/{digest.replace(':', '-')}", data),
            *((f"blobs/{name.replace(':', '-')}", blob) for name, blob in blobs),
        ]
        given[0] = answer_tar(*members, ("result.json", raw({"error": None})))
        pull(base, (AMD64,), resolver, to)
        law(data == manifest, "another manifest was taken under this digest")
        return digest

    return Ready((manifest,), look)


@target(mutate_json, share=0.3)
def registry_tag(folder: Path) -> Ready:
    """What a registry says a tag names."""
    digest = Digest.of(b"x")
    given = [b""]
    resolver = resolver_that_says(folder, lambda: given[0])
    base = parse_base(f"registry.test/team/base:stable@{digest}")
    index = {
        "schemaVersion": 2,
        "mediaType": MEDIA_INDEX,
        "manifests": [{"mediaType": MEDIA_MANIFEST, "digest": str(digest), "size": 3}],
    }

    def look(data: bytes) -> object:
        given[0] = answer_tar(
            ("manifests/0.json", data), ("manifests/1.json", data), ("result.json", raw({"found": ["", ""]}))
        )
        return look_up(base, resolver)

    return Ready((raw(index),), look)


@target(mutate_json, share=0.3)
def registry_tag_result(folder: Path) -> Ready:
    """result.json of such a question."""
    given = [b""]
    resolver = resolver_that_says(folder, lambda: given[0])
    base = parse_base(f"registry.test/team/base:stable@{Digest.of(b'x')}")

    def look(data: bytes) -> object:
        given[0] = answer_tar(("manifests/1.json", b"{}"), ("result.json", data))
        return look_up(base, resolver)

    return Ready((raw({"found": ["E404", ""]}),), look)
