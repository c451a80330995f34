"""A repository of a registry in memory, and a resolver container that does with it what the scripts do."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from backend.commands import NO_FEED, Feed
from backend.runner import Ending, Outcome
from builder.resolve.exchange import Resolver, Secrets
from builder.storage.store import ContentStore
from images.digests import Digest
from tests.fakes.registry import tar

Document = dict[str, Any]
Members = dict[str, bytes]


@dataclass(slots=True)
class Repository:
    """Manifests and blobs by digest, tags, and what refers to what. ``errors``: step -> what it ends with.

    ``spoil`` changes the members of an answer. ``jobs``: what was asked. ``order``: what was written.
    """

    blobs: dict[str, bytes] = field(default_factory=dict)
    manifests: dict[str, bytes] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    listed: dict[str, list[str]] = field(default_factory=dict)
    errors: dict[str, Document] = field(default_factory=dict)
    spoil: Callable[[Members], object] = len
    change: Callable[[Document], object] = len  # of result.json
    jobs: list[Document] = field(default_factory=list)
    files: list[Members] = field(default_factory=list)
    order: list[str] = field(default_factory=list)
    fed: int = 0

    def __call__(
        self, job: bytes, result: Path, on_stderr: Callable[[bytes], None], feed: Feed = NO_FEED
    ) -> Outcome:
        with tarfile.open(fileobj=io.BytesIO(job)) as archive:
            files = {m.name: archive.extractfile(m).read() for m in archive.getmembers()}  # type: ignore[union-attr]
        document = json.loads(files["job.json"])
        self.jobs.append(document)
        self.files.append(files)
        answer: Document = {"schema": 1, "error": None}
        members: Members = {}
        (verb,) = {"push", "pull"} & document.keys()
        on_stderr(json.dumps({"step": verb, "name": "x", "done": 1, "total": 1}).encode() + b"\n")
        act = self._push if verb == "push" else self._pull
        code = self.errors.get(verb) or act(document[verb], files, feed, members, answer)
        if code:
            answer["error"] = code if isinstance(code, dict) else {"code": code}
        self.spoil(members)
        self.change(answer)
        result.write_bytes(tar({**members, "result.json": json.dumps(answer).encode()}))
        return Outcome(ending=Ending.EXITED, exit_code=0)

    def _push(self, asked: Document, files: Members, feed: Feed, members: Members, answer: Document) -> str:
        if asked["brought"]:
            stream = b"".join(feed.chunks())
            assert len(stream) == feed.size
            self.fed += len(stream)
            for blob in asked["brought"]:
                raw, stream = stream[: blob["size"]], stream[blob["size"] :]
                self.blobs[blob["digest"]] = raw
                self.order.append("blob")
        else:
            answer["missing"] = [one["digest"] for one in asked["blobs"] if one["digest"] not in self.blobs]
            if answer["missing"]:
                return ""
        manifests = [*asked["others"], asked["image"]]
        for one in [*manifests, *asked["referrers"]]:
            self.manifests[one["digest"]] = files[one["file"]]
            self.order.append("referrer" if one in asked["referrers"] else "manifest")
        for one in asked["referrers"]:
            self.refer(asked["image"]["digest"], one["digest"])
        for one in manifests:
            for tag in one["tags"]:
                self.tags[tag] = one["digest"]
                self.order.append("tag")
        members["manifest"] = self.manifests[asked["image"]["digest"]]
        return ""

    def refer(self, subject: str, digest: str) -> None:
        """List one thing as a referrer, whatever it is."""
        listed = self.listed.setdefault(subject, [])
        if digest not in listed:
            listed.append(digest)

    def attach(self, subject: str, raw: bytes, *blobs: bytes) -> str:
        """Any bytes as a referrer's manifest, as a registry would take them."""
        digest = str(Digest.of(raw))
        self.manifests[digest] = raw
        self.blobs |= {str(Digest.of(blob)): blob for blob in blobs}
        self.refer(subject, digest)
        return digest

    def _pull(self, asked: Document, _: Members, feed: Feed, members: Members, answer: Document) -> str:
        assert feed is NO_FEED
        top = asked.get("digest") or self.tags.get(asked["tag"], "")
        if top not in self.manifests:
            return "E404"
        images = self._images(asked, top, members)
        for digest in images:
            document = json.loads(self.manifests[digest])
            for blob in [document[name] for name in ("config",) if name in document] + document.get(
                "layers", []
            ):
                if blob["digest"] not in asked.get("have", []):
                    members[_name("blobs", blob["digest"])] = self.blobs[blob["digest"]]
        if "evidence" in asked and len(images) == 1:
            answer["left"] = []
            self._evidence(asked["evidence"], images[0], members, answer["left"])
        return ""

    def _images(self, asked: Document, top: str, members: Members) -> list[str]:
        members[_name("blobs", top)] = self.manifests[top]
        document = json.loads(self.manifests[top])
        if "manifests" not in document:
            return [top]
        found = []
        for entry in document["manifests"]:
            platform = entry.get("platform", {})
            if f"{platform.get('os')}/{platform.get('architecture')}" in asked["platforms"]:
                members[_name("blobs", entry["digest"])] = self.manifests[entry["digest"]]
                found.append(entry["digest"])
        return found

    def _evidence(self, asked: Document, subject: str, members: Members, left: list[str]) -> None:
        for digest in self.listed.get(subject, []):
            raw = self.manifests.get(digest, b"")
            if not raw or len(raw) > asked["most_manifest"]:
                left.append(digest)
                continue
            members[_name("manifests", digest)] = raw
            try:
                one = json.loads(raw)
                parts = [one["config"], *one["layers"]]
                fits = one["artifactType"] in asked["types"] and one["subject"]["digest"] == subject
            except (ValueError, KeyError, TypeError):
                continue
            if fits and len(parts) == 2:
                for part in parts:
                    if part["digest"] not in self.blobs:
                        left.append(digest)
                    else:
                        members.setdefault(_name("blobs", part["digest"]), self.blobs[part["digest"]])


def _name(folder: str, digest: str) -> str:
    return f"{folder}/{digest.replace(':', '-')}"


def resolver_to(repository: Repository, staging: Path, secrets: Secrets | None = None) -> Resolver:
    """How to ask it."""
    staging.mkdir(exist_ok=True)
    return Resolver(
        run=repository,
        secrets=secrets or Secrets(),
        store=ContentStore(staging),
        staging=staging,
        on_progress=lambda _: None,
    )
