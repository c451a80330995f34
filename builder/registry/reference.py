"""HOST/NAME[:TAG][@DIGEST] as a registry knows it, and the tags that this program gives of its own."""

from __future__ import annotations

from images.config import BaseReference, parse_base
from images.digests import Digest
from images.errors import UsageError


def parse_reference(text: str) -> BaseReference:
    """What an operator typed, with a registry in it. UsageError otherwise."""
    hint = "write HOST/NAME, HOST/NAME:TAG or HOST/NAME@sha256:…, such as registry.example/team/agents:1"
    try:
        found = parse_base(text)
    except ValueError:
        raise UsageError(f"not a reference to an image: {text[:100]!r}", hint=hint) from None
    if found.registry is None:
        raise UsageError(f"{text[:100]!r} names no registry: its first part is no host", hint=hint)
    return found


def key_tag(key: Digest) -> str:
    """Where an image is looked for by the key of what it is made of. A place to look and no evidence."""
    return f"builder-key-{key.hex}"


def base_tag(base: Digest) -> str:
    """Keeps the manifest of a base beside the images that are built on it."""
    return f"builder-base-{base.hex}"
