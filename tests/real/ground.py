"""A small proved image on the asked engine, and a state root of the test's own: for real launches."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from backend.admission import AdmittedImage, admit
from backend.agent_command import Output
from backend.containers import Limits, Purpose
from backend.engines.protocol import Engine
from backend.journal import Journal
from backend.launch import Controller, launch
from backend.ownership import LABEL_STATE, Owner, hold_lease
from backend.probe import HostProbe, probe_host
from backend.records import LaunchRecord
from backend.requests import LaunchRequest
from builder.bootstrap import Bootstrapped
from builder.building.base_check import read_base
from builder.state import State
from images.lockfile import lock_digest
from provenance.layout_writing import import_image, init_layout
from provenance.policy import Policy, load_policy
from tests.fakes.evidence import key
from tests.fakes.launchable import launchable_on, scripted_launchers
from tests.fakes.locks import AMD64
from tests.fakes.policies import LAUNCHER_ID, policy_for
from tests.fakes.proved import NAME, World, lock_on

LIMITS = Limits(cpus=1.5, memory=256 * 1024 * 1024, pids=300)


@dataclass
class Ground:
    """A proved image, an engine that was probed, and a state root of this test's own."""

    engine: Engine
    probe: HostProbe
    world: World
    admitted: AdmittedImage
    root: Path
    state_id: str
    count: int = 0

    @contextmanager
    def control(self, engine: Engine | None = None) -> Iterator[Controller]:
        leases = self.root / "leases"
        with (
            hold_lease(leases, self.state_id) as owner,
            Journal.open(self.root / "journal.sqlite", self.state_id) as journal,
        ):
            yield self.controller(engine or self.engine, journal, owner)

    def controller(self, engine: Engine, journal: Journal, owner: Owner) -> Controller:
        staging = self.root / "staging"
        staging.mkdir(exist_ok=True)
        return Controller(
            engine=engine,
            journal=journal,
            owner=owner,
            signer=key("launcher"),
            launcher_id=LAUNCHER_ID,
            version="test",
            staging=staging,
            now=lambda: datetime.now(UTC),
        )

    def request(self, *command: str, **changes: Any) -> LaunchRequest:
        self.count += 1
        given: dict[str, Any] = {
            "run_id": f"real-{self.count}",
            "scope": "test",
            "limits": LIMITS,
            "deadline": 60.0,
            "command": command,
        }
        return LaunchRequest(**(given | changes))

    def run(self, request: LaunchRequest, output: Output | None = None) -> LaunchRecord:
        with self.control() as controller:
            return launch(controller, self.admitted, request, output)

    def shell(self, script: str, **changes: Any) -> tuple[LaunchRecord, str]:
        said = bytearray()
        record = self.run(
            self.request("sh", "-c", script, **changes), Output(on_stdout=said.extend, on_stderr=said.extend)
        )
        return record, said.decode()

    def left(self) -> tuple[str, ...]:
        return self.engine.list_labelled(LABEL_STATE, self.state_id)


@pytest.fixture(scope="module")
def world(kept_state: State, bootstrapped: Bootstrapped, tmp_path_factory: pytest.TempPathFactory) -> World:
    root = tmp_path_factory.mktemp("world")
    layout = root / "layout"
    init_layout(layout)
    base = import_image(kept_state.layout, bootstrapped.base, layout)
    lock = lock_on(base)
    launchers = scripted_launchers({agent.name: agent.version for agent in lock.agents})
    image = launchable_on(base, launchers, init=read_base(base).init)
    policy = policy_for(root / "config", base=base.digest, expect={NAME: lock_digest(lock)})
    made = World(root, layout, image, base, lock, policy)
    made.prove()
    return made


@pytest.fixture(scope="module")
def ground(world: World, engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    with ground_on(world, engine, tmp_path_factory) as made:
        yield made


@contextmanager
def ground_on(world: World, engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    """The image admitted on an engine that was probed; afterwards nothing is left there."""
    root, state_id = tmp_path_factory.mktemp("state"), os.urandom(16).hex()
    labels = Owner(state_id, "0" * 32).labels(Purpose.PROBE)
    init = read_base(world.base).init
    probe = probe_host(engine, world.base, init=init, staging=tmp_path_factory.mktemp("load"), labels=labels)
    world = dataclasses.replace(world, policy=fitting_policy(world.policy, probe))
    assert world.attest().passed
    verified = world.admit().require()
    admitted = admit(verified, world.policy, probe, facts=engine.facts(), platform=AMD64, host=())
    made = Ground(engine, probe, world, admitted, root, state_id)
    yield made
    assert made.left() == ()
    loaded = engine.find_image(world.image)
    if loaded is not None:
        engine.remove_image(loaded)


def fitting_policy(policy: Policy, probe: HostProbe) -> Policy:
    """Required where the engine is rootless; what this host cannot enforce is accepted by name."""
    first = policy.path.with_name("policy-for-any-engine.toml")
    if not first.exists():
        first.write_text(policy.path.read_text())
    text = first.read_text()
    if not probe.facts.rootless:
        text = text.replace('mode = "required"', 'mode = "development"')
    if not probe.limits_enforced:
        text = text.replace(
            "schema = 1\n", 'schema = 1\naccept = [{ what = "limits-not-enforced", why = "test host" }]\n', 1
        )
    policy.path.write_text(text)
    return load_policy(policy.path)


def open_journal(ground: Ground) -> Journal:
    return Journal.open(ground.root / "journal.sqlite", ground.state_id)
