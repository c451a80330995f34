"""`builder init`: the first files, with the mode and the acceptances that fit this host."""

from __future__ import annotations

from pathlib import Path

from backend.engines.select import UNDECIDED
from backend.probe import HostProbe
from builder.cli.documents.host import AcceptedDocument, InitDocument
from builder.cli.invocation import Invocation, Result
from builder.cli.session import open_workshop, passphrase_of
from builder.init import ROLES, Initialised, InitRequest, init, missing_keys
from builder.probing import probe_engine
from builder.providing import reference
from builder.roles import Role
from builder.workshop import Workshop
from images.config import BaseReference, NetworkPeer, parse_base, parse_peer
from images.credentials import Secret
from images.errors import HostError, UsageError
from provenance.keys import Protection
from provenance.policy_model import Role as TrustRole


def run(invocation: Invocation) -> Result[InitDocument]:
    """The files that were written."""
    workshop = open_workshop(invocation)
    roles = (*ROLES, TrustRole.REBUILDER) if invocation.options.rebuilder else ROLES
    protection = _protection(invocation, needed=missing_keys(invocation.config_dir, roles))
    allow = _allow(invocation)
    npmrc = Path(invocation.environment.get("HOME") or "/") / ".npmrc"
    done = init(
        InitRequest(
            directory=invocation.options.directory.absolute(),
            config_dir=invocation.config_dir,
            state=workshop.state,
            base=_base(invocation, workshop),
            probe=_probe(invocation, workshop),
            protection=protection,
            now=invocation.now(),
            npmrc=npmrc if npmrc.is_file() else None,
            environment=invocation.environment,
            roles=roles,
            allow=allow,
        )
    )
    _tell(invocation, done)
    if isinstance(protection, Protection):
        invocation.reporter.warn("the keys are not encrypted; use them for throw-away state only")
    return Result(
        document=InitDocument(
            written=tuple(map(str, done.written)),
            kept=tuple(map(str, done.kept)),
            mode=done.mode,
            accepted=tuple(AcceptedDocument(what=one.what, why=one.why) for one in done.acceptances),
        )
    )


def _tell(invocation: Invocation, done: Initialised) -> None:
    """What was written, what was decided, and what is left for the operator to add."""
    say = invocation.reporter.say
    for path in done.written:
        say(f"wrote {path}")
    for path in done.kept:
        say(f"kept {path}")
    say(f"mode: {done.mode} ({done.mode_reason})")
    for accepted in done.acceptances:
        say(f"accepted, not enforced: {accepted.what}: {accepted.why}")
    for entry in done.entries:
        say("add to policy.toml, and raise its serial, so that this key is believed:")
        for line in entry.strip().splitlines():
            say(line)
    for peers, where in (
        (done.unlisted, "to [run].allow of builder.toml"),
        (done.beyond, "to network of policy.toml, and raise its serial"),
    ):
        if peers:
            invocation.reporter.warn(f"what is there was kept; add {where}: {_quoted(peers)}")
    if done.unaccepted:
        # The folder is named where it is not the usual one: the next command would look there.
        place = f" --config-dir {invocation.config_dir}" if invocation.options.config_dir else ""
        invocation.reporter.warn(
            f"nothing verifies under this policy yet: {done.unaccepted};"
            f" if you mean it: builder policy pin{place}"
        )


def _protection(invocation: Invocation, *, needed: bool) -> Secret | Protection | None:
    passphrase = passphrase_of(invocation)
    if invocation.options.unencrypted_keys:
        if passphrase is not None:
            raise UsageError("a passphrase and --unencrypted-keys contradict each other")
        return Protection.UNENCRYPTED
    if passphrase is None and needed:
        raise UsageError(
            "the role keys need a passphrase",
            hint="builder init --passphrase-file FILE (or --unencrypted-keys, for throw-away state)",
        )
    return passphrase


def _allow(invocation: Invocation) -> tuple[NetworkPeer, ...]:
    try:
        return tuple(dict.fromkeys(parse_peer(text) for text in invocation.options.allow))
    except ValueError as broken:
        raise UsageError(f"--allow: {broken}") from None


def _quoted(peers: tuple[NetworkPeer, ...]) -> str:
    return ", ".join(f'"{peer}"' for peer in peers)


def _base(invocation: Invocation, workshop: Workshop) -> BaseReference:
    named: str | None = invocation.options.base
    if named is not None:
        try:
            return parse_base(named)
        except ValueError as broken:
            raise UsageError(f"--base: {broken}") from None
    return reference(workshop, Role.BASE)


def _probe(invocation: Invocation, workshop: Workshop) -> HostProbe | None:
    """No engine is no reason to write no files: the policy then says that nothing was probed."""
    try:
        return probe_engine(workshop, workshop.connect())
    except HostError as broken:
        if broken.reason == UNDECIDED:
            raise  # the settings would name none, and every command after this one would ask again
        invocation.reporter.warn(f"no engine was probed: {broken}")
        return None
