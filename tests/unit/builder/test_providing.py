"""Images on hand: what is there is not asked for; what is not is pulled by digest, made, or refused."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from backend.containers import ContainerPlan, Purpose
from backend.ownership import Owner, hold_lease
from backend.runner import Outcome
from builder.locking import Project, read_fresh_lock, stale_reasons
from builder.providing import (
    find,
    lock_recipe,
    missing_roles,
    provide,
    provide_base,
    reference,
    require_buildkit,
    take_from,
)
from builder.report import Reporter
from builder.roles import Role
from builder.settings.settings_file import GivenImage, Proxy, Settings
from builder.state import open_state
from builder.workshop import Workshop, load_image, recipe, tool_digest
from images.config import parse_base, parse_config
from images.digests import Digest
from images.errors import BuilderError, ExitCode, HostError, NetworkFailed, PinError, UsageError
from images.lock import Lock
from images.lockfile import LOCK_NAME, lock_bytes
from images.oci import MEDIA_INDEX, MEDIA_MANIFEST
from provenance.layout import blob_path, list_images, open_image, read_blob
from provenance.layout_writing import add_manifest, import_image
from tests.fakes.engine import FakeEngine, said
from tests.fakes.layouts import flip, make_image
from tests.fakes.locks import AMD64, BUILDER_TOML, make_lock
from tests.unit.builder.test_pulling import Container

REGISTRY = "registry.test:5000/team"
KEYS = {Role.BASE: "base", Role.BUILD_CONTAINER: "build_container", Role.RESOLVER: "resolver"}


class Bench:
    """A state, a registry that is a layout, and an engine whose resolver pulls from it."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.state = open_state(root / "state")
        self.source = root / "registry"
        self.registry = Container(self.source)
        (root / "engine").mkdir()
        self.engine = FakeEngine(root / "engine")
        self.engine.main = self._main
        self.version = b"buildkitd github.com/moby/buildkit v9.8.7 abc\n"
        self.plans: list[ContainerPlan] = []
        self.made: dict[Role, Digest] = {}
        self.settings = Settings()
        self.given: dict[str, str] = {}
        monkeypatch.setattr("backend.engines.select.connect", lambda *_: self.engine)
        monkeypatch.setattr("builder.bootstrap.bootstrapped_image", lambda _, role, **__: self.made.get(role))

    @property
    def workshop(self) -> Workshop:
        return Workshop(
            state=self.state,
            settings=self.settings,
            environment={},
            engine_name=None,
            reporter=Reporter(stream=io.StringIO()),
            platform=AMD64,
            now=lambda: datetime(2026, 11, 29, tzinfo=UTC),
            given=self.given,
        )

    def make(self, role: Role) -> Digest:
        """As bootstrap does."""
        self.made[role] = make_image(self.state.layout, ({"made": role.encode()},))
        return self.made[role]

    def publish(self, role: Role, *, architecture: str = "amd64") -> Digest:
        """Put an image into the registry."""
        return make_image(
            self.source, ({"from": b"registry"}, {"is": role.encode()}), architecture=architecture
        )

    def publish_index(self, *digests: tuple[Digest, str]) -> Digest:
        entries = [
            {
                "mediaType": MEDIA_MANIFEST,
                "digest": str(digest),
                "size": len(read_blob(self.source, digest)),
                "platform": {"os": "linux", "architecture": architecture},
            }
            for digest, architecture in digests
        ]
        raw = json.dumps({"schemaVersion": 2, "mediaType": MEDIA_INDEX, "manifests": entries}).encode()
        return add_manifest(self.source, raw, media_type=MEDIA_INDEX).digest

    def give(self, role: Role, digest: Digest, *, registry: bool = True) -> GivenImage:
        """Write it into settings.toml."""
        source = parse_base(f"{REGISTRY}/{role}@{digest}") if registry else None
        given = GivenImage(digest, source)
        self.settings = replace(self.settings, **{KEYS[role]: given})  # type: ignore[arg-type]
        return given

    def refused(self, role: Role) -> BuilderError:
        with pytest.raises(BuilderError) as found:
            provide(self.workshop, role)
        assert found.value.hint
        return found.value

    def asked(self) -> list[str]:
        return [job["digest"] for job in self.registry.asked]

    def _main(self, plan: ContainerPlan, data: bytes) -> Outcome:
        self.plans.append(plan)
        if plan.purpose is not Purpose.RESOLVE:
            return said(self.version)
        result = self.root / "result"
        self.registry(data, result, lambda _: None)
        return said(result.read_bytes())


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path, monkeypatch)


