"""A checkout with builder.toml and a fresh lock, whose image lies proved in a state: for CI checks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from builder.state import State, open_state
from builder.workshop import recipe
from images.config import parse_config
from images.lock import config_digest
from provenance.marks import pin_marks
from tests.fakes.locks import BASE_DIGEST, BUILDER_TOML
from tests.fakes.policies import HEAD, TRUST, policy_for
from tests.fakes.proved import BUILT, NAME, World, facts_of, make_world


@dataclass(frozen=True)
class Checkout:
    """``root``: what a job has checked out. ``world``: the image, and the policy that lies elsewhere."""

    root: Path
    state: State
    world: World

    @property
    def config(self) -> Path:
        return self.root / "agents" / "builder.toml"

    @property
    def lock(self) -> Path:
        return self.config.with_name("builder.lock")

    @property
    def digest(self) -> str:
        return str(self.world.image.digest)

    def words(self, *more: str) -> list[str]:
        """A command, typed at the top of the checkout; without ``more`` a file names the image."""
        (self.root.parent / "digest.txt").write_text(f"{self.digest}\n")
        image = more or ("--digest-file", str(self.root.parent / "digest.txt"))
        places = ("--state", str(self.state.root), "--policy", str(self.world.policy.path))
        return ["verify", "--ci", "--config", "agents/builder.toml", *places, *image]


def make_checkout(
    folder: Path, *, name: str = NAME, built: datetime = BUILT, until: str = "2027-02-28"
) -> Checkout:
    """All of it proved: nothing is wrong before a test makes it so."""
    state = open_state(folder / "state")
    made = make_world(state.root)
    text = BUILDER_TOML.replace(str(BASE_DIGEST), str(made.base.digest)).replace(NAME, name)
    parsed = parse_config(text, where="builder.toml")
    lock = replace(made.lock, recipe=recipe(), config=config_digest(parsed))
    policy = policy_for(
        folder / "elsewhere",
        base=made.base.digest,
        head=HEAD.replace("2027-02-28", until),
        trust=TRUST.replace("2027-11-29", until),
    )
    world = replace(made, lock=lock, policy=policy)
    world.prove(facts_of(name=name, built=built))
    pin_marks(state.marks, policy)
    checkout = Checkout(folder / "checkout", state, world)
    checkout.config.parent.mkdir(parents=True)
    (checkout.root / ".git").mkdir()
    checkout.config.write_text(text)
    checkout.lock.write_bytes(world.raw_lock)
    return checkout
