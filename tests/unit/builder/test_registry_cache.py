"""A cache in a registry: what it gives is proved like by hand, or a build is made; it can only cost time."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from builder.locking import Project
from builder.registry.cached import Lookup, find_in_cache
from builder.registry.pushing import push
from builder.registry.reference import key_tag, parse_reference
from builder.resolve.exchange import Resolver
from builder.workshop import Workshop
from images.digests import Digest
from images.errors import HostError
from images.key import summarise
from provenance.layout import list_images, open_image
from provenance.ledger import open_ledger
from provenance.policy import Policy
from tests.attacks import Position, attack
from tests.fakes.layouts import make_image
from tests.fakes.locks import AMD64
from tests.fakes.policies import BUILDER_ID
from tests.fakes.proved import CONFIG, NAME, NOW, World, make_world, report_on
from tests.fakes.repository import Repository, resolver_to
from tests.fakes.states import files_of, said, workshop_at

CACHE = parse_reference("registry.test/team/cache")


@dataclass
class Desk:
    """Somebody's proved image in a registry, and the empty state of somebody who has the same lock."""

    world: World
    registry: Repository
    workshop: Workshop
    root: Path

    def look(self, *, policy: Policy | None = None, lock: bytes | None = None) -> Digest | None:
        project = cast(Project, SimpleNamespace(config=SimpleNamespace(name=NAME), config_path=self.root))
        return find_in_cache(
            self.workshop,
            Lookup(
                cache=CACHE,
                project=project,
                summary=summarise(self.world.lock, AMD64),
                lock_raw=lock or self.world.raw_lock,
                policy=policy or self.world.policy,
                now=lambda: NOW,
            ),
        )

    def refused(self, why: str, **changes: Any) -> None:
        before = files_of(self.workshop.state)
        assert self.look(**changes) is None
        assert files_of(self.workshop.state) == before
        assert why in said(self.workshop)
        with open_ledger(self.workshop.state.ledger) as ledger:
            assert list(ledger.entries()) == []

    @property
    def tag(self) -> str:
        return key_tag(summarise(self.world.lock, AMD64).key)


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    world = make_world(tmp_path / "theirs")
    world.prove()
    registry = Repository()
    push(world.layout, world.image.digest, CACHE, resolver_to(registry, tmp_path / "push"), "builder push")

    @contextmanager
    def resolver(*_: object) -> Iterator[Resolver]:
        yield resolver_to(registry, tmp_path / "staging")

    monkeypatch.setattr("builder.registry.cached.open_resolver", resolver)
    # Its plan and its bytes are other tests' matter.
    monkeypatch.setattr("builder.verifying._compare_config", lambda _: lambda *_: None)
    monkeypatch.setattr("builder.verifying._audit", lambda *_: None)
    monkeypatch.setattr("builder.verifying.scan_built", lambda image, *_: report_on(image))
    workshop = workshop_at(tmp_path / "ours")
    workshop.state.marks.write_bytes(json.dumps({}).encode())
    monkeypatch.setattr("provenance.verify.check_marks", lambda *_: None)
    monkeypatch.setattr("provenance.verify.read_marks", lambda _: None)
    return Desk(world, registry, workshop, tmp_path)


def test_what_is_proved_is_taken_and_found_again_by_its_key(desk: Desk) -> None:
    assert desk.look() == desk.world.image.digest
    assert open_image(desk.workshop.state.layout, desk.world.image.digest).digest == desk.world.image.digest
    with open_ledger(desk.workshop.state.ledger) as ledger:
        entry = ledger.find(summarise(desk.world.lock, AMD64).key, AMD64)
    assert entry is not None
    assert entry.digest == desk.world.image.digest
    assert next(job["pull"]["tag"] for job in desk.registry.jobs if "pull" in job) == desk.tag


def test_a_key_that_is_not_there_is_no_failure(desk: Desk) -> None:
    del desk.registry.tags[desk.tag]
    desk.refused("has no image of this key")


@pytest.mark.parametrize("code", ["E401", "E429", "E503", "ECONNRESET", "ETIMEDOUT", "ELINK"])
def test_a_cache_that_fails_is_said_and_passed_by(desk: Desk, code: str) -> None:
    desk.registry.errors = {"pull": {"code": code}}
    desk.refused("built here instead")


def unproved(desk: Desk) -> None:
    """Another image under the key, with nothing that proves it."""
    layout = desk.root / "evil"
    evil = make_image(layout, ({"opt/evil": b"x"},), config=CONFIG)
    image = push(layout, evil, CACHE, resolver_to(desk.registry, desk.root / "push"), "builder push")
    desk.registry.tags[desk.tag] = str(image.digest)


def borrowed(desk: Desk) -> None:
    """Another image under the key, with the evidence of the true one."""
    unproved(desk)
    desk.registry.listed[desk.registry.tags[desk.tag]] = desk.registry.listed[desk.world.image.digest]


def other_bytes(desk: Desk) -> None:
    layer = str(desk.world.image.manifest.layers[1].digest)
    desk.registry.blobs[layer] += b" "


def without_evidence(desk: Desk) -> None:
    desk.registry.listed.clear()


def of_another_lock(desk: Desk) -> None:
    """A proved image of another lock, by the same builder."""
    other = make_world(desk.root / "other")
    replace(other, lock=replace(other.lock, recipe=replace(other.lock.recipe, epoch=7))).prove()
    resolver = resolver_to(desk.registry, desk.root / "push")
    done = push(other.layout, other.image.digest, CACHE, resolver, "builder push")
    desk.registry.listed[done.digest] = desk.registry.listed[done.digest][-4:]
    desk.registry.tags[desk.tag] = str(done.digest)


def no_image(desk: Desk) -> None:
    desk.registry.manifests[desk.registry.tags[desk.tag]] = b"{}"


@attack(by=Position.REGISTRY)
@pytest.mark.parametrize(
    "lie", [unproved, borrowed, other_bytes, without_evidence, no_image, of_another_lock]
)
def test_a_lying_cache_costs_time_alone(desk: Desk, lie: Callable[[Desk], None]) -> None:
    lie(desk)
    desk.refused("built here instead")
    assert list_images(desk.workshop.state.layout) == ()


MODE = 'mode = "required"\n'


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (MODE, MODE + 'revoked = { digests = ["IMAGE"] }\n'),
        (MODE, MODE + "min_ruleset = 9999\n"),
        (MODE, MODE + 'max_age = "1h"\n'),
        (BUILDER_ID, "urn:example:somebody-else"),
        ("2027-02-28T00:00:00Z", "2026-11-30T00:00:00Z"),
    ],
)
def test_the_policy_of_today_decides(desk: Desk, old: str, new: str) -> None:
    new = new.replace("IMAGE", str(desk.world.image.digest))
    policy = desk.world.with_policy(lambda text: text.replace(old, new)).policy
    desk.refused("built here instead", policy=policy)


def test_the_lock_beside_builder_toml_is_what_counts(desk: Desk) -> None:
    desk.refused("built here instead", lock=desk.world.raw_lock.replace(b"debian-minimal", b"debian-maximal"))


def test_a_scan_here_that_finds_something_is_believed(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def unclean(image: Any, *_: object) -> Any:
        return report_on(image, incomplete=("layer 1",))

    monkeypatch.setattr("builder.verifying.scan_built", unclean)
    desk.refused("built here instead")


def test_an_engine_that_cannot_be_used_is_the_builds_own_matter(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> Resolver:
        raise HostError("no engine", hint="builder doctor")

    monkeypatch.setattr("builder.registry.cached.open_resolver", broken)
    desk.refused("built here instead")
