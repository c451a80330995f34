"""Pulling by digest: only what hashes right is followed, and the layout names nothing half-pulled."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from backend.commands import NO_FEED, Feed
from backend.runner import Ending, Outcome
from builder.resolve.exchange import Progress, Resolver, Secrets, job_tar
from builder.resolve.pulling import pull
from builder.storage.store import ContentStore
from images.config import parse_base
from images.credentials import Secret
from images.digests import Digest
from images.errors import BuilderError, ExitCode, HostError, NetworkFailed, PinError
from images.oci import MEDIA_INDEX, MEDIA_MANIFEST, Platform
from provenance.layout import list_images, open_image, read_blob
from provenance.layout_writing import add_manifest, init_layout
from tests.attacks import Position, attack
from tests.fakes.layouts import make_image
from tests.fakes.registry import tar

AMD64 = Platform("linux", "amd64")
ARM64 = Platform("linux", "arm64")


@dataclass(slots=True)
class Container:
    """Answers a pull from a layout, in the order in which the real script does."""

    source: Path
    error: dict[str, str] | None = None
    spoil: Callable[[dict[str, bytes]], object] = len
    asked: list[dict[str, Any]] = field(default_factory=list)

    def __call__(
        self, job: bytes, result: Path, on_stderr: Callable[[bytes], None], feed: Feed = NO_FEED
    ) -> Outcome:
        del on_stderr, feed
        with tarfile.open(fileobj=io.BytesIO(job)) as archive:
            document = json.loads(archive.extractfile("job.json").read())  # type: ignore[union-attr]
        self.asked.append(document["pull"])
        members = {} if self.error else self._pull(document["pull"])
        self.spoil(members)
        members["result.json"] = json.dumps({"schema": 1, "error": self.error, "view": []}).encode()
        result.write_bytes(tar(members))
        return Outcome(ending=Ending.EXITED, exit_code=0)

    def _pull(self, asked: dict[str, Any]) -> dict[str, bytes]:
        members: dict[str, bytes] = {}

        def put(digest: str) -> dict[str, Any]:
            raw = read_blob(self.source, Digest(digest), 1 << 30)
            members[f"blobs/{digest.replace(':', '-')}"] = raw
            return dict(json.loads(raw)) if raw.startswith(b"{") else {}

        top = put(asked["digest"])
        manifests = [top]
        if "manifests" in top:
            children = [
                entry
                for entry in top["manifests"]
                if f"{entry['platform']['os']}/{entry['platform']['architecture']}" in asked["platforms"]
            ]
            manifests = [put(entry["digest"]) for entry in children]
        for manifest in manifests:
            for blob in (manifest["config"], *manifest["layers"]):
                put(blob["digest"])
        return members


class Bench:
    """A source layout, an empty layout, and a container between them."""

    def __init__(self, root: Path) -> None:
        self.layout = root / "layout"
        init_layout(self.layout)
        self.source = root / "source"
        self.digest = make_image(self.source, ({"a": b"1"}, {"b": b"2"}))
        self.container = Container(self.source)
        self.staging = root / "staging"
        self.staging.mkdir()
        self.heard: list[Progress] = []

    def pull(self, digest: Digest, *platforms: Platform, name: str = "registry.test:5000/base") -> None:
        resolver = Resolver(
            run=self.container,
            secrets=Secrets(),
            store=ContentStore(self.staging),
            staging=self.staging,
            on_progress=self.heard.append,
        )
        pull(parse_base(f"{name}@{digest}"), platforms or (AMD64,), resolver, self.layout)

    def refused(self, digest: Digest, *platforms: Platform) -> BuilderError:
        with pytest.raises(BuilderError) as found:
            self.pull(digest, *platforms)
        assert found.value.hint
        return found.value

    def index(self) -> tuple[Digest, dict[str, Digest]]:
        children = {name: make_image(self.source, architecture=name) for name in ("amd64", "arm64", "s390x")}
        entries = [
            {
                "mediaType": MEDIA_MANIFEST,
                "digest": str(digest),
                "size": len(read_blob(self.source, digest)),
                "platform": {"os": "linux", "architecture": name},
            }
            for name, digest in children.items()
        ]
        raw = json.dumps({"schemaVersion": 2, "mediaType": MEDIA_INDEX, "manifests": entries}).encode()
        return add_manifest(self.source, raw, media_type=MEDIA_INDEX).digest, children


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    found = Bench(tmp_path)
    yield found
    assert list(found.staging.iterdir()) == []


def test_a_platform_manifest(bench: Bench) -> None:
    bench.pull(bench.digest)
    assert open_image(bench.layout, bench.digest, AMD64).digest == bench.digest
    assert bench.container.asked == [
        {
            "registry": "registry.test:5000",
            "repository": "base",
            "digest": str(bench.digest),
            "platforms": ["linux/amd64"],
        }
    ]


def test_an_index_with_two_of_its_three_platforms(bench: Bench) -> None:
    index, children = bench.index()
    bench.pull(index, AMD64, ARM64)
    assert open_image(bench.layout, index, AMD64).digest == children["amd64"]
    assert open_image(bench.layout, index, ARM64).digest == children["arm64"]
    assert not (bench.layout / "blobs/sha256" / children["s390x"].hex).exists()


def change_first(members: dict[str, bytes]) -> None:
    members[next(iter(members))] += b" "


def change_last(members: dict[str, bytes]) -> None:
    members[list(members)[-1]] = b"evil"


@attack(11, by=Position.NETWORK)
def test_other_bytes_are_wrong_digest_and_nothing_is_named(bench: Bench) -> None:
    for spoil in (change_first, change_last):
        bench.container.spoil = spoil
        error = bench.refused(bench.digest)
        assert isinstance(error, NetworkFailed)
        assert error.reason == "wrong-digest"
        assert list_images(bench.layout) == ()


def drop_last(members: dict[str, bytes]) -> None:
    del members[list(members)[-1]]


def add_one(members: dict[str, bytes]) -> None:
    members["blobs/sha256-" + "0" * 64] = b"more"


def swap(members: dict[str, bytes]) -> None:
    name = list(members)[-1]
    raw = members.pop(name)
    first = next(iter(members))
    kept = members.pop(first)
    members[name] = raw
    members[first] = kept


@pytest.mark.parametrize("spoil", [drop_last, add_one, swap])
def test_less_more_or_another_order_is_refused(
    bench: Bench, spoil: Callable[[dict[str, bytes]], None]
) -> None:
    bench.container.spoil = spoil
    assert isinstance(bench.refused(bench.digest), HostError)
    assert list_images(bench.layout) == ()


def test_something_that_is_no_image(bench: Bench) -> None:
    digest = add_manifest(bench.source, b'{"mediaType":"text/plain","config":{},"layers":[]}').digest
    bench.container = NoImage(bench.source)
    error = bench.refused(digest)
    assert error.code is ExitCode.PIN
    assert "is no image" in error.what


class NoImage(Container):
    """Sends the one blob that was asked for."""

    def _pull(self, asked: dict[str, Any]) -> dict[str, bytes]:
        digest = Digest(asked["digest"])
        return {f"blobs/{asked['digest'].replace(':', '-')}": read_blob(self.source, digest)}


def test_cfg_06_a_digest_that_the_registry_no_longer_has(bench: Bench) -> None:
    bench.container.error = {"code": "E404", "retry_after": ""}
    error = bench.refused(bench.digest)
    assert error.code is ExitCode.PIN
    assert "no longer has this digest" in error.what
    assert error.reason == "not-found"
    assert len(bench.container.asked) == 1  # nobody asks for the tag instead


@pytest.mark.parametrize(
    ("code", "after", "reason", "hint"),
    [
        ("E429", "17", "rate-limited", "wait 17 seconds"),
        ("E429", "soon", "rate-limited", "wait a while"),
        ("E401", "", "auth", "registry_auth or netrc"),
        ("E503", "", "server", "network"),
        ("ENOTFOUND", "", "unreachable", "network"),
        ("EBADSIZE", "", "truncated", "network"),
        ("HPE_INVALID_CONSTANT", "", "server", "network"),
        ("EHOSTUNREACH", "", "unreachable", "network"),
        ("UNABLE_TO_VERIFY_LEAF_SIGNATURE", "", "unreachable", "ca_bundle"),
    ],
)
def test_s_09_network_failures_are_told_apart(
    bench: Bench, code: str, after: str, reason: str, hint: str
) -> None:
    bench.container.error = {"code": code, "retry_after": after}
    error = bench.refused(bench.digest)
    assert isinstance(error, NetworkFailed)
    assert error.reason == reason
    assert hint in error.hint


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("debian-minimal", None),
        ("team/base", None),
        ("registry.test/base", ("registry.test", "base")),
        ("localhost:5000/a/b", ("localhost:5000", "a/b")),
        ("localhost/a", ("localhost", "a")),
    ],
)
def test_which_names_have_a_registry(name: str, expected: tuple[str, str] | None) -> None:
    assert parse_base(name).registry == expected


def test_a_name_without_a_registry_is_refused(bench: Bench) -> None:
    with pytest.raises(PinError, match="its name has no registry"):
        bench.pull(bench.digest, name="debian-minimal")


def test_the_scripts_travel_with_the_job() -> None:
    job = job_tar({}, Secrets())
    assert all(name in job for name in (b"resolve.mjs", b"pull.mjs", b"tar.mjs"))


@pytest.mark.parametrize(
    ("stderr", "said"),
    [
        (b"", "nothing"),
        (b'{"step":"pull","name":"x","done":1,"total":2}\n', "nothing"),
        (
            b"node:internal\n    throw err;\nAssertionError [ERR_ASSERTION]: why\n    at f\n\nNode.js v24\n",
            "why",
        ),
        (b"sh: 1: cannot create /run/job: Permission denied", "Permission denied"),
        (b"Error: https://me:pass-word@registry.test/\n", "[redacted]@registry.test/"),
        (b"Error: dummy-npm-token and ZHVtbXktbnBtLXRva2Vu and dummy-npm%2Dtoken\n", "Error: [redacted] and"),
        (b"\x1b[2JError:\x07 x\n", "?[2JError:? x"),
        (b"Error: " + b"y" * 10_000, "y" * 280),
    ],
)
def test_what_a_broken_container_said_is_told_in_one_line_without_a_secret(
    bench: Bench, stderr: bytes, said: str
) -> None:
    def broken(job: bytes, result: Path, on_stderr: Callable[[bytes], None], feed: Feed = NO_FEED) -> Outcome:
        del job
        result.write_bytes(b"")
        for start in range(0, len(stderr), 7):
            on_stderr(stderr[start : start + 7])
        return Outcome(ending=Ending.EXITED, exit_code=1)

    secrets = Secrets(npmrc=Secret(b"//registry.test/:_authToken=dummy-npm-token\n"))
    resolver = Resolver(
        run=broken,
        secrets=secrets,
        store=ContentStore(bench.staging),
        staging=bench.staging,
        on_progress=bench.heard.append,
    )
    with pytest.raises(HostError) as found:
        pull(parse_base(f"registry.test/base@{bench.digest}"), (AMD64,), resolver, bench.layout)
    message = str(found.value)
    assert "exited, exit code 1; it said: " in message
    assert said in message
    assert "\n" not in message
    assert len(message) < 450
    assert not any(secret in message for secret in ("dummy-npm-token", "ZHVtbXktbnBtLXRva2Vu", "pass-word"))
    assert list_images(bench.layout) == ()