@pytest.mark.parametrize("role", list(Role))
def test_what_bootstrap_made_is_used_without_asking_anybody(bench: Bench, role: Role) -> None:
    digest = bench.make(role)
    assert provide(bench.workshop, role).digest == digest == tool_digest(bench.workshop, role)
    assert bench.engine.calls == []


@pytest.mark.parametrize("role", list(Role))
def test_what_nobody_gives_or_made_is_refused(bench: Bench, role: Role) -> None:
    error = bench.refused(role)
    assert (error.code, error.hint) == (ExitCode.USAGE, "builder bootstrap")
    assert role.replace("-", " ") in error.what


@pytest.mark.parametrize("role", [Role.BASE, Role.BUILD_CONTAINER])
def test_a_given_image_is_pulled_once_and_re_hashed(bench: Bench, role: Role) -> None:
    resolver = bench.make(Role.RESOLVER)
    digest = bench.publish(role)
    bench.give(role, digest)
    assert provide(bench.workshop, role).digest == digest
    assert provide(bench.workshop, role).digest == digest
    assert bench.asked() == [digest]
    assert [plan.image.image.digest for plan in bench.plans] == [resolver]
    assert bench.engine.containers == {}


def test_a_resolver_whose_controller_died_is_removed_before_another_starts(bench: Bench) -> None:
    """It would go on by itself, with a network and the operator's secrets."""
    bench.make(Role.RESOLVER)
    bench.give(Role.BASE, bench.publish(Role.BASE))
    provide(bench.workshop, Role.BASE)  # for its plan
    dead = Owner(bench.state.id, "0" * 32).labels(Purpose.RESOLVE)
    fresh = {"agent-image-builder.owner", "agent-image-builder.state", "agent-image-builder.purpose"}
    labels = tuple(pair for pair in bench.plans[0].labels if pair[0] not in fresh)
    left = bench.engine.create(replace(bench.plans[0], name="left", labels=(*labels, *dead)))
    bench.give(Role.BASE, bench.publish(Role.RESOLVER))
    provide(bench.workshop, Role.BASE)
    assert left not in bench.engine.containers
    assert bench.engine.containers == {}


def test_a_bare_digest_is_in_the_layout_or_refused(bench: Bench) -> None:
    bench.make(Role.RESOLVER)
    digest = bench.publish(Role.BASE)
    bench.give(Role.BASE, digest, registry=False)
    error = bench.refused(Role.BASE)
    assert error.code is ExitCode.USAGE
    assert f"settings.toml: base = {digest}" in error.where
    assert bench.engine.calls == []
    import_image(bench.source, digest, bench.state.layout)
    assert provide(bench.workshop, Role.BASE).digest == digest


def test_an_index_means_its_image_for_this_machine(bench: Bench) -> None:
    bench.make(Role.RESOLVER)
    mine = bench.publish(Role.BASE)
    other = bench.publish(Role.BASE, architecture="arm64")
    index = bench.publish_index((mine, "amd64"), (other, "arm64"))
    bench.give(Role.BASE, index)
    assert provide(bench.workshop, Role.BASE).digest == mine
    assert provide(bench.workshop, Role.BASE).digest == mine
    assert bench.asked() == [index]


def test_an_image_for_other_machines_is_refused(bench: Bench) -> None:
    bench.make(Role.RESOLVER)
    other = bench.publish(Role.BASE, architecture="arm64")
    for digest in (other, bench.publish_index((other, "arm64"))):
        bench.give(Role.BASE, digest)
        error = bench.refused(Role.BASE)
        assert (error.code, error.where) == (ExitCode.PIN, "settings.toml: base")
        assert "linux/amd64" in error.what


def test_a_damaged_copy_is_pulled_again(bench: Bench) -> None:
    bench.make(Role.RESOLVER)
    digest = bench.publish(Role.BASE)
    bench.give(Role.BASE, digest)
    layer = provide(bench.workshop, Role.BASE).manifest.layers[0]
    flip(blob_path(bench.state.layout, layer.digest))
    assert provide(bench.workshop, Role.BASE).digest == digest
    assert bench.asked() == [digest, digest]


