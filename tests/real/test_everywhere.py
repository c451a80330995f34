"""One digest everywhere: the full image on every engine, and a small real one however its build is varied."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from backend.engines.protocol import Engine
from builder.bootstrap import Bootstrapped
from builder.state import State
from images.errors import ExitCode
from provenance.layout import list_images, open_image
from tests.conftest import products_asked
from tests.fakes.repositories import Repo
from tests.real.agents_at_work import KEYS, prove
from tests.real.conftest import Evidence, FirstCommand
from tests.real.on_a_terminal import FIRST_SCREENS, PROOFS, Desk, FirstScreen, prove_screen
from tests.real.small import write_small_project
from tests.real.spine import PROJECT, ROOT
from tests.real.tiny import ELSEWHERE, TONGUE, Tiny, make_tiny

pytestmark = pytest.mark.real

# What root's run on the rootful Docker made, where it handed its work over: tests/real/handing_over.py.
HANDED = ROOT / ".state/digest"


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


@dataclass(frozen=True)
class Built:
    """The full image of one engine, built cold and attested: where its project lies, and its digest."""

    project: Path
    digest: str


@pytest.fixture(scope="module")
def built(desk: Tiny) -> Built:
    project = Path(shutil.copytree(PROJECT, desk.root / "full"))
    done = desk.builder("build", "--no-cache", cwd=project)
    assert done.returncode == 0, done.stderr[-3000:]
    attested = desk.builder("verify", "--attest", cwd=project)
    assert attested.returncode == 0, attested.stderr[-3000:]
    return Built(project, done.stdout.strip())


@pytest.mark.rootless
def test_the_full_image_is_the_same_on_this_engine(
    desk: Tiny, built: Built, full: str, evidence: Evidence, request: pytest.FixtureRequest
) -> None:
    """Built cold, proved and launched by another user; what his own policy asks for is `required` mode."""
    project = built.project
    assert built.digest == full
    assert 'mode = "required"' in (desk.config / "policy.toml").read_text()
    ran = desk.builder("run", "--", "sh", "-c", "id -u; claude --version", cwd=project)
    assert (ran.returncode, ran.stdout.split("\n")[:2]) == (0, ["1000", "2.1.328 (Claude Code)"]), ran.stderr
    assert desk.containers() == []
    evidence(
        f"{request.node.callspec.id}: full image {full}, built cold, verified, launched in required mode"
    )


@pytest.mark.two_engines
def test_b7_a_run_is_not_continued_on_another_engine(
    desk: Tiny, pytestconfig: pytest.Config, tmp_path: Path
) -> None:
    """Refused with the engine that it began on, before anything is saved or made on the other."""
    (other,) = (name for name in products_asked(pytestconfig) if name != desk.engine)
    project, operator = desk.project("pinned"), Repo.new(tmp_path / "operator")
    operator.commit({"readme": "one\n"}, "first")
    commit = ("--", "sh", "-c", "echo two >>readme; git commit -qam two")
    for words in (("build",), ("verify", "--attest"), ("run", "--source", str(operator.path), *commit)):
        done = desk.builder(*words, cwd=project)
        assert done.returncode == 0, done.stderr[-3000:]
    before = desk.builder("runs", "--json", cwd=project).stdout
    launch = json.loads(before)["launches"][-1]
    assert launch["engine"] == desk.engine
    for word in ("--review", "--fix", "--check"):
        words = ("run", word, launch["launch"], "--", "true")
        refused = desk.builder(*words, cwd=project, engine=other)
        assert refused.returncode == ExitCode.RUN_FAILED, refused.stderr[-2000:]
        assert f"used image {launch['image']} on {desk.engine} at {launch['endpoint']}" in refused.stderr
        assert "--new-run" in refused.stderr
        # As a run of its own it may be tried there.
        anew = desk.builder(
            *("run", word, launch["launch"], "--new-run", "--dry-run", "--", "true"),
            cwd=project,
            engine=other,
        )
        assert anew.returncode == 0, anew.stderr[-2000:]
    assert desk.builder("runs", "--json", cwd=project).stdout == before
    for engine in (desk.engine, other):
        assert replace(desk, engine=engine).containers() == []


@pytest.mark.rootless
def test_agents_get_their_credentials_on_this_engine(
    desk: Tiny, built: Built, engine: Engine, tmp_path: Path
) -> None:
    """By one launch: what the other routes have in them is no engine's affair."""

    def builder(*words: str) -> subprocess.CompletedProcess[str]:
        return desk.builder(*words, cwd=built.project)

    prove(builder, engine, desk.state, tmp_path / "sources", KEYS)


@pytest.fixture
def terminal_desk(desk: Tiny, built: Built, engine: Engine) -> Desk:
    """The full image, for a person at a terminal."""
    return Desk(argv=desk.argv, cwd=built.project, engine=engine, state=desk.state)


@pytest.mark.rootless
@pytest.mark.parametrize("proof", PROOFS, ids=lambda proof: proof.__name__.removeprefix("prove_"))
def test_a_person_at_a_terminal_on_this_engine(terminal_desk: Desk, proof: Callable[[Desk], None]) -> None:
    proof(terminal_desk)


@pytest.mark.rootless
@pytest.mark.parametrize("screen", FIRST_SCREENS, ids=lambda screen: screen.agent)
def test_an_agents_own_screen_on_this_engine(
    terminal_desk: Desk, screen: FirstScreen, tmp_path: Path
) -> None:
    prove_screen(terminal_desk, screen, tmp_path / "credential")


@pytest.fixture(scope="module")
def small(desk: Tiny) -> Callable[[str], Path]:
    """Makes a project of Pi alone in a directory of this name."""

    def make(name: str) -> Path:
        folder = desk.root / name
        folder.mkdir()
        write_small_project(PROJECT, folder)
        return folder

    return make


@pytest.fixture(scope="session")
def digests() -> set[str]:
    """Of the small image, of all engines of this run."""
    return set()


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
