"""A proved image admitted to the scripted engine: the start of every test of a launch."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from backend.admission import AdmittedImage, admit
from backend.containers import EngineFacts, ImageIdKind, Limits
from backend.inside import EffectiveLimits, ProcessFacts
from backend.journal import Journal
from backend.launch import Controller
from backend.ownership import Owner, hold_lease
from backend.probe import HostProbe, ProbeLine, ProbeName, ProbeState
from backend.requests import LaunchRequest
from images.config import parse_peer
from images.digests import Digest
from images.errors import LaunchReason
from images.lockfile import lock_digest
from images.relay import RELAY_SINCE
from provenance.layout import open_image
from provenance.layout_writing import init_layout
from provenance.verify import VerifiedImage
from tests.fakes.engine import DOCKER_FACTS, FakeEngine
from tests.fakes.evidence import key
from tests.fakes.layouts import make_image
from tests.fakes.locks import AMD64
from tests.fakes.policies import LAUNCHER_ID, policy_for
from tests.fakes.proved import BASE_FILES, CONFIG, NAME, World, lock_on

STATE = "5" * 32
NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)
ENVIRONMENT = ["HOME=/home/agent", "LANG=C.UTF-8", "PATH=/usr/local/bin:/usr/bin:/bin"]
LIMITS = Limits(cpus=1.5, memory=512 * 1024 * 1024, pids=64)
_REASONS = {
    ProbeName.IDENTITY: LaunchReason.ENGINE_IDENTITY,
    ProbeName.API: LaunchReason.ENGINE_IDENTITY,
    ProbeName.LOCAL: LaunchReason.ENGINE_MODE,
    ProbeName.ROOTLESS: LaunchReason.ENGINE_MODE,
    ProbeName.STORAGE: LaunchReason.STORAGE_DRIVER,
    ProbeName.IMAGE_ID: LaunchReason.IMAGE_ID,
    ProbeName.USER_NAMESPACE: LaunchReason.ENGINE_MODE,
    ProbeName.MEMORY_LIMIT: LaunchReason.LIMITS_NOT_ENFORCED,
    ProbeName.PIDS_LIMIT: LaunchReason.LIMITS_NOT_ENFORCED,
    ProbeName.CPU_LIMIT: LaunchReason.LIMITS_NOT_ENFORCED,
    ProbeName.DEATH_WATCH: LaunchReason.DEATH_WATCH,
    ProbeName.CLIENT_DEATH: LaunchReason.DEATH_WATCH,
    ProbeName.DEADLINE: LaunchReason.DEATH_WATCH,
}


def probe_of(
    *missing: ProbeName, facts: EngineFacts = DOCKER_FACTS, id_kind: ImageIdKind = ImageIdKind.CONFIG
) -> HostProbe:
    """A probe in which everything held but ``missing``."""
    return HostProbe(
        boot_id="boot",
        base=Digest.of(b"base"),
        facts=facts,
        id_kind=id_kind,
        uid_map=((0, 100000, 65536),),
        lines=tuple(
            ProbeLine(
                name=name,
                state=ProbeState.NOT_HELD if name in missing else ProbeState.HELD,
                detail="as scripted",
                remedy="do something about it",
                reason=_REASONS.get(name, LaunchReason.READ_BACK),
            )
            for name in ProbeName
        ),
    )


def launch_world(root: Path, **config: object) -> World:
    """A proved and attested image whose configuration is that of a built one; ``config`` changes it."""
    layout = root / "layout"
    init_layout(layout)
    base = open_image(layout, make_image(layout, (BASE_FILES,), config={}))
    settings = {**CONFIG, "Env": ENVIRONMENT, "WorkingDir": "/workspace", **config}
    image = open_image(layout, make_image(layout, (BASE_FILES, {"workspace/": b""}), config=settings))
    lock = lock_on(base)
    policy = policy_for(root / "config", base=base.digest, expect={NAME: lock_digest(lock)})
    world = World(root, layout, image, base, lock, policy)
    world.prove()
    assert world.attest().passed
    return world


def admitted_of(verified: VerifiedImage, **changes: Any) -> AdmittedImage:
    """Admitted to the scripted engine, then changed."""
    admitted = admit(verified, verified.policy, probe_of(), facts=DOCKER_FACTS, platform=AMD64, host=())
    return dataclasses.replace(admitted, **changes)


def networked(verified: VerifiedImage, *ceiling: str, renderer: int = RELAY_SINCE) -> VerifiedImage:
    """The same image as if it had the relay, under a policy with this ceiling."""
    lock = dataclasses.replace(
        verified.lock, recipe=dataclasses.replace(verified.lock.recipe, renderer=renderer)
    )
    policy = dataclasses.replace(verified.policy, network=tuple(map(parse_peer, ceiling)))
    return dataclasses.replace(verified, lock=lock, policy=policy)


def request(**changes: Any) -> LaunchRequest:
    """A request for one command."""
    given: dict[str, Any] = {
        "run_id": "run",
        "scope": "issue/7",
        "limits": LIMITS,
        "deadline": 60.0,
        "command": ("true",),
    }
    return LaunchRequest(**(given | changes))


@dataclass
class Bench:
    """A controller over a scripted engine, a real journal and a held lease."""

    engine: FakeEngine
    controller: Controller
    journal: Journal
    owner: Owner
    leases: Path


@contextmanager
def bench(root: Path, *, state_id: str = STATE) -> Iterator[Bench]:
    """``root``: an empty directory."""
    for name in ("fake", "staging", "leases", "candidates"):
        (root / name).mkdir(exist_ok=True)
    engine = FakeEngine(root / "fake")
    with (
        hold_lease(root / "leases", state_id) as owner,
        Journal.open(root / "journal.sqlite", state_id) as journal,
    ):
        controller = Controller(
            engine=engine,
            journal=journal,
            owner=owner,
            signer=key("launcher"),
            launcher_id=LAUNCHER_ID,
            version="0.1.0",
            staging=root / "staging",
            now=lambda: NOW,
            candidates=root / "candidates",
        )
        yield Bench(engine, controller, journal, owner, root / "leases")


def process(uid: int, gid: int, **changes: Any) -> ProcessFacts:
    """A process as hardened as planned."""
    given: dict[str, Any] = {
        "uids": frozenset({uid}),
        "gids": frozenset({gid}),
        "groups": frozenset({gid}),
        "capabilities": frozenset(),
        "no_new_privileges": True,
        "seccomp": 2,
    }
    return ProcessFacts(**(given | changes))


NO_LIMITS = EffectiveLimits(memory=None, pids=None, cpus=None)