def test_a_given_resolver_is_pulled_by_the_bootstrapped_one_and_then_does_the_work(bench: Bench) -> None:
    starter = bench.make(Role.RESOLVER)
    resolver, base = bench.publish(Role.RESOLVER), bench.publish(Role.BASE)
    bench.give(Role.RESOLVER, resolver)
    bench.give(Role.BASE, base)
    assert provide(bench.workshop, Role.BASE).digest == base
    assert bench.asked() == [resolver, base]
    assert [plan.image.image.digest for plan in bench.plans] == [starter, resolver]


def test_a_given_resolver_that_nobody_can_pull_is_refused(bench: Bench) -> None:
    bench.give(Role.RESOLVER, bench.publish(Role.RESOLVER))
    error = bench.refused(Role.RESOLVER)
    assert (error.code, error.hint) == (ExitCode.USAGE, "builder bootstrap")
    assert "nor is one that could pull it" in error.what


@pytest.mark.parametrize("role", list(Role))
def test_cfg_06_a_vanished_digest_is_a_pin_error_and_no_tag_is_asked(bench: Bench, role: Role) -> None:
    bench.make(Role.RESOLVER)
    digest = Digest.of(b"gone")
    bench.give(role, digest)
    bench.registry.error = {"code": "E404", "retry_after": ""}
    error = bench.refused(role)
    assert isinstance(error, PinError)
    assert (error.reason, error.where) == ("not-found", f"settings.toml: {KEYS[role]}")
    assert "no longer has this digest" in error.what
    assert "settings.toml" in error.hint
    assert bench.asked() == [digest]


@pytest.mark.parametrize("name", ["HTTPS_PROXY", "http_proxy", "ALL_PROXY"])
def test_bld_05_a_proxy_that_only_the_environment_has_is_mentioned(bench: Bench, name: str) -> None:
    bench.make(Role.RESOLVER)
    bench.give(Role.BASE, Digest.of(b"unreachable"))
    bench.registry.error = {"code": "ENOTFOUND", "retry_after": ""}
    bench.given = {name: "http://me:dummy-word@p:1"}
    error = bench.refused(Role.BASE)
    assert error.hint.startswith(f"{name} of your environment is not used: write proxy into settings.toml")
    bench.settings = replace(bench.settings, proxy=Proxy(https="http://p:1"))
    assert "environment" not in bench.refused(Role.BASE).hint


@pytest.mark.parametrize(
    ("code", "after", "reason", "hint"),
    [
        ("E429", "17", "rate-limited", "wait 17 seconds, then: builder bootstrap"),
        ("E429", "", "rate-limited", "builder bootstrap"),
        ("E401", "", "auth", "registry_auth or netrc"),
        ("E503", "", "server", "builder bootstrap"),
        ("ENOTFOUND", "", "unreachable", "builder bootstrap"),
        ("EBADSIZE", "", "truncated", "builder bootstrap"),
    ],
)
def test_s_09_network_failures_keep_their_reasons(
    bench: Bench, code: str, after: str, reason: str, hint: str
) -> None:
    bench.make(Role.RESOLVER)
    bench.give(Role.BASE, bench.publish(Role.BASE))
    bench.registry.error = {"code": code, "retry_after": after}
    error = bench.refused(Role.BASE)
    assert isinstance(error, NetworkFailed)
    assert error.reason == reason
    assert hint in error.hint


def test_other_bytes_are_refused_and_not_named(bench: Bench) -> None:
    bench.make(Role.RESOLVER)
    named = list_images(bench.state.layout)
    bench.give(Role.BASE, bench.publish(Role.BASE))
    bench.registry.spoil = _last_is_evil
    error = bench.refused(Role.BASE)
    assert isinstance(error, NetworkFailed)
    assert error.reason == "wrong-digest"
    assert list_images(bench.state.layout) == named


def _last_is_evil(members: dict[str, bytes]) -> None:
    members[list(members)[-1]] = b"evil"


# -- what bootstrap has to make


