"""Policies that trust identities, and statements that a sigstore made here signs for them."""

from __future__ import annotations

import json
from pathlib import Path

from tests.fakes.evidence import attach_raw
from tests.fakes.policies import BUILDER_ID, LAUNCHER_ID, VERIFIER_ID
from tests.fakes.proved import World
from tests.fakes.sigstores import Sigstore, Who

ISSUER = "https://login.example"
BUILDER = "https://ci.example/team/images/.ci/build@refs/heads/main"
VERIFIER = "mailto:checker@team.example"
LAUNCHER = f"""
[[trust]]
role = "launcher"
kind = "key"
key = "keys/launcher.pub"
launcher_ids = ["{LAUNCHER_ID}"]
"""


def who(identity: str = BUILDER, issuer: str = ISSUER) -> Who:
    """As a certificate says it."""
    return Who(identity.removeprefix("mailto:"), issuer, repository="", ref="")


def entry(
    role: str, identity: str, name: str, *, issuer: str = ISSUER, root: str = "root.json", more: str = ""
) -> str:
    """Trust in one identity."""
    return f"""
[[trust]]
role = "{role}"
kind = "keyless"
identity = "{identity}"
issuer = "{issuer}"
trusted_root = "{root}"
{role}_ids = ["{name}"]
{more}
"""


TRUST = entry("builder", BUILDER, BUILDER_ID) + entry("verifier", VERIFIER, VERIFIER_ID) + LAUNCHER


def trusting(
    world: World, sigstore: Sigstore, trust: str = TRUST, more: str = "", **roots: Sigstore
) -> World:
    """The same world under a policy that trusts identities. ``roots``: further files, as NAME.json."""
    config = world.root / "config"
    for name, one in {"root": sigstore, **roots}.items():
        write_root(config / f"{name}.json", one.trusted_root())
    return world.with_policy(trust=trust, more=more)


def write_root(path: Path, raw: bytes) -> None:
    """A trusted root beside the policy."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(raw)
    path.chmod(0o644)


def certify(world: World, sigstore: Sigstore, payload: bytes, signer: Who | None = None) -> bytes:
    """Attach a statement that this identity signed; the bundle's bytes."""
    raw = json.dumps(sigstore.bundle(payload, signer or who())).encode()
    attach_raw(world.layout, world.image.digest, raw)
    return raw
