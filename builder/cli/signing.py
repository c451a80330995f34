"""Who signs in a role: a role's key, in a file or on a token, or an identity that the command line names."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from builder.cli.invocation import Invocation
from builder.cli.session import key_of, passphrase_of, settings_of, state_of
from builder.settings.pkcs11_keys import TokenKey, read_public_key
from images.credentials import Secret
from images.errors import KeyUnusable, UsageError
from provenance.pkcs11_request import TokenTrouble
from provenance.policy import Policy
from provenance.policy_model import Role
from provenance.signers import Keyless
from provenance.signing import KeySigner, StatementSigner

MAX_TOKEN_BYTES = 64 * 1024


@contextmanager
def signer_of(invocation: Invocation, role: Role, policy: Policy) -> Iterator[StatementSigner]:
    """Read and tried at once: a key or an identity that cannot be used must not cost a build.

    Neither ever takes the other's place: what was not asked for is not tried.
    """
    options = invocation.options
    if options.keyless is None:
        if options.identity_token_fd is not None:
            raise UsageError("--identity-token-fd is for --keyless", hint="--keyless IDENTITY")
        token_key = dict(settings_of(invocation).pkcs11).get(role) if options.key is None else None
        yield KeySigner(key_of(invocation, role)) if token_key is None else _on_token(invocation, token_key)
        return
    given = [
        name for name in ("key", "passphrase_fd", "passphrase_file") if getattr(options, name) is not None
    ]
    if given:
        flag = f"--{given[0].replace('_', '-')}"
        raise UsageError(f"--keyless signs without a key, so {flag} means nothing", hint=f"leave {flag} out")
    from builder.keyless import KeylessSigner, read_config, signer_environment  # noqa: PLC0415  (starts a child)

    settings, state = settings_of(invocation), state_of(invocation)
    keyless = _trusted(policy, role, options.keyless)
    config = read_config(settings)
    token = _token(options.identity_token_fd)
    environment = signer_environment(settings, invocation.environment, lambda: state.staging("keyless"))
    with environment as known:
        signer = KeylessSigner(
            keyless=keyless, signing_config=config, token=token, environment=known, python=sys.executable
        )
        with invocation.reporter.step(f"identity {keyless.identity}"):
            signer.try_identity()
        yield signer


def _on_token(invocation: Invocation, key: TokenKey) -> StatementSigner:
    from builder.pkcs11 import TokenSigner  # noqa: PLC0415  (starts a child)

    where = f"token {key.token}"
    public = read_public_key(key.public_key)
    pin = passphrase_of(invocation)
    if not pin:
        hint = "--passphrase-file FILE, or --passphrase-fd N"
        raise KeyUnusable(
            "the token needs a PIN, and none was given", where=where, hint=hint, reason=TokenTrouble.PIN
        )
    known = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "HOME": invocation.environment.get("HOME", "/")}
    signer = TokenSigner(key=key, public=public, pin=pin, environment=known, python=sys.executable)
    with invocation.reporter.step(where):
        signer.try_token()
    return signer


def _trusted(policy: Policy, role: Role, name: str) -> Keyless:
    """The identity as the policy has it for this role: its issuer and its root."""
    for entry in policy.trust:
        if entry.role is role and isinstance(entry.signer, Keyless) and entry.signer.identity.name == name:
            return entry.signer
    raise UsageError(
        f"{name[:200]} is no keyless {role} of this policy, so nobody would believe it",
        where=str(policy.path),
        hint='[[trust]] with kind = "keyless": docs/how-to/sign-with-an-identity.md',
    )


def _token(number: int | None) -> Secret | None:
    if number is None:
        return None
    where = f"descriptor {number}"
    raw = b""
    try:
        while len(raw) <= MAX_TOKEN_BYTES and (chunk := os.read(number, MAX_TOKEN_BYTES)):
            raw += chunk
    except (OSError, OverflowError) as broken:
        why = getattr(broken, "strerror", None) or "no such descriptor"
        raise KeyUnusable(f"the identity token cannot be read: {why}", where=where) from None
    if not raw.strip() or len(raw) > MAX_TOKEN_BYTES:
        raise KeyUnusable("not an identity token", where=where)
    return Secret(raw.strip())