def test_bootstrap_makes_only_what_settings_do_not_give(bench: Bench) -> None:
    assert missing_roles(bench.workshop) == set(Role)
    bench.give(Role.BASE, bench.publish(Role.BASE))
    assert missing_roles(bench.workshop) == {Role.BUILD_CONTAINER, Role.RESOLVER}
    bench.give(Role.BUILD_CONTAINER, bench.publish(Role.BUILD_CONTAINER))
    assert missing_roles(bench.workshop) == {Role.RESOLVER}


def test_a_given_resolver_needs_a_starter_until_it_is_here(bench: Bench) -> None:
    for role in Role:
        bench.give(role, bench.publish(role))
    assert missing_roles(bench.workshop) == {Role.RESOLVER}
    bench.make(Role.RESOLVER)
    provide(bench.workshop, Role.RESOLVER)
    assert missing_roles(bench.workshop) == set()


def test_nothing_is_made_when_no_registry_is_needed(bench: Bench) -> None:
    for role in Role:
        bench.give(role, make_image(bench.state.layout, ({"a": role.encode()},)), registry=False)
    assert missing_roles(bench.workshop) == set()


# -- a layout that somebody else's tools wrote


def test_given_images_are_taken_from_a_layout_re_hashed(bench: Bench) -> None:
    resolver = bench.publish(Role.RESOLVER)
    mine = bench.publish(Role.BASE)
    index = bench.publish_index((mine, "amd64"))
    bench.give(Role.RESOLVER, resolver)
    bench.give(Role.BASE, index)
    bench.give(Role.BUILD_CONTAINER, make_image(bench.state.layout, ({"b": b"here"},)), registry=False)
    take_from(bench.workshop, bench.source)
    assert provide(bench.workshop, Role.RESOLVER).digest == resolver
    assert provide(bench.workshop, Role.BASE).digest == mine
    assert missing_roles(bench.workshop) == set()
    assert bench.engine.calls == []


def test_a_layout_that_lies_is_refused(bench: Bench) -> None:
    digest = bench.publish(Role.RESOLVER)
    bench.give(Role.RESOLVER, digest)
    flip(blob_path(bench.source, open_image(bench.source, digest).manifest.layers[0].digest))
    with pytest.raises(UsageError, match="resolver cannot be taken from this layout") as refused:
        take_from(bench.workshop, bench.source)
    assert refused.value.where == str(bench.source)
    assert list_images(bench.state.layout) == ()


@pytest.mark.parametrize("there", [True, False])
def test_a_layout_without_the_image_is_refused(bench: Bench, there: bool) -> None:
    bench.give(Role.RESOLVER, Digest.of(b"elsewhere"))
    if there:
        make_image(bench.source)
    with pytest.raises(UsageError, match="cannot be taken" if there else "not an OCI layout"):
        take_from(bench.workshop, bench.source)


# -- which BuildKit


def given_container(bench: Bench) -> None:
    bench.make(Role.RESOLVER)
    bench.give(Role.BUILD_CONTAINER, bench.publish(Role.BUILD_CONTAINER))


def test_a_lock_records_the_buildkit_that_the_given_container_tells(bench: Bench) -> None:
    given_container(bench)
    assert lock_recipe(bench.workshop) == replace(recipe(), buildkit="v9.8.7")
    assert [plan.purpose for plan in bench.plans] == [Purpose.RESOLVE, Purpose.PROBE]
    assert bench.plans[1].arguments[-2:] == ("buildkitd", "--version")
    assert bench.engine.containers == {}


def test_without_one_it_records_the_pinned_buildkit(bench: Bench) -> None:
    assert lock_recipe(bench.workshop) == recipe()
    assert bench.engine.calls == []


def require(bench: Bench, wanted: str) -> None:
    workshop = bench.workshop
    loaded = load_image(workshop, bench.engine, provide(workshop, Role.BUILD_CONTAINER), "build container")
    with hold_lease(workshop.state.leases, workshop.state.id) as owner:
        require_buildkit(workshop, bench.engine, loaded, owner, wanted)


