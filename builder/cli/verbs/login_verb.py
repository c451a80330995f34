"""`builder login`: an agent's own login in a container of its own; what it leaves is kept for later runs."""

from __future__ import annotations

from backend.agent_command import Output
from backend.logins.leasing import is_leased, keep_login, require_free
from backend.logins.store import KeptLogin, LoginName, LoginStore
from backend.records import LaunchEnding, LaunchRecord
from backend.terminal import CallerTerminal
from backend.terminal_kind import kind_of
from builder.cli.caller_terminal import terminal_of
from builder.cli.documents.logins import KeptLoginDocument, LoginDocument, LoginsDocument
from builder.cli.ground import admitted_here, find_ground
from builder.cli.invocation import Invocation, Result
from builder.cli.session import login_store, open_workshop
from builder.credentials import read_sources, sources_of
from builder.keeping import keeper_of_login
from builder.launching import launch_image, login_request
from builder.workshop import Workshop
from images.config import AgentName
from images.errors import HostError, UsageError

_PI = "at its prompt type /login, finish it, and leave with Ctrl-D"


def run(invocation: Invocation) -> Result[LoginsDocument | LoginDocument]:
    """List, keep what is given, or run the agent's own login on this terminal."""
    store, options = login_store(invocation), invocation.options
    if options.list:
        return _list(store)
    name = named(invocation)
    encrypted = store.encrypts and not options.unencrypted
    if encrypted:
        store.prepare()
    if options.credential or options.credential_fd:
        given = read_sources(sources_of(options.credential, options.credential_fd), invocation.now())
        if any(one.name.route.agent is not name.agent for one in given):
            raise UsageError(f"a credential is not for {name.agent}", where="--credential")
        keep_login(store, name, given, invocation.now(), encrypted=encrypted)
        return _kept(invocation, store, name, launch=None)
    require_free(store, name)  # else refused only after somebody has logged in
    workshop = open_workshop(invocation)
    with terminal_of(invocation) as terminal:
        if terminal is None:
            raise UsageError(
                "a login needs a terminal, to ask and to be answered",
                hint=f"type it at one, or: builder login {name.agent} --credential NAME=FILE",
            )
        record = _log_in(invocation, workshop, store, name, terminal, encrypted=encrypted)
    return _kept(invocation, store, name, launch=record.launch_id)


def named(invocation: Invocation) -> LoginName:
    """Whose, and which; UsageError for an agent that there is not."""
    agent = invocation.options.agent
    if agent not in set(AgentName):
        said = "no agent is named" if agent is None else "no such agent"
        raise UsageError(said, where="AGENT", hint=f"one of {', '.join(AgentName)}")
    return LoginName(AgentName(agent), invocation.options.name)


def _log_in(
    invocation: Invocation,
    workshop: Workshop,
    store: LoginStore,
    name: LoginName,
    terminal: CallerTerminal,
    *,
    encrypted: bool,
) -> LaunchRecord:
    ground = find_ground(invocation, workshop)
    kind = kind_of(invocation.environment)
    request = login_request(ground.chosen, name.agent, workshop.settings, ground.policy, kind)
    with workshop.state.staging("launch") as staging:
        engine, admitted = admitted_here(invocation, workshop, ground)
        reach = ", ".join(request.allow) or "nothing"
        invocation.reporter.say(f"network: {reach}{', and nothing else' if request.allow else ''}")
        if name.agent is AgentName.PI:
            invocation.reporter.say(_PI)
        record = launch_image(
            workshop,
            engine,
            admitted,
            request,
            launcher=ground.launcher,
            output=Output(terminal=terminal),
            staging=staging,
            keepers=keeper_of_login(store, name, invocation.now, encrypted=encrypted),
        )
    if record.observed.ending is not LaunchEnding.COMPLETED or record.exit_code != 0:
        raise HostError(
            f"{name.agent} did not log in: {record.observed.ending}, exit code {record.exit_code}",
            where=record.launch_id,
            hint=f"builder show {record.launch_id}, for what it tried to reach",
            reason="login",
        )
    return record


def _list(store: LoginStore) -> Result[LoginsDocument]:
    found = [known for known in map(store.look, store.names()) if known is not None]
    rows = tuple(_document(store, known) for known in found)
    lines = [
        f"{one.agent}\t{one.name}\t{', '.join(one.credentials)}\t{'leased' if one.leased else 'free'}"
        f"\t{'encrypted' if one.encrypted else 'not encrypted'}"
        for one in rows
    ]
    return Result(line="\n".join(lines), document=LoginsDocument(logins=rows))


def _kept(
    invocation: Invocation, store: LoginStore, name: LoginName, *, launch: str | None
) -> Result[LoginDocument]:
    known = store.look(name)
    if known is None:
        raise HostError(
            f"the login {name} is not there any more", where="logins", hint="builder login --list"
        )
    invocation.reporter.say(f"kept: {name} ({', '.join(known.credentials)})")
    if not known.encrypted:
        why = "" if store.encrypts else ": no keyring answers in this session"
        invocation.reporter.warn(
            f"it is not encrypted{why}; only this user's files keep it: {store.path(name)}"
        )
    return Result(document=LoginDocument(login=_document(store, known), launch=launch))


def _document(store: LoginStore, known: KeptLogin) -> KeptLoginDocument:
    return KeptLoginDocument(
        agent=known.name.agent,
        name=known.name.name,
        credentials=known.credentials,
        rotates=known.rotates,
        leased=is_leased(store, known),
        encrypted=known.encrypted,
        saved=known.saved,
    )
