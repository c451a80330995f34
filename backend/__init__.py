"""The façade for embedders: run an admitted image in a container, and nothing else.

A launch, from a verified image to its signed record::

    import backend

    engine = backend.connect("podman", client_home, environment)
    with backend.hold_lease(leases, state_id) as owner, backend.Journal.open(file, state_id) as journal:
        backend.recover(engine, journal, leases, state_id, now)  # what dead controllers left
        host = backend.look_at_host(backend.Host(facts=engine.facts(), uid_map=probe.uid_map, ...))
        admitted = backend.admit(verified, policy, probe, facts=engine.facts(), platform=platform, host=host)
        controller = backend.Controller(engine=engine, journal=journal, owner=owner, ...)
        with backend.redacted(output, secrets) as shown:  # for people and logs; without it: byte by byte
            record = backend.launch_image(controller, admitted, backend.LaunchRequest(...), shown)

An agent's credentials, from the bytes of files that name them; a launch puts them in place, and redacts its
output by itself::

    name = backend.parse_credential_name("claude-code.api-key")
    given = backend.projection_of([backend.read_credential(name, raw, now())])
    backend.LaunchRequest(..., projection=given)

A login that renews itself, leased for one launch and written back, also when that fails; a session's history
goes in by ``LaunchRequest(session=...)``, and comes out by ``Keepers.session``::

    store = backend.LoginStore(folder, lambda: None)  # or what finds a keyring
    with backend.lease_login(store, backend.LoginName(agent), now) as login:
        keepers = backend.Keepers(login=login.write_back, login_lost=login.lose, ...)
        controller = backend.Controller(..., keepers=keepers)
        backend.LaunchRequest(..., projection=backend.projection_of(login.credentials))

MCP servers and Skills are the policy's word alone: ``admitted.integrations`` has them. Their secrets come as
the credentials do, exactly those that ``policy.enable.secrets`` names::

    secret = backend.read_server_secret("issues", "ISSUES_TOKEN", raw)
    backend.LaunchRequest(..., projection=backend.projection_of([...], [secret]))

A launch on a repository. ``staging`` (of this launch alone) and ``candidates`` (Controller's and recover's)
are private directories on one file system::

    git = backend.open_git(home, environment)
    origin = backend.find_origin(git, path)
    prepared = backend.prepare_source(git, origin, commit, staging)  # prepared.unseen: beside the commit
    source = backend.LaunchSource(prepared=prepared)  # SourceRoute.COPY_IN forces the copy; nothing a bind
    record = backend.launch_image(controller, admitted, backend.LaunchRequest(source=source, ...))
    seen = record.observed.space  # seen.status, seen.imported.commit, seen.unseen, seen.fetch

    prepared = backend.prepare_candidate(git, candidates, record.launch_id, commit, other_staging)
    request = backend.LaunchRequest(launch_class=backend.LaunchClass.REVIEW, source=..., step=2, ...)

What a run may reach, under the policy's ``network``; ``record.observed.network`` has each attempt::

    backend.LaunchRequest(..., allow=("api.anthropic.com:443",), uplink=backend.Uplink(ca_bundle=pem))

Order is enforced by types: a launch takes an ``AdmittedImage``, which only ``admit`` makes, from a
``VerifiedImage``, which only ``provenance.verify`` makes. Every failure is an ``images.errors.BuilderError``;
a refusal is ``LaunchRefused`` with one of the reasons of docs/reference/launch-refusals.md. Names are
imported when they are first used, so that importing this package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from backend.admission import AdmittedImage, Finding, admit, assess
    from backend.agent_command import Output
    from backend.containers import EngineFacts, Limits
    from backend.detect import detect as detect_agents
    from backend.engines.protocol import Engine
    from backend.engines.select import connect
    from backend.home import Keepers
    from backend.host import Host, engine_uid, look_at_host, readable_keys
    from backend.journal import Boundary, Entry, Journal, Removal
    from backend.launch import Controller
    from backend.launch import launch as launch_image
    from backend.leased import Leased, adopt_leased, open_leased
    from backend.live import redacted
    from backend.logins.leasing import lease_login
    from backend.logins.store import LoginName, LoginStore
    from backend.network.attempts import Attempt, Decision
    from backend.network.bounds import Uplink, Upstream
    from backend.network.holding import NetworkSeen
    from backend.ownership import Owner, hold_lease
    from backend.plan import LaunchPlan, plan_launch
    from backend.probe import HostProbe, probe_host
    from backend.projection.credentials import Credential, read_credential
    from backend.projection.history import History, read_history, write_history
    from backend.projection.integrations import Integrations
    from backend.projection.placing import Projection, projection_of
    from backend.projection.routes import parse_name as parse_credential_name
    from backend.projection.server_secrets import ServerSecret, read_server_secret
    from backend.records import LaunchEnding, LaunchRecord, Observed
    from backend.recovery import RecoveryPlan, recover
    from backend.requests import LaunchClass, LaunchRequest, LaunchSource, SourceRoute, Supervision
    from backend.room import ExportStatus, SpaceSeen
    from backend.workspace.candidates import prepare_candidate
    from backend.workspace.git import open_git
    from backend.workspace.importing import ImportedCommit
    from backend.workspace.materialise import MaterialisedTree, materialise
    from backend.workspace.origin import find_origin
    from backend.workspace.prepared import PreparedSource, prepare_source
    from backend.workspace.reading import FetchedCommit, fetch_commit, not_in_commit, read_head, read_revision

_HOMES: Final = {
    "AdmittedImage": "admission.AdmittedImage",
    "Attempt": "network.attempts.Attempt",
    "Boundary": "journal.Boundary",
    "Controller": "launch.Controller",
    "Credential": "projection.credentials.Credential",
    "Decision": "network.attempts.Decision",
    "Engine": "engines.protocol.Engine",
    "EngineFacts": "containers.EngineFacts",
    "Entry": "journal.Entry",
    "ExportStatus": "room.ExportStatus",
    "FetchedCommit": "workspace.reading.FetchedCommit",
    "Finding": "admission.Finding",
    "History": "projection.history.History",
    "Host": "host.Host",
    "HostProbe": "probe.HostProbe",
    "ImportedCommit": "workspace.importing.ImportedCommit",
    "Integrations": "projection.integrations.Integrations",
    "Journal": "journal.Journal",
    "Keepers": "home.Keepers",
    "LaunchClass": "requests.LaunchClass",
    "LaunchEnding": "records.LaunchEnding",
    "LaunchPlan": "plan.LaunchPlan",
    "LaunchRecord": "records.LaunchRecord",
    "LaunchRequest": "requests.LaunchRequest",
    "LaunchSource": "requests.LaunchSource",
    "Leased": "leased.Leased",
    "Limits": "containers.Limits",
    "LoginName": "logins.store.LoginName",
    "LoginStore": "logins.store.LoginStore",
    "MaterialisedTree": "workspace.materialise.MaterialisedTree",
    "NetworkSeen": "network.holding.NetworkSeen",
    "Observed": "records.Observed",
    "Output": "agent_command.Output",
    "Owner": "ownership.Owner",
    "PreparedSource": "workspace.prepared.PreparedSource",
    "Projection": "projection.placing.Projection",
    "RecoveryPlan": "recovery.RecoveryPlan",
    "Removal": "journal.Removal",
    "ServerSecret": "projection.server_secrets.ServerSecret",
    "SourceRoute": "requests.SourceRoute",
    "SpaceSeen": "room.SpaceSeen",
    "Supervision": "requests.Supervision",
    "Uplink": "network.bounds.Uplink",
    "Upstream": "network.bounds.Upstream",
    "admit": "admission.admit",
    "adopt_leased": "leased.adopt_leased",
    "assess": "admission.assess",
    "connect": "engines.select.connect",
    "detect_agents": "detect.detect",
    "engine_uid": "host.engine_uid",
    "fetch_commit": "workspace.reading.fetch_commit",
    "find_origin": "workspace.origin.find_origin",
    "hold_lease": "ownership.hold_lease",
    "launch_image": "launch.launch",
    "lease_login": "logins.leasing.lease_login",
    "look_at_host": "host.look_at_host",
    "materialise": "workspace.materialise.materialise",
    "not_in_commit": "workspace.reading.not_in_commit",
    "open_git": "workspace.git.open_git",
    "open_leased": "leased.open_leased",
    "parse_credential_name": "projection.routes.parse_name",
    "plan_launch": "plan.plan_launch",
    "prepare_candidate": "workspace.candidates.prepare_candidate",
    "prepare_source": "workspace.prepared.prepare_source",
    "probe_host": "probe.probe_host",
    "projection_of": "projection.placing.projection_of",
    "read_credential": "projection.credentials.read_credential",
    "read_head": "workspace.reading.read_head",
    "read_history": "projection.history.read_history",
    "read_revision": "workspace.reading.read_revision",
    "read_server_secret": "projection.server_secrets.read_server_secret",
    "readable_keys": "host.readable_keys",
    "recover": "recovery.recover",
    "redacted": "live.redacted",
    "write_history": "projection.history.write_history",
}

__all__ = [
    "AdmittedImage",
    "Attempt",
    "Boundary",
    "Controller",
    "Credential",
    "Decision",
    "Engine",
    "EngineFacts",
    "Entry",
    "ExportStatus",
    "FetchedCommit",
    "Finding",
    "History",
    "Host",
    "HostProbe",
    "ImportedCommit",
    "Integrations",
    "Journal",
    "Keepers",
    "LaunchClass",
    "LaunchEnding",
    "LaunchPlan",
    "LaunchRecord",
    "LaunchRequest",
    "LaunchSource",
    "Leased",
    "Limits",
    "LoginName",
    "LoginStore",
    "MaterialisedTree",
    "NetworkSeen",
    "Observed",
    "Output",
    "Owner",
    "PreparedSource",
    "Projection",
    "RecoveryPlan",
    "Removal",
    "ServerSecret",
    "SourceRoute",
    "SpaceSeen",
    "Supervision",
    "Uplink",
    "Upstream",
    "admit",
    "adopt_leased",
    "assess",
    "connect",
    "detect_agents",
    "engine_uid",
    "fetch_commit",
    "find_origin",
    "hold_lease",
    "launch_image",
    "lease_login",
    "look_at_host",
    "materialise",
    "not_in_commit",
    "open_git",
    "open_leased",
    "parse_credential_name",
    "plan_launch",
    "prepare_candidate",
    "prepare_source",
    "probe_host",
    "projection_of",
    "read_credential",
    "read_head",
    "read_history",
    "read_revision",
    "read_server_secret",
    "readable_keys",
    "recover",
    "redacted",
    "write_history",
]


def __getattr__(name: str) -> object:
    """PEP 562: the first use of a name imports its module."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'backend' has no attribute {name!r}")
    module, _, attribute = home.rpartition(".")
    return getattr(import_module(f"backend.{module}"), attribute)