def test_a_build_compares_it_with_the_lock(bench: Bench) -> None:
    given_container(bench)
    require(bench, "v9.8.7")
    with pytest.raises(UsageError, match=r"the lock is for BuildKit v1\.0\.0.* holds v9\.8\.7") as refused:
        require(bench, "v1.0.0")
    assert (refused.value.hint, refused.value.reason) == ("builder lock", "stale-lock")
    assert "settings.toml: build_container = registry.test" in refused.value.where
    bench.version = b"something else\n"
    with pytest.raises(HostError, match="does not tell its BuildKit version"):
        require(bench, "v9.8.7")


def test_what_was_made_from_pins_is_not_asked(bench: Bench) -> None:
    bench.make(Role.BUILD_CONTAINER)
    require(bench, "anything")
    assert bench.plans == []


def project_of(bench: Bench, lock: Lock) -> Project:
    path = bench.root / "builder.toml"
    path.write_text(BUILDER_TOML)
    (bench.root / LOCK_NAME).write_bytes(lock_bytes(lock))
    return Project(path, parse_config(BUILDER_TOML, where="builder.toml"))


def test_without_an_engine_a_given_container_s_buildkit_is_taken_on_trust(bench: Bench) -> None:
    """A build asks the image itself; lock --check runs where no engine is."""
    lock = make_lock()
    project = project_of(bench, replace(lock, recipe=replace(recipe(), buildkit="v9.8.7")))
    assert [reason for reason in stale_reasons(project, bench.settings) if "BuildKit" in reason]
    with pytest.raises(UsageError, match="BuildKit's version: v9"):
        read_fresh_lock(project, bench.settings)
    bench.give(Role.BUILD_CONTAINER, Digest.of(b"somewhere"))
    assert [reason for reason in stale_reasons(project, bench.settings) if "BuildKit" in reason] == []
    assert bench.engine.calls == []


# -- the base of a lock, and the name of a base


def lock_with_base(digest: Digest, name: str) -> Lock:
    lock = make_lock()
    image = replace(lock.base.images[0], platform=AMD64, manifest=digest)
    return replace(lock, base=replace(lock.base, name=name, requested=digest, images=(image,)))


def test_the_base_of_a_lock_is_pulled_where_another_made_the_lock(bench: Bench) -> None:
    bench.make(Role.RESOLVER)
    digest = bench.publish(Role.BASE)
    lock = lock_with_base(digest, f"{REGISTRY}/base")
    assert provide_base(bench.workshop, lock, AMD64).digest == digest
    assert provide_base(bench.workshop, lock, AMD64).digest == digest
    assert bench.asked() == [digest]


def test_a_base_that_is_nowhere_is_refused(bench: Bench) -> None:
    with pytest.raises(UsageError, match="its name has no registry") as refused:
        provide_base(bench.workshop, lock_with_base(Digest.of(b"x"), "debian-minimal"), AMD64)
    assert refused.value.hint == "builder bootstrap"


def test_a_lock_whose_base_is_not_in_its_index_is_refused(bench: Bench) -> None:
    bench.make(Role.RESOLVER)
    index = bench.publish_index((bench.publish(Role.BASE), "amd64"))
    lock = lock_with_base(Digest.of(b"another"), f"{REGISTRY}/base")
    lock = replace(lock, base=replace(lock.base, requested=index, index=index))
    with pytest.raises(PinError, match="is not the base of the lock"):
        provide_base(bench.workshop, lock, AMD64)


def name_bare(bench: Bench) -> str:
    bench.give(Role.BASE, Digest.of(b"x"), registry=False)
    return f"base@{Digest.of(b'x')}"


def name_given(bench: Bench) -> str:
    return str(bench.give(Role.BASE, Digest.of(b"x")))


def name_made(bench: Bench) -> str:
    return f"debian-minimal@{bench.make(Role.BASE)}"


@pytest.mark.parametrize("prepare", [name_bare, name_given, name_made])
def test_the_base_as_builder_toml_names_it(bench: Bench, prepare: Callable[[Bench], str]) -> None:
    expected = prepare(bench)
    assert str(reference(bench.workshop, Role.BASE)) == expected
    parse_config(BUILDER_TOML.replace(BUILDER_TOML.split('base = "')[1].split('"')[0], expected), where="b")


def test_find_tells_whole_from_absent(bench: Bench) -> None:
    assert find(bench.workshop, Digest.of(b"nothing")) is None
    assert find(bench.workshop, bench.make(Role.BASE)) is not None
