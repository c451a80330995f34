"""The signing process: statements on standard input, bundles on standard output. It alone has the network."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from images.errors import HostError, UsageError
from images.strictjson import read_object
from provenance.keyless import require_library, silence_library
from provenance.keyless_request import (
    CONFIG_TYPE,
    MAX_CONFIG_BYTES,
    MAX_REQUEST,
    SigningAnswer,
    SigningRequest,
    Trouble,
    read_request,
)
from provenance.sigstore_root import MAX_ROOT_BYTES

if TYPE_CHECKING:
    from sigstore.oidc import IdentityToken
    from sigstore.sign import SigningContext

CHILD_ARGV: Final = (sys.executable, "-I", "-m", "provenance.keyless_signing")
_THREADS: Final = 4
_TRUST_CONFIG: Final = "application/vnd.dev.sigstore.clienttrustconfig.v0.1+json"


class _Failed(Exception):
    """Why nothing was signed, in our own words: those of libraries and services may hold a token."""

    def __init__(self, trouble: Trouble, what: str) -> None:
        super().__init__(what)
        self.trouble = trouble
        self.what = what


def main() -> int:
    """0: an answer was written. Else: a crash, or no library."""
    try:
        answer = sign_all(read_request(sys.stdin.buffer.read(MAX_REQUEST + 1)))
    except HostError as missing:
        sys.stderr.write(f"{missing.what}\n")
        return missing.code
    sys.stdout.buffer.write(answer.to_json())
    sys.stdout.buffer.flush()
    return 0


def sign_all(request: SigningRequest) -> SigningAnswer:
    """A bundle for each statement, or why there is none of any."""
    require_library("signing process")
    silence_library()
    try:
        context = _context(request)
        token = _token(request)
        issuer = token.federated_issuer
        if not request.statements:
            return SigningAnswer(issuer=issuer)
        return SigningAnswer(issuer=issuer, bundles=_bundles(context, token, request.statements))
    except _Failed as failed:
        return SigningAnswer(trouble=failed.trouble, what=failed.what)


def _context(request: SigningRequest) -> SigningContext:
    from sigstore.errors import Error  # noqa: PLC0415
    from sigstore.models import ClientTrustConfig  # noqa: PLC0415
    from sigstore.sign import SigningContext  # noqa: PLC0415

    try:
        config = read_object(request.signing_config, "signing_config", max_bytes=MAX_CONFIG_BYTES)
        root = read_object(request.trusted_root, "trusted_root", max_bytes=MAX_ROOT_BYTES)
        if config.get("mediaType") != CONFIG_TYPE:
            raise _Failed(Trouble.CONFIG, f"signing_config: not of type {CONFIG_TYPE}")
        document = {"mediaType": _TRUST_CONFIG, "trustedRoot": root, "signingConfig": config}
        return SigningContext.from_trust_config(ClientTrustConfig.from_json(json.dumps(document)))
    except (Error, UsageError, ValueError, TypeError, LookupError) as broken:
        what = f"signing_config or trusted_root cannot be used ({type(broken).__name__})"
        raise _Failed(Trouble.CONFIG, what) from None


def _token(request: SigningRequest) -> IdentityToken:
    from sigstore.oidc import IdentityError, IdentityToken, detect_credential  # noqa: PLC0415

    try:
        if request.token is not None:
            raw: str | None = request.token.reveal().decode("ascii")
        else:
            _say("asking the CI system for an identity")
            raw = detect_credential()
        if raw is None:
            why = "there is no identity here: no CI system that hands one out was found"
            raise _Failed(Trouble.IDENTITY, why)
        token = IdentityToken(raw)
    except (IdentityError, UnicodeDecodeError) as refused:
        # What the library says quotes neither token nor the CI's answer in these cases.
        cause = type(refused.__cause__).__name__
        if cause == "GitHubOidcPermissionCredentialError":
            why = "the workflow has no permission to have an identity (permissions: id-token: write)"
        elif request.token is not None:
            why = "the token cannot be used: not an identity token for sigstore, or not valid now"
        else:
            why = f"the CI system gave no identity ({cause})"
        raise _Failed(Trouble.IDENTITY, why) from None
    if not token.in_validity_period():
        raise _Failed(Trouble.IDENTITY, "the token is not valid now")
    return token


def _bundles(
    context: SigningContext, token: IdentityToken, statements: tuple[bytes, ...]
) -> tuple[bytes, ...]:
    """One certificate for all; each statement logged and stamped, several at a time: a log answers slowly."""
    from sigstore.dsse import Statement as Signable  # noqa: PLC0415  (its own, not ours)

    _say("asking the certificate authority")
    with _words("the certificate authority"), context.signer(token) as signer:
        pass

    def sign(raw: bytes) -> bytes:
        return signer.sign_dsse(Signable(raw)).to_json().encode()

    _say("asking the time stamp authority and the transparency log")
    with _words("the time stamp authority or the transparency log"), ThreadPoolExecutor(_THREADS) as pool:
        return tuple(pool.map(sign, statements))


@contextmanager
def _words(service: str) -> Iterator[None]:
    """What a library raises of a service, as one of our reasons."""
    from requests.exceptions import HTTPError, RequestException  # noqa: PLC0415
    from sigstore._internal.fulcio.client import FulcioClientError  # noqa: PLC0415  (none is public)
    from sigstore._internal.rekor import RekorClientError  # noqa: PLC0415
    from sigstore.errors import Error  # noqa: PLC0415
    from sigstore.models import InvalidBundle  # noqa: PLC0415
    from sigstore.oidc import ExpiredIdentity  # noqa: PLC0415

    try:
        yield
    except ExpiredIdentity:
        raise _Failed(Trouble.IDENTITY, "the token is not valid any more") from None
    except InvalidBundle:
        what = "the time stamp authority gave no time stamp, so nobody could tell when this was signed"
        raise _Failed(Trouble.SERVER, what) from None
    except (FulcioClientError, RekorClientError, RequestException) as broken:
        # A status is in the error below; without one the service was not reached, or fell silent.
        around = (broken, broken.__cause__, broken.__context__)
        said = next((one.response for one in around if isinstance(one, HTTPError)), None)
        status = said.status_code if said is not None else None
        if status is None and isinstance(broken, RequestException):
            raise _Failed(Trouble.UNREACHABLE, f"{service} cannot be reached") from None
        if status is not None and 400 <= status < 500:
            raise _Failed(Trouble.REFUSED, f"{service} refused (HTTP {status})") from None
        shown = f"HTTP {status}" if status is not None else "an answer that is none"
        raise _Failed(Trouble.SERVER, f"{service} failed ({shown})") from None
    except Error as broken:
        what = f"what {service} answered does not hold under the trusted root ({type(broken).__name__})"
        raise _Failed(Trouble.UNTRUSTED, what) from None
    except (ValueError, TypeError, LookupError) as broken:
        what = f"{service} failed (an answer that is none: {type(broken).__name__})"
        raise _Failed(Trouble.SERVER, what) from None


def _say(step: str) -> None:
    """How far it came, for whoever ends this process because it takes too long."""
    sys.stderr.write(f"{step}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    raise SystemExit(main())
