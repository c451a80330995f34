"""`builder init`: the first files, with the mode and the acceptances that fit this host."""

from __future__ import annotations

from pathlib import Path

from backend.probe import HostProbe
from builder.cli.invocation import Invocation, Result
from builder.cli.session import open_workshop, passphrase_of
from builder.init import ROLES, InitRequest, init
from builder.probing import probe_engine
from builder.providing import reference
from builder.roles import Role
from builder.workshop import Workshop
from images.config import BaseReference, parse_base
from images.credentials import Secret
from images.errors import HostError, UsageError
from provenance.keys import Protection
from provenance.policy_model import Role as TrustRole


def run(invocation: Invocation) -> Result:
    """The files that were written."""
    workshop = open_workshop(invocation)
    protection = _protection(invocation)
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
            roles=(*ROLES, TrustRole.REBUILDER) if invocation.options.rebuilder else ROLES,
        )
    )
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
    if isinstance(protection, Protection):
        invocation.reporter.warn("the keys are not encrypted; use them for throw-away state only")
    return Result(
        document={
            "written": [str(path) for path in done.written],
            "kept": [str(path) for path in done.kept],
            "mode": str(done.mode),
            "accepted": [{"what": str(one.what), "why": one.why} for one in done.acceptances],
        }
    )


def _protection(invocation: Invocation) -> Secret | Protection:
    passphrase = passphrase_of(invocation)
    if invocation.options.unencrypted_keys:
        if passphrase is not None:
            raise UsageError("a passphrase and --unencrypted-keys contradict each other")
        return Protection.UNENCRYPTED
    if passphrase is None:
        raise UsageError(
            "the role keys need a passphrase",
            hint="builder init --passphrase-file FILE (or --unencrypted-keys, for throw-away state)",
        )
    return passphrase


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
        invocation.reporter.warn(f"no engine was probed: {broken}")
        return None
