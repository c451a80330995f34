"""Who signs: a key, named by its fingerprint, or an identity that short-lived certificates are for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from images.digests import Digest
from provenance.sigstore_root import SigstoreRoot

if TYPE_CHECKING:
    from provenance.keys import PublicKey


@dataclass(frozen=True, slots=True, order=True)
class Identity:
    """Whom a certificate is for, exactly: a URI (an address as ``mailto:…``), and whose login made it so."""

    name: str
    issuer: str

    def __str__(self) -> str:
        return f"{self.name} ({self.issuer})"


@dataclass(frozen=True, slots=True)
class Keyless:
    """An identity that is believed, and the trusted root that its certificates must chain to."""

    identity: Identity
    root: SigstoreRoot


Who: TypeAlias = Digest | Identity
# What a policy trusts: it decides of which kind a signature must be, never the bundle.
TrustedSigner: TypeAlias = "PublicKey | Keyless"


def who_is(signer: TrustedSigner) -> Who:
    """The name of a signer: a fingerprint, or an identity with its issuer."""
    return signer.identity if isinstance(signer, Keyless) else signer.fingerprint


def party(who: Who) -> str:
    """Who counts as one: a key, or an identity under whichever issuer."""
    return who.name if isinstance(who, Identity) else str(who)


def in_words(who: Who) -> str:
    """For people: of which kind, and who."""
    return f"identity {who}" if isinstance(who, Identity) else f"key {who}"
