"""The process that talks to a token: digests on standard input, signatures on standard output.

It loads a library of somebody else's, which may block, crash or print; nothing it says is believed.
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NoReturn

from images.errors import HostError
from provenance.pkcs11_request import (
    MAX_REQUEST,
    Step,
    TokenAnswer,
    TokenRequest,
    TokenTrouble,
    read_token_request,
)

if TYPE_CHECKING:
    from pkcs11 import PKCS11Error, Session, Token

_P256: Final = bytes.fromhex("06082a8648ce3d030107")  # its object identifier, as CKA_EC_PARAMS has it
_LOCKS: Final = "a token locks itself after a few wrong ones, and how many are left is unknown"
_NO_PIN: Final[Mapping[str, str]] = {
    "PinIncorrect": f"the PIN is wrong; it was tried once, and is not tried again: {_LOCKS}",
    "PinInvalid": f"the PIN is none that this token can have; it was tried once: {_LOCKS}",
    "PinLenRange": f"the PIN is too short or too long for this token; it was tried once: {_LOCKS}",
    "PinLocked": "the PIN is locked: too many wrong ones; the token's officer unlocks it",
    "PinExpired": "the PIN has expired: set a new one with the token's own tool",
    "UserPinNotInitialized": "the token has no PIN yet: set one with the token's own tool",
}
# Only of the calls that use the key; elsewhere these are faults of the device.
_UNFIT_KEY: Final = (
    "FunctionNotSupported",
    "KeyHandleInvalid",
    "KeyTypeInconsistent",
    "KeySizeRange",
    "MechanismInvalid",
)


class _Failed(Exception):
    """Why nothing was signed, in our own words."""

    def __init__(self, trouble: TokenTrouble, what: str) -> None:
        super().__init__(what)
        self.trouble = trouble
        self.what = what


def main() -> int:
    """0: an answer was written. Else: a crash, or no library."""
    # The PIN is in here: a library that crashes must leave no picture of our memory.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # A library that prints must not speak in our name.
    answers = os.dup(1)
    os.dup2(2, 1)
    try:
        answer = sign_all(read_token_request(sys.stdin.buffer.read(MAX_REQUEST + 1)))
    except HostError as missing:
        return missing.code
    with os.fdopen(answers, "wb") as out:
        out.write(answer.to_json())
    return 0


def sign_all(request: TokenRequest) -> TokenAnswer:
    """A signature for each digest, or why there is none of any."""
    try:
        import pkcs11  # noqa: F401, PLC0415  (an extra)
    except ImportError:
        raise HostError("the library python-pkcs11 is not installed", where="signing process") from None
    try:
        token = _token(request)
        with _session(token, request) as session, _device():
            key = _key(session, request)
            public = _public_key(session, key)
            _say(Step.SIGNING)
            return TokenAnswer(public_key=public, signatures=_signatures(key, request))
    except _Failed as failed:
        return TokenAnswer(trouble=failed.trouble, what=failed.what)


def _token(request: TokenRequest) -> Token:
    import pkcs11  # noqa: PLC0415

    _say(Step.LOADING)
    try:
        library = pkcs11.lib(request.module)
    except pkcs11.PKCS11Error:
        what = f"{request.module} cannot be loaded as a PKCS#11 module"
        raise _Failed(TokenTrouble.MODULE, what) from None
    with _device():
        found = list(
            library.get_tokens(token_label=request.token, token_flags=pkcs11.TokenFlag.TOKEN_INITIALIZED)
        )
    if not found:
        raise _Failed(TokenTrouble.ABSENT, f"there is no token labelled {request.token!r}")
    if len(found) > 1:
        what = f"{len(found)} tokens are labelled {request.token!r}: leave one in, or label them apart"
        raise _Failed(TokenTrouble.ABSENT, what)
    return found[0]


@contextmanager
def _session(token: Token, request: TokenRequest) -> Iterator[Session]:
    """One login, and never a second try."""
    import pkcs11  # noqa: PLC0415

    _say(Step.LOGGING_IN)
    with _device():
        flags = token.flags
    if flags & pkcs11.TokenFlag.USER_PIN_LOCKED:
        raise _Failed(TokenTrouble.PIN, _NO_PIN["PinLocked"])
    if flags & pkcs11.TokenFlag.USER_PIN_FINAL_TRY:
        what = "the PIN locks with the next wrong one, so it is not tried: log in with its own tool first"
        raise _Failed(TokenTrouble.PIN, what)
    try:
        pin = request.pin.reveal().decode()
    except UnicodeDecodeError:
        raise _Failed(TokenTrouble.PIN, "the PIN is not UTF-8; it was not tried") from None
    try:
        session = token.open(user_pin=pin)
    except pkcs11.PKCS11Error as broken:
        if said := _NO_PIN.get(type(broken).__name__):
            raise _Failed(TokenTrouble.PIN, said) from None
        _fail(broken)
    try:
        yield session
    finally:
        _close(session)


def _close(session: Session) -> None:
    """With the process the session ends anyway: a token that is gone by now spoils no signature."""
    import pkcs11  # noqa: PLC0415

    try:
        session.close()
    except pkcs11.PKCS11Error:
        return


def _key(session: Session, request: TokenRequest) -> Any:
    import pkcs11  # noqa: PLC0415

    _say(Step.FINDING)
    asked: dict[pkcs11.Attribute, Any] = {pkcs11.Attribute.CLASS: pkcs11.ObjectClass.PRIVATE_KEY}
    named = []
    if request.label is not None:
        asked[pkcs11.Attribute.LABEL] = request.label
        named.append(f"labelled {request.label!r}")
    if request.key_id is not None:
        asked[pkcs11.Attribute.ID] = request.key_id
        named.append(f"with id {request.key_id.hex()}")
    words = " ".join(named)
    found: list[Any] = list(session.get_objects(asked))
    if not found:
        raise _Failed(TokenTrouble.KEY, f"the token has no private key {words}")
    if len(found) > 1:
        raise _Failed(TokenTrouble.KEY, f"the token has {len(found)} private keys {words}: name label and id")
    key = found[0]
    if key.key_type != pkcs11.KeyType.EC or _attribute(key, pkcs11.Attribute.EC_PARAMS, _P256) != _P256:
        what = f"the key {words} is not an ECDSA P-256 key, the only kind that we sign with"
        raise _Failed(TokenTrouble.KEY, what)
    return key


def _public_key(session: Session, key: Any) -> bytes:
    """The one public key with the private one's id; empty where there is none to compare with."""
    import pkcs11  # noqa: PLC0415
    from pkcs11.util.ec import encode_ec_public_key  # noqa: PLC0415

    key_id = _attribute(key, pkcs11.Attribute.ID, b"")
    if not key_id:
        return b""
    wanted = {pkcs11.Attribute.CLASS: pkcs11.ObjectClass.PUBLIC_KEY, pkcs11.Attribute.ID: key_id}
    found: list[Any] = list(session.get_objects(wanted))
    if len(found) != 1 or found[0].key_type != pkcs11.KeyType.EC:
        return b""
    try:
        return bytes(encode_ec_public_key(found[0]))
    except (pkcs11.PKCS11Error, ValueError, TypeError, LookupError):
        return b""


