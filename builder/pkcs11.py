"""Signing with a key on a token: a process of its own talks to it; its signatures are checked here."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from backend.commands import Outcome
from backend.runner import Command, Ending, run
from builder.settings.pkcs11_keys import TokenKey, require_module
from images.credentials import Secret
from images.digests import Digest
from images.errors import ExitCode, HostError, KeyUnusable, VerifyFailed
from provenance.keys import PublicKey
from provenance.pkcs11_request import (
    MAX_ANSWER,
    Step,
    TokenAnswer,
    TokenRequest,
    TokenTrouble,
    read_token_answer,
)
from provenance.signers import Who
from provenance.signing import Bundle, bytes_to_sign, signed
from provenance.statements import Statement

CHILD_ARGV: Final = ("-I", "-m", "provenance.pkcs11_signing")
TRYING: Final = 30.0  # seconds until the token must have let us in and shown the key
SIGNING: Final = 60.0  # seconds for all signatures of one image: some tokens want to be touched for each
_HINTS: Final[Mapping[TokenTrouble, str]] = {
    TokenTrouble.MODULE: "correct module in settings.toml, or install the token's library",
    TokenTrouble.ABSENT: "put the token in, or correct token in settings.toml",
    TokenTrouble.PIN: "check the PIN with the token's own tool before the next try",
    TokenTrouble.KEY: "correct label, id or public_key in settings.toml",
    TokenTrouble.DEVICE: "put the token in again, then the same command again",
    TokenTrouble.TIMEOUT: "see whether the token waits for a touch or hangs, then the same command again",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenSigner:
    """Signs with one key of one token, and hands nothing out that is not of ``public``.

    ``python``: the interpreter that runs the process; ``environment``: what it knows of ours.
    """

    key: TokenKey
    public: PublicKey
    pin: Secret
    environment: Mapping[str, str] = field(repr=False)
    python: str
    trying_limit: float = TRYING
    signing_limit: float = SIGNING

    @property
    def who(self) -> Who:
        """The fingerprint of the public key."""
        return self.public.fingerprint

    def try_token(self) -> None:
        """Log in, find the key, sign nothing: a token that cannot be used must not cost a build."""
        self._ask((), self.trying_limit)

    def sign(self, statements: Sequence[Statement]) -> tuple[Bundle, ...]:
        """All of them or none, checked as a stranger would before they are handed out."""
        digests = tuple(hashlib.sha256(bytes_to_sign(one)).digest() for one in statements)
        answer = self._ask(digests, self.signing_limit)
        if len(answer.signatures) != len(statements):
            raise self._error(TokenTrouble.KEY, "the token gave not one signature for each statement")
        try:
            pairs = zip(statements, answer.signatures, strict=True)
            return tuple(signed(one, signature, self.public) for one, signature in pairs)
        except VerifyFailed:
            what = f"what the token signed is not of the key {self.key.public_key}"
            raise self._error(TokenTrouble.KEY, what) from None

    def _ask(self, digests: tuple[bytes, ...], limit: float) -> TokenAnswer:
        require_module(self.key.module)
        request = TokenRequest(
            module=str(self.key.module),
            token=self.key.token,
            label=self.key.label,
            key_id=self.key.key_id,
            pin=self.pin,
            digests=digests,
        )
        outcome = run(
            Command(
                argv=(self.python, *CHILD_ARGV),
                environment={**self.environment, **dict(self.key.environment)},
                deadline=limit,
                grace=1.0,
                stdin=request.to_json(),
                capture=MAX_ANSWER,
            )
        )
        if outcome.ending is Ending.TIMED_OUT:
            what = f"the token did not answer within {limit:g} s; it was {_last_step(outcome)}"
            raise self._error(TokenTrouble.TIMEOUT, what)
        if outcome.exit_code == ExitCode.HOST:
            raise HostError(
                "the library python-pkcs11 is not installed",
                where=f"token {self.key.token}",
                hint="pip install 'agent-image-builder[pkcs11]'",
            )
        if not outcome.ok:
            # What it said is the module's, and may quote what it was given.
            ended = f"{outcome.ending}, exit code {outcome.exit_code}"
            what = f"the module broke while it was {_last_step(outcome)} ({ended})"
            raise self._error(TokenTrouble.MODULE, what)
        answer = read_token_answer(outcome.stdout)
        if answer.trouble is not None:
            raise self._error(answer.trouble, answer.what)
        found = Digest.of(answer.public_key)
        if answer.public_key and found != self.public.fingerprint:
            what = f"the token's key is {found}, but {self.key.public_key} is {self.public.fingerprint}"
            raise self._error(TokenTrouble.KEY, what)
        return answer

    def _error(self, trouble: TokenTrouble, what: str) -> KeyUnusable:
        return KeyUnusable(what, where=f"token {self.key.token}", hint=_HINTS[trouble], reason=trouble.value)


def _last_step(outcome: Outcome) -> str:
    """The last of our own words on its standard error: a module may print there, too."""
    lines = outcome.stderr.decode("utf-8", "replace").splitlines()
    known = [line for line in lines if line in set(Step)]
    return known[-1] if known else "starting"
