"""A right policy on disk for tests, and its text to make wrong ones from."""

from __future__ import annotations

from pathlib import Path

from images.digests import Digest
from provenance.policy import Policy, load_policy
from tests.fakes.evidence import key

BUILDER_ID = "urn:uuid:00000000-0000-4000-8000-000000000001"
VERIFIER_ID = "urn:uuid:00000000-0000-4000-8000-000000000002"
LAUNCHER_ID = "urn:uuid:00000000-0000-4000-8000-000000000003"

HEAD = """schema = 1
serial = 3
valid_until = 2027-02-28T00:00:00Z
mode = "required"
"""
TRUST = f"""
[[trust]]
role = "builder"
kind = "key"
key = "keys/builder.pub"
builder_ids = ["{BUILDER_ID}"]
not_after = 2027-11-29T00:00:00Z

[[trust]]
role = "verifier"
kind = "key"
key = "keys/verifier.pub"
verifier_ids = ["{VERIFIER_ID}"]

[[trust]]
role = "launcher"
kind = "key"
key = "keys/launcher.pub"
launcher_ids = ["{LAUNCHER_ID}"]
"""
REBUILDERS = ("one", "two")


def rebuilder_id(name: str) -> str:
    """The id that a rebuilder's key is paired with."""
    return f"urn:example:rebuilder-{name}"


def rebuilder_entry(name: str, *, id: str = "") -> str:
    """Trust in one more rebuilder."""
    return f"""
[[trust]]
role = "rebuilder"
kind = "key"
key = "keys/{name}.pub"
rebuilder_ids = ["{id or rebuilder_id(name)}"]
"""


def write_policy(folder: Path, text: str) -> Path:
    """policy.toml with this text, and all public keys that it may name, in ``folder``."""
    keys = folder / "keys"
    keys.mkdir(mode=0o755, parents=True, exist_ok=True)
    folder.chmod(0o755)
    for role in ("builder", "verifier", "launcher", *REBUILDERS):
        (keys / f"{role}.pub").write_bytes(key(role).public.pem)
        (keys / f"{role}.pub").chmod(0o644)
    path = folder / "policy.toml"
    path.write_text(text)
    path.chmod(0o644)
    return path


def policy_for(
    folder: Path,
    *,
    base: Digest | None = None,
    expect: dict[str, Digest] | None = None,
    more: str = "",
    head: str = HEAD,
    trust: str = TRUST,
) -> Policy:
    """A parsed policy that allows one base and expects one lock."""
    text = head + more
    if base:
        text += f'bases = ["{base}"]\n'
    if expect:
        text += "\n[expect]\n" + "".join(f'"{name}" = "{lock}"\n' for name, lock in expect.items())
    return load_policy(write_policy(folder, text + trust))
