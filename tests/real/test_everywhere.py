"""One digest everywhere: the full image on every engine, and a small real one however its build is varied."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from backend.engines.protocol import Engine
from builder.bootstrap import Bootstrapped
from builder.state import State
from images.config import parse_config
from images.lock import ArtifactKind, Lock, config_digest
from images.lockfile import lock_bytes, parse_lock
from provenance.layout import list_images, open_image
from tests.conftest import products_asked
from tests.real.conftest import Evidence, FirstCommand
from tests.real.spine import PROJECT, ROOT
from tests.real.tiny import ELSEWHERE, TONGUE, Tiny, make_tiny

pytestmark = pytest.mark.real

# What root's run on the rootful Docker made, where it handed its work over: tests/real/handing_over.py.
HANDED = ROOT / ".state/digest"
HANDED_SMALL = ROOT / ".state/digest-small"


@pytest.fixture(scope="module")
def desk(
    engine: Engine,
    engine_name: str,
    kept_state: State,
    bootstrapped: Bootstrapped,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Tiny]:
    """A state and a configuration that trust nobody else's work, for one engine; its images go with it."""
    made = make_tiny(engine_name, kept_state, bootstrapped, tmp_path_factory.mktemp("desk"))
    before = {entry.digest for entry in list_images(kept_state.layout)}
    yield made
    for entry in list_images(made.state / "layout"):
        if entry.digest not in before:
            loaded = engine.find_image(open_image(made.state / "layout", entry.digest))
            if loaded is not None:
                engine.remove_image(loaded)


@pytest.fixture(scope="session")
def full(pytestconfig: pytest.Config, first_command: FirstCommand) -> str:
    """The digest of the full image on the engine that built it first."""
    if HANDED.exists():
        return HANDED.read_text().strip()
    return first_command(products_asked(pytestconfig)[0]).digest


@pytest.mark.rootless
def test_the_full_image_is_the_same_on_this_engine(
    desk: Tiny, full: str, evidence: Evidence, request: pytest.FixtureRequest
) -> None:
    """Built cold, proved and launched by another user; what his own policy asks for is `required` mode."""
    project = Path(shutil.copytree(PROJECT, desk.root / "full"))
    built = desk.builder("build", "--no-cache", cwd=project)
    assert built.returncode == 0, built.stderr[-3000:]
    assert built.stdout.strip() == full
    assert 'mode = "required"' in (desk.config / "policy.toml").read_text()
    attested = desk.builder("verify", "--attest", cwd=project)
    assert attested.returncode == 0, attested.stderr[-3000:]
    ran = desk.builder("run", "--", "sh", "-c", "id -u; claude --version", cwd=project)
    assert (ran.returncode, ran.stdout.split("\n")[:2]) == (0, ["1000", "2.1.328 (Claude Code)"]), ran.stderr
    assert desk.containers() == []
    evidence(
        f"{request.node.callspec.id}: full image {full}, built cold, verified, launched in required mode"
    )


def only_pi(lock: Lock, text: str) -> tuple[str, Lock]:
    """builder.toml and its lock with nothing in them but Node and Pi."""
    for line in ("claude-code = .*", "opencode = .*", "agent = .*", "install-scripts = .*"):
        text = re.sub(rf"^{line}\n", "", text, flags=re.MULTILINE)
    (pi,) = (agent for agent in lock.agents if agent.name == "pi")
    kept = {entry.artifact for tree in pi.trees for entry in tree.entries}
    kept |= {artifact.id for artifact in lock.artifacts if artifact.kind is ArtifactKind.NODE}
    artifacts = tuple(
        replace(one, parents=tuple(name for name in one.parents if name in {*kept, pi.place, "node"}))
        for one in lock.artifacts
        if one.id in kept
    )
    small = replace(lock, agents=(pi,), artifacts=artifacts, install_scripts=())
    return text, replace(small, config=config_digest(parse_config(text, where="builder.toml")))


@pytest.fixture(scope="module")
def small(desk: Tiny) -> Callable[[str], Path]:
    """Makes a project of Pi alone in a directory of this name."""

    def make(name: str) -> Path:
        lock = parse_lock((PROJECT / "builder.lock").read_bytes())
        text, lock = only_pi(lock, (PROJECT / "builder.toml").read_text())
        folder = desk.root / name
        folder.mkdir()
        (folder / "builder.toml").write_text(text)
        (folder / "builder.lock").write_bytes(lock_bytes(lock))
        return folder

    return make


@pytest.fixture(scope="session")
def digests() -> set[str]:
    """Of the small image, of all engines of this run and of whoever handed over."""
    return {HANDED_SMALL.read_text().strip()} if HANDED_SMALL.exists() and HANDED.exists() else set()


def test_a_small_image_is_the_same_wherever_it_is_built(
    desk: Tiny, small: Callable[[str], Path], digests: set[str]
) -> None:
    """Other umask, processor count, time zone, locale, directory, engine, user; host name where root asks."""
    if not digests:
        here = desk.builder("build", "--no-cache", cwd=small("here"))
        assert here.returncode == 0, here.stderr[-3000:]
        digests.add(here.stdout.strip())
    elsewhere = desk.builder(
        *("build", "--no-cache"),
        cwd=small("other directory, with a long name " + "x" * 100),
        prefix=ELSEWHERE,
        environment={**os.environ, **TONGUE},
    )
    assert elsewhere.returncode == 0, elsewhere.stderr[-3000:]
    assert digests == {elsewhere.stdout.strip()}
    if not HANDED.exists():
        HANDED_SMALL.write_text(elsewhere.stdout)
