"""Statements that a short-lived certificate signed: checked offline with sigstore, against a trusted root."""

from __future__ import annotations

import logging
import struct
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.utils import CryptographyDeprecationWarning
from cryptography.x509 import (
    DuplicateExtension,
    ExtensionNotFound,
    InvalidVersion,
    ObjectIdentifier,
    RFC822Name,
    SubjectAlternativeName,
    UniformResourceIdentifier,
    UnrecognizedExtension,
    UnsupportedGeneralNameType,
)

from images.attestation import ISSUER, MAX_BUNDLE_BYTES, PUBLISHER
from images.errors import HostError, KeyUnusable, VerifyFailed
from images.strictjson import read_object
from provenance.sigstore_root import Signer, SigstoreRoot

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

_MAX_DEPTH: Final = 16
_SAID: Final = 200  # characters of the library's words
_FULCIO: Final = "1.3.6.1.4.1.57264.1."
_ISSUER: Final = ObjectIdentifier(f"{_FULCIO}8")
_REPOSITORY: Final = ObjectIdentifier(f"{_FULCIO}12")
_REF: Final = ObjectIdentifier(f"{_FULCIO}14")
# What the library and those below it raise for bytes that are not what they should be.
_BROKEN: Final = (
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    ArithmeticError,
    AssertionError,
    RuntimeError,
    OSError,  # a time that the system cannot represent
    struct.error,
    InvalidSignature,
    UnsupportedAlgorithm,
    DuplicateExtension,
    ExtensionNotFound,
    InvalidVersion,
    UnsupportedGeneralNameType,
    CryptographyDeprecationWarning,  # see _no_odd_serials
)


@dataclass(frozen=True, slots=True)
class KeylessStatement:
    """A payload whose signature, certificate and entry in the log hold. What it says is not read yet."""

    payload: bytes = field(repr=False)
    payload_type: str
    signer: Signer


def require_library(where: str) -> None:
    """HostError when the library is not there: told before any bundle is looked at, whatever is attached."""
    try:
        import sigstore  # noqa: F401, PLC0415
    except ImportError:
        raise _no_library(where) from None


def open_keyless(
    bundle: bytes, root: SigstoreRoot, where: str, *, max_bytes: int = MAX_BUNDLE_BYTES
) -> KeylessStatement:
    """Check a bundle from untrusted bytes. No network is used, and no clock: the log says when it was signed.

    Holds: the certificate chains to an authority of ``root`` and was valid when the log took the entry; the
    CT log knows the certificate; the log has this signature over this payload. Raises VerifyFailed naming
    ``where``; KeyUnusable when the root is none; HostError when the library is not there.
    """
    read_object(bundle, where, max_bytes=max_bytes, max_depth=_MAX_DEPTH, error=VerifyFailed)
    try:
        # Half a second, and an extra that only who expects publishers needs.
        from sigstore.errors import Error  # noqa: PLC0415
        from sigstore.models import Bundle, InvalidBundle, TrustedRoot  # noqa: PLC0415
        from sigstore.verify import Verifier  # noqa: PLC0415
        from sigstore_models.trustroot.v1 import TrustedRoot as Document  # noqa: PLC0415
    except ImportError:
        raise _no_library(where) from None
    silence_library()
    try:
        # From the bytes that were read once: the library itself would open a file by its path.
        with _no_odd_serials():
            verifier = Verifier(trusted_root=TrustedRoot(Document.from_json(root.raw)))
    except (Error, *_BROKEN) as broken:
        raise KeyUnusable(
            f"not a trusted root that can be used: {_words(broken)}", where=root.where
        ) from None
    try:
        with _no_odd_serials():
            opened = Bundle.from_json(bundle)
            payload_type, payload = verifier.verify_dsse(opened, _AnySigner())
    except InvalidBundle as broken:
        raise VerifyFailed(f"not a bundle that can be checked: {_words(broken)}", where=where) from None
    except Error as broken:
        raise VerifyFailed(
            f"the statement's signature does not hold: {_words(broken)}", where=where
        ) from None
    except _BROKEN as broken:
        why = f"the bundle cannot be read ({type(broken).__name__})"
        raise VerifyFailed(why, where=where) from None
    return KeylessStatement(payload, payload_type, _signer(opened.signing_certificate, where))


def _no_library(where: str) -> HostError:
    return HostError(
        "certificates of signers are checked with the library sigstore, which is not installed",
        where=where,
        hint="pip install 'agent-image-builder[keyless]'",
    )


@contextmanager
def _no_odd_serials() -> Iterator[None]:
    """A certificate whose serial number is not positive (RFC 5280) is none; the library below only warns."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "Parsed a serial number", CryptographyDeprecationWarning)
        yield


class _AnySigner:
    """The library's policy that takes everybody: who it was is told, and judged by whoever asked."""

    def verify(self, cert: Certificate) -> None:
        """Whoever a trusted authority gave a certificate."""


def _signer(certificate: Certificate, where: str) -> Signer:
    try:
        extensions = certificate.extensions
        (name,) = extensions.get_extension_for_class(SubjectAlternativeName).value
        if isinstance(name, RFC822Name):
            identity = f"mailto:{name.value}"
        elif isinstance(name, UniformResourceIdentifier):
            identity = name.value
        else:
            raise VerifyFailed("the certificate names its publisher by neither URI nor address", where=where)
        said = {
            oid: _text(found.value)
            for oid in (_ISSUER, _REPOSITORY, _REF)
            if (found := next((one for one in extensions if one.oid == oid), None)) is not None
        }
    except _BROKEN:
        raise VerifyFailed("the certificate does not say whom it is for", where=where) from None
    signer = Signer(identity, said.get(_ISSUER, ""), said.get(_REPOSITORY, ""), said.get(_REF, ""))
    if not PUBLISHER.fullmatch(signer.identity) or not ISSUER.fullmatch(signer.issuer):
        raise VerifyFailed("the certificate names publisher or issuer in an unknown form", where=where)
    return signer


def _text(value: object) -> str:
    if not isinstance(value, UnrecognizedExtension):
        raise TypeError
    from cryptography.hazmat import asn1  # noqa: PLC0415  (as young as the library itself asks for)

    return asn1.decode_der(str, value.value)


def _words(broken: Exception) -> str:
    text = " ".join(str(broken).partition("[type=")[0].split())[:_SAID]  # what follows is the input
    return "".join(char if char.isprintable() else "?" for char in text) or type(broken).__name__


def silence_library() -> None:
    """It writes warnings about bundles to standard error, where they are nobody's."""
    logger = logging.getLogger("sigstore")
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
