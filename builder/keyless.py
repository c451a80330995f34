"""Signing for an identity: a process of its own has the network and the token; its answer is checked here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from backend.runner import Command, Ending, run
from builder.settings.access import read_proxy
from builder.settings.settings_file import Settings, read_ca_bundle, read_signing_config
from images.credentials import Secret
from images.errors import ExitCode, HostError, KeyUnusable, NetworkFailed, NetworkReason, VerifyFailed
from provenance.bundles import open_bundle
from provenance.keyless_request import MAX_ANSWER, SigningAnswer, SigningRequest, Trouble, read_answer
from provenance.signers import Keyless, Who
from provenance.signing import Bundle, check_certificate, read_certified
from provenance.statements import Statement

CHILD_ARGV: Final = ("-I", "-m", "provenance.keyless_signing")
TRYING: Final = 45.0  # seconds until a CI system must have handed out an identity
SIGNING: Final = 120.0  # seconds for one certificate and the log entries of one image
# What CI systems hand an identity out with, of those that need no program of theirs to be run for it.
AMBIENT: Final = (
    "GITHUB_ACTIONS",
    "ACTIONS_ID_TOKEN_REQUEST_TOKEN",
    "ACTIONS_ID_TOKEN_REQUEST_URL",
    "GITLAB_CI",
    "SIGSTORE_ID_TOKEN",
)
_IDENTITY: Final = "identity"
_WHERE: Final = "keyless signing"
_AGAIN: Final = "the same command again; builder build --key FILE signs with a key instead"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeylessSigner:
    """Signs for one identity of the policy, and for no other one that a token may turn out to be of.

    ``token``: given by the operator; None: the CI system's. ``environment``: what the process may know of
    ours. ``python``: the interpreter that runs it.
    """

    keyless: Keyless
    signing_config: bytes = field(repr=False)
    token: Secret | None
    environment: Mapping[str, str] = field(repr=False)
    python: str
    signing_limit: float = SIGNING

    @property
    def who(self) -> Who:
        """The identity, with its issuer."""
        return self.keyless.identity

    def try_identity(self) -> None:
        """Ask for the identity and sign nothing: one that cannot be had must not cost a build."""
        self._ask((), TRYING)

    def sign(self, statements: Sequence[Statement]) -> tuple[Bundle, ...]:
        """All of them or none, checked as a stranger would before they are handed out."""
        answer = self._ask(tuple(one.raw for one in statements), self.signing_limit)
        if len(answer.bundles) != len(statements):
            raise VerifyFailed("not one bundle for each statement", where=_WHERE)
        return tuple(self._checked(raw, one) for raw, one in zip(answer.bundles, statements, strict=True))

    def _checked(self, raw: bytes, statement: Statement) -> Bundle:
        certified = check_certificate(open_bundle(raw, _WHERE), self.keyless.root, _WHERE)
        if certified.identity != self.keyless.identity:
            raise KeyUnusable(
                f"the certificate is for {certified.identity}, not for {self.keyless.identity}",
                where=_WHERE,
                hint="name the identity that signs here with --keyless; the policy must trust it",
                reason=_IDENTITY,
            )
        bundle = read_certified(certified, _WHERE)
        if bundle.statement.raw != statement.raw:
            raise VerifyFailed("another statement was signed than the one that was given", where=_WHERE)
        return bundle

    def _ask(self, statements: tuple[bytes, ...], limit: float) -> SigningAnswer:
        request = SigningRequest(
            signing_config=self.signing_config,
            trusted_root=self.keyless.root.raw,
            token=self.token,
            statements=statements,
        )
        outcome = run(
            Command(
                argv=(self.python, *CHILD_ARGV),
                environment=self.environment,
                deadline=limit,
                grace=1.0,
                stdin=request.to_json(),
                capture=MAX_ANSWER,
            )
        )
        if outcome.ending is Ending.TIMED_OUT:
            lines = outcome.stderr.decode("utf-8", "replace").splitlines()
            step = lines[-1][:100] if lines else "starting"
            raise NetworkFailed(
                NetworkReason.UNREACHABLE,
                f"no signature within {limit:g} s; it was {step}",
                where=_WHERE,
                hint=_AGAIN,
            )
        if outcome.exit_code == ExitCode.HOST:
            why = "the library sigstore is not installed"
            raise HostError(why, where=_WHERE, hint="pip install 'agent-image-builder[keyless]'")
        if not outcome.ok:
            # What it said is the library's, and may quote what it was given.
            why = f"the signing process failed ({outcome.ending}, exit code {outcome.exit_code})"
            raise HostError(why, where=_WHERE, hint=_AGAIN)
        answer = read_answer(outcome.stdout)
        if answer.trouble is not None:
            raise _error(answer.trouble, answer.what)
        if answer.issuer != self.keyless.identity.issuer:
            raise KeyUnusable(
                f"the token is of {answer.issuer}, but the identity is of {self.keyless.identity.issuer}",
                where=_WHERE,
                hint="name the identity that signs here with --keyless; the policy must trust it",
                reason=_IDENTITY,
            )
        return answer


def _error(trouble: Trouble, what: str) -> HostError | KeyUnusable | NetworkFailed | VerifyFailed:
    if trouble is Trouble.IDENTITY:
        hint = "give one with --identity-token-fd N, or sign with a key: without --keyless"
        return KeyUnusable(what, where=_WHERE, hint=hint, reason=_IDENTITY)
    if trouble is Trouble.CONFIG:
        return KeyUnusable(what, where=_WHERE, hint="correct signing_config in settings.toml")
    if trouble is Trouble.UNTRUSTED:
        return VerifyFailed(what, where=_WHERE, hint="the policy's trusted_root must be of these services")
    reason = {
        Trouble.UNREACHABLE: NetworkReason.UNREACHABLE,
        Trouble.REFUSED: NetworkReason.AUTH,
        Trouble.SERVER: NetworkReason.SERVER,
    }[trouble]
    return NetworkFailed(reason, what, where=_WHERE, hint=_AGAIN)


@contextmanager
def signer_environment(
    settings: Settings, given: Mapping[str, str], staging: Callable[[], AbstractContextManager[Path]]
) -> Iterator[dict[str, str]]:
    """The whole environment of the signing process: the proxy and the authorities of settings.toml, as every
    client has them, and what a CI system hands out identities with."""
    found = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "HOME": "/"}
    found |= {name: given[name] for name in AMBIENT if name in given}
    proxy = read_proxy(settings)
    if proxy is not None:
        named = {"http_proxy": proxy.http, "https_proxy": proxy.https, "no_proxy": ",".join(proxy.no_proxy)}
        found |= {name: value for name, value in named.items() if value}
    authorities = read_ca_bundle(settings)
    with staging() as folder:
        if authorities:
            bundle = folder / "authorities.pem"
            bundle.write_bytes(_own_authorities() + b"\n" + authorities)
            found["REQUESTS_CA_BUNDLE"] = str(bundle)
        yield found


def _own_authorities() -> bytes:
    """Those that the library's client trusts by itself: the operator's come beside them."""
    try:
        import certifi  # noqa: PLC0415  (comes with the extra)
    except ImportError:
        return b""
    return Path(certifi.where()).read_bytes()


def read_config(settings: Settings) -> bytes:
    """The signing configuration: where certificates, log entries and time stamps are had."""
    raw = read_signing_config(settings)
    if not raw:
        raise KeyUnusable(
            "settings.toml names no signing_config, so there is nobody to ask for a certificate",
            where=_WHERE,
            hint='settings.toml: signing_config = "/FILE"',
        )
    return raw
