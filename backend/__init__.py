"""The façade for embedders: run an admitted image in a container, and nothing else.

A launch, from a verified image to its signed record::

    import backend

    engine = backend.connect("podman", client_home, environment)
    with backend.hold_lease(leases, state_id) as owner, backend.Journal.open(file, state_id) as journal:
        backend.recover(engine, journal, leases, state_id, now)  # what dead controllers left
        admitted = backend.admit(verified, policy, probe, facts=engine.facts(), platform=platform)
        controller = backend.Controller(engine=engine, journal=journal, owner=owner, ...)
        with backend.redacted(output, secrets) as shown:  # for people and logs; without it: byte by byte
            record = backend.launch_image(controller, admitted, backend.LaunchRequest(...), shown)

A run's repository, from the operator's commit to the agent's::

    git = backend.open_git(home, environment)
    origin = backend.find_origin(git, path)
    fetched = backend.fetch_commit(git, origin, commit, staging / "run.git")
    unseen = backend.not_in_commit(git, origin, fetched)  # what lies beside the commit, to be shown
    source = backend.materialise(git, fetched.repository, commit, staging / "source")
    ...  # the agent works; then, as the agent, backend.export_command(commit, limits.pack_bytes) into a file
    candidate = backend.import_export(git, fetched.repository, file, base=commit, run=run_id)

Order is enforced by types: a launch takes an ``AdmittedImage``, which only ``admit`` makes, from a
``VerifiedImage``, which only ``provenance.verify`` makes. Every failure is an ``images.errors.BuilderError``;
a refusal is ``LaunchRefused`` with one of the reasons of docs/reference/launch-refusals.md. Names are
imported when they are first used, so that importing this package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from backend.admission import AdmittedImage, Finding, admit, assess, engine_uid, readable_keys
    from backend.containers import EngineFacts, Limits
    from backend.detect import detect as detect_agents
    from backend.engines.protocol import Engine
    from backend.engines.select import connect
    from backend.journal import Boundary, Entry, Journal, Removal
    from backend.launch import Controller, Output
    from backend.launch import launch as launch_image
    from backend.live import redacted
    from backend.ownership import Owner, hold_lease
    from backend.plan import LaunchClass, LaunchPlan, LaunchRequest, plan_launch
    from backend.probe import HostProbe, probe_host
    from backend.records import LaunchEnding, LaunchRecord, Observed
    from backend.recovery import RecoveryPlan, recover
    from backend.workspace.git import open_git
    from backend.workspace.importing import ExportLimits, ImportedCommit, NothingNew, import_export
    from backend.workspace.materialise import MaterialisedTree, materialise
    from backend.workspace.origin import find_origin
    from backend.workspace.producer import check_producer, export_command
    from backend.workspace.reading import FetchedCommit, fetch_commit, not_in_commit, read_head

_HOMES: Final = {
    "AdmittedImage": "admission.AdmittedImage",
    "Boundary": "journal.Boundary",
    "Controller": "launch.Controller",
    "Engine": "engines.protocol.Engine",
    "EngineFacts": "containers.EngineFacts",
    "Entry": "journal.Entry",
    "ExportLimits": "workspace.importing.ExportLimits",
    "FetchedCommit": "workspace.reading.FetchedCommit",
    "Finding": "admission.Finding",
    "HostProbe": "probe.HostProbe",
    "ImportedCommit": "workspace.importing.ImportedCommit",
    "Journal": "journal.Journal",
    "LaunchClass": "plan.LaunchClass",
    "LaunchEnding": "records.LaunchEnding",
    "LaunchPlan": "plan.LaunchPlan",
    "LaunchRecord": "records.LaunchRecord",
    "LaunchRequest": "plan.LaunchRequest",
    "Limits": "containers.Limits",
    "MaterialisedTree": "workspace.materialise.MaterialisedTree",
    "NothingNew": "workspace.importing.NothingNew",
    "Observed": "records.Observed",
    "Output": "launch.Output",
    "Owner": "ownership.Owner",
    "RecoveryPlan": "recovery.RecoveryPlan",
    "Removal": "journal.Removal",
    "admit": "admission.admit",
    "assess": "admission.assess",
    "check_producer": "workspace.producer.check_producer",
    "connect": "engines.select.connect",
    "detect_agents": "detect.detect",
    "engine_uid": "admission.engine_uid",
    "export_command": "workspace.producer.export_command",
    "fetch_commit": "workspace.reading.fetch_commit",
    "find_origin": "workspace.origin.find_origin",
    "hold_lease": "ownership.hold_lease",
    "import_export": "workspace.importing.import_export",
    "launch_image": "launch.launch",
    "materialise": "workspace.materialise.materialise",
    "not_in_commit": "workspace.reading.not_in_commit",
    "open_git": "workspace.git.open_git",
    "plan_launch": "plan.plan_launch",
    "probe_host": "probe.probe_host",
    "read_head": "workspace.reading.read_head",
    "readable_keys": "admission.readable_keys",
    "recover": "recovery.recover",
    "redacted": "live.redacted",
}

__all__ = [
    "AdmittedImage",
    "Boundary",
    "Controller",
    "Engine",
    "EngineFacts",
    "Entry",
    "ExportLimits",
    "FetchedCommit",
    "Finding",
    "HostProbe",
    "ImportedCommit",
    "Journal",
    "LaunchClass",
    "LaunchEnding",
    "LaunchPlan",
    "LaunchRecord",
    "LaunchRequest",
    "Limits",
    "MaterialisedTree",
    "NothingNew",
    "Observed",
    "Output",
    "Owner",
    "RecoveryPlan",
    "Removal",
    "admit",
    "assess",
    "check_producer",
    "connect",
    "detect_agents",
    "engine_uid",
    "export_command",
    "fetch_commit",
    "find_origin",
    "hold_lease",
    "import_export",
    "launch_image",
    "materialise",
    "not_in_commit",
    "open_git",
    "plan_launch",
    "probe_host",
    "read_head",
    "readable_keys",
    "recover",
    "redacted",
]


def __getattr__(name: str) -> object:
    """PEP 562: the first use of a name imports its module."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'backend' has no attribute {name!r}")
    module, _, attribute = home.rpartition(".")
    return getattr(import_module(f"backend.{module}"), attribute)