def _signatures(key: Any, request: TokenRequest) -> tuple[bytes, ...]:
    import pkcs11  # noqa: PLC0415
    from pkcs11.util.ec import encode_ecdsa_signature  # noqa: PLC0415

    # Some keys want the PIN again for each signature; it is the one that was right a moment ago.
    again = _attribute(key, pkcs11.Attribute.ALWAYS_AUTHENTICATE, False)
    more = {"pin": request.pin.reveal().decode()} if again else {}
    try:
        raw = [key.sign(one, mechanism=pkcs11.Mechanism.ECDSA, **more) for one in request.digests]
        return tuple(bytes(encode_ecdsa_signature(one)) for one in raw)
    except pkcs11.PKCS11Error as broken:
        name = type(broken).__name__
        if name in _NO_PIN:
            raise _Failed(TokenTrouble.PIN, _NO_PIN[name]) from None
        if name in _UNFIT_KEY:
            raise _Failed(TokenTrouble.KEY, f"the token does not sign with this key ({name})") from None
        raise
    except (ValueError, TypeError, LookupError):
        raise _Failed(TokenTrouble.DEVICE, "what the token gave is not an ECDSA signature") from None


def _attribute(key: Any, name: Any, default: Any) -> Any:
    """Of a key that may not tell."""
    import pkcs11  # noqa: PLC0415

    try:
        return key[name]
    except (pkcs11.PKCS11Error, KeyError):
        return default


@contextmanager
def _device() -> Iterator[None]:
    """What a token does in the middle of everything, as one of our reasons."""
    import pkcs11  # noqa: PLC0415

    try:
        yield
    except pkcs11.PKCS11Error as broken:
        _fail(broken)


def _fail(broken: PKCS11Error) -> NoReturn:
    # The name alone: what else a library says may hold anything.
    name = type(broken).__name__
    what = f"the token failed, or was taken out ({name})"
    raise _Failed(TokenTrouble.DEVICE, what) from None


def _say(step: Step) -> None:
    """How far it came, for whoever ends this process because it takes too long."""
    sys.stderr.write(f"{step}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    raise SystemExit(main())
