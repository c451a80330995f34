"""What every real test needs: the result of the README's first command, its state, and an engine."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from backend.engines.protocol import Engine
from backend.engines.select import connect
from builder.bootstrap import Bootstrapped, bootstrapped_images
from builder.state import State, open_state
from tests.conftest import ENGINES, engines_asked, products_asked
from tests.joined import EVIDENCE
from tests.real.network_desk import NetworkDesk, at_network_desk
from tests.real.programs import go_program
from tests.real.spine import ROOT, STATE, Spine, run_first_command

__all__ = ["ROOT"]

HERE = Path(__file__).parent

FirstCommand = Callable[[str], Spine]
Evidence = Callable[[str], None]


@pytest.fixture(scope="session")
def evidence(record_testsuite_property: Callable[[str, object], None]) -> Evidence:
    """Writes down a line that says what this run was about, for the summary that joins the runs."""
    return lambda line: record_testsuite_property(EVIDENCE, line)


@pytest.fixture(scope="session", autouse=True)
def engines_are_as_asked(
    pytestconfig: pytest.Config, evidence: Evidence, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Each by its own words: nothing that was asked for may stand for something else."""
    for name in engines_asked(pytestconfig):
        facts = connect(ENGINES[name], tmp_path_factory.mktemp("asked"), dict(os.environ)).facts()
        kind = "rootless" if facts.rootless else "rootful"
        meant = os.geteuid() != 0 if name == "podman" else name == "docker-rootless"
        assert facts.rootless == meant, f"{name} is {kind}"
        evidence(
            f"{name}: {facts.product} {facts.version}, {kind}, host {facts.host_name}, kernel {facts.kernel},"
            f" {facts.storage_driver}, cgroup driver {facts.cgroup_driver}"
        )


@pytest.fixture(scope="session")
def first_command() -> FirstCommand:
    """Runs the README's first command, once for each engine."""
    done: dict[str, Spine] = {}

    def run(engine: str) -> Spine:
        if engine not in done:
            done[engine] = run_first_command(engine)
        return done[engine]

    return run


@pytest.fixture(scope="session")
def spine(engine_name: str, first_command: FirstCommand) -> Spine:
    """The README's first command on the asked engine."""
    return first_command(engine_name)


@pytest.fixture(scope="session")
def kept_state(pytestconfig: pytest.Config, first_command: FirstCommand) -> State:
    """The state of the README's first command, or the one that ``BUILDER_TEST_STATE`` names."""
    named = os.environ.get("BUILDER_TEST_STATE")
    if named is None:
        first_command(products_asked(pytestconfig)[0])
    return open_state(Path(named) if named else STATE)


@pytest.fixture(scope="session")
def bootstrapped(kept_state: State) -> Bootstrapped:
    """Base, build container and resolver; missing is a failure: their making is another test's matter."""
    found = bootstrapped_images(kept_state.layout, lock_copy=kept_state.bootstrap / "bootstrap.lock")
    assert found is not None, f"no bootstrapped images in {kept_state.root}: run builder bootstrap"
    return found


@pytest.fixture(scope="session")
def cosign(request: pytest.FixtureRequest, kept_state: State) -> Path:
    """cosign (minutes, once)."""
    package = "github.com/sigstore/cosign/v3/cmd/cosign"
    return go_program(request.config.cache, HERE / "cosign", package, kept_state.bootstrap)


@pytest.fixture(scope="session")
def oras(request: pytest.FixtureRequest, kept_state: State) -> Path:
    """oras (less than a minute, once)."""
    return go_program(request.config.cache, HERE / "oras", "oras.land/oras/cmd/oras", kept_state.bootstrap)


@pytest.fixture(scope="session")
def engine(engine_name: str, tmp_path_factory: pytest.TempPathFactory) -> Engine:
    """The asked engine, with a client home of its own."""
    return connect(engine_name, tmp_path_factory.mktemp("client"), dict(os.environ))


@pytest.fixture(scope="session")
def network_desk(
    engine: Engine, kept_state: State, bootstrapped: Bootstrapped, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[NetworkDesk]:
    """The three CLIs in a private network, for all tests that need one."""
    with at_network_desk(engine, kept_state, bootstrapped, tmp_path_factory.mktemp("network")) as desk:
        yield desk
