"""The launch record: what was observed of one launch, as a signed statement about the image's digest."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from backend.containers import InspectedContainer, Limits
from backend.inside import EffectiveLimits, InsideFacts
from backend.workspace.unseen import UnseenKind
from images.digests import Digest, canonical_json
from images.errors import BuilderError, Interrupted, LaunchRefused, Terminated
from provenance.signing import Bundle, sign
from provenance.statements import Statement, launch_statement, utc

if TYPE_CHECKING:
    from backend.engine_store import StoreTrust
    from backend.network.holding import NetworkSeen
    from backend.plan import LaunchPlan
    from backend.room import SpaceSeen
    from images.strictjson import JsonValue
    from provenance.keys import PrivateKey


SESSION: Final = "session"  # in ``taken``: no credential has this name


class LaunchEnding(StrEnum):
    """How a launch ended. Only COMPLETED has an exit code of the command."""

    COMPLETED = "completed"
    TIMED_OUT = "timed-out"
    INTERRUPTED = "interrupted"
    REFUSED = "refused"
    FAILED = "failed"  # the engine or the host failed
    WORKSPACE_FULL = "workspace-full"  # its workspace grew past its bound, or could not be measured
    CONTAINER_LOST = "container-lost"  # it ended under the command: killed from outside, or its own deadline


def ending_by(failed: BuilderError) -> LaunchEnding:
    """How a launch ended that raised ``failed``."""
    if isinstance(failed, Interrupted | Terminated):
        return LaunchEnding.INTERRUPTED
    return LaunchEnding.REFUSED if isinstance(failed, LaunchRefused) else LaunchEnding.FAILED


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What was really seen, step by step; a step that was never reached left its default.

    ``exit_code`` is the command's own. ``projected``: names of the credentials, servers and Skills
    that were put in place; ``taken``: those of which something was taken out and is kept.
    ``out_of_memory``: from the cgroup's counter; None when not asked. ``store``: what was known of the
    engine's store when the container was started; None when it never came so far, or is not known any more.
    """

    started: datetime
    finished: datetime
    ending: LaunchEnding
    reason: str = ""
    exit_code: int | None = None
    container: InspectedContainer | None = None
    store: StoreTrust | None = None
    inside: InsideFacts | None = None
    projected: tuple[str, ...] = ()
    stdout_bytes: int = 0
    stderr_bytes: int = 0
    out_of_memory: bool | None = None
    space: SpaceSeen | None = None
    network: NetworkSeen | None = None
    taken: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRecord:
    """Permit: the signed record of one launch. Constructed only here."""

    launch_id: str
    image: Digest
    observed: Observed
    statement: Statement = field(repr=False)
    bundle: Bundle = field(repr=False)

    @property
    def exit_code(self) -> int | None:
        """The command's own exit code; None when it did not come to an end by itself."""
        return self.observed.exit_code


def sign_record(
    plan: LaunchPlan, observed: Observed, signer: PrivateKey, *, launcher_id: str, version: str
) -> LaunchRecord:
    """Sign what was observed. Times are the controller's clock; nothing here is the command's own text."""
    statement = launch_statement(plan.admitted.image.digest, predicate(plan, observed, launcher_id, version))
    return LaunchRecord(
        launch_id=plan.launch_id,
        image=plan.admitted.image.digest,
        observed=observed,
        statement=statement,
        bundle=sign(statement, signer),
    )


def predicate(plan: LaunchPlan, observed: Observed, launcher_id: str, version: str) -> dict[str, JsonValue]:
    """The fields of ``launch/v1`` (docs/reference/launch-record.md)."""
    admitted, request = plan.admitted, plan.request
    verified = admitted.verified
    return {
        "launcher": {"id": launcher_id, "version": {"agent-image-builder": version}},
        "run": {
            "id": request.run_id,
            "step": request.step,
            "scope": request.scope,
            "class": request.launch_class.value,
        },
        "image": {
            "name": verified.image_name,
            "manifest": str(admitted.image.digest),
            "config": str(admitted.image.settings.digest),
            "lock": str(verified.lock_digest),
            "contentKey": str(verified.content_key),
            "versions": {name: found for name, found in admitted.agents},
        },
        "policy": {
            "digest": str(verified.policy.digest),
            "mode": admitted.mode.value,
            "accepted": [{"what": one.what.value, "why": one.why} for one in admitted.accepted],
            "notes": list(admitted.notes),
        },
        "engine": _engine(plan),
        "supervision": plan.supervision.value,
        "limits": _limits(request.limits, request.deadline, plan, observed.inside),
        "settings": _settings(observed),
        "network": _network(observed.network),
        "credentials": _credentials(plan, observed),
        "kept": _kept(plan, observed),
        "integrations": _integrations(plan, observed),
        "command": _command(plan, observed),
        "source": _source(observed.space),
        "export": _export(observed.space),
        "startedOn": utc(observed.started),
        "finishedOn": utc(observed.finished),
        "ending": observed.ending.value,
        "reason": observed.reason,
        "exitCode": observed.exit_code,
        "outOfMemory": observed.out_of_memory,
        "output": {
            "recorded": False,
            "stdoutBytes": observed.stdout_bytes,
            "stderrBytes": observed.stderr_bytes,
        },
    }


def _engine(plan: LaunchPlan) -> dict[str, JsonValue]:
    facts = plan.admitted.facts
    return {
        "product": facts.product,
        "version": facts.version,
        "apiVersion": facts.api_version,
        "rootless": facts.rootless,
        "remote": facts.remote,
        "endpoint": facts.endpoint,
        "host": facts.host_name,
        "kernel": facts.kernel,
        "runtime": facts.runtime,
        "storageDriver": facts.storage_driver,
        "cgroupVersion": facts.cgroup_version,
        "cgroupDriver": facts.cgroup_driver,
        "imageIdKind": plan.container.image.id_kind.value,
    }


def _limits(
    asked: Limits, deadline: float, plan: LaunchPlan, inside: InsideFacts | None
) -> dict[str, JsonValue]:
    enforced = plan.container.limits is not None
    return {
        "requested": {"cpus": asked.cpus, "memory": asked.memory, "pids": asked.pids, "deadline": deadline},
        "effective": None if inside is None else _effective(inside.limits),
        "status": "enforced" if enforced else "accepted, not enforced",
    }


def _effective(limits: EffectiveLimits) -> dict[str, JsonValue]:
    return {"cpus": limits.cpus, "memory": limits.memory, "pids": limits.pids}


def _settings(observed: Observed) -> dict[str, JsonValue] | None:
    """Read back, not planned: by the engine's account and from inside. None when it never came so far."""
    created, inside = observed.container, observed.inside
    if created is None:
        return None
    settings: dict[str, JsonValue] = {
        "container": created.id,
        "imageId": created.image_id,
        "store": observed.store.value if observed.store else None,
        "watch": created.user,
        "network": created.network_mode,
        "readOnlyRoot": created.read_only_root,
        "capabilitiesDropped": _texts(created.capabilities_dropped),
        "securityOptions": _texts(created.security_options),
        "logDriver": created.log_driver,
        "environment": _texts(entry.partition("=")[0] for entry in created.environment),
    }
    if inside is not None:
        settings["inside"] = _inside(inside)
    return settings


def _inside(inside: InsideFacts) -> dict[str, JsonValue]:
    return {
        "uids": [*sorted(inside.process.uids)],
        "gids": [*sorted(inside.process.gids)],
        "capabilities": _texts(inside.process.capabilities),
        "noNewPrivileges": inside.process.no_new_privileges,
        "seccomp": inside.process.seccomp,
        "interfaces": _texts(inside.interfaces),
        "idMapping": [[*line] for line in inside.uid_map],
        "mounts": _texts(mount.target for mount in inside.mounts),
        "environment": _texts(name for name, _ in inside.environment),
    }


def _credentials(plan: LaunchPlan, observed: Observed) -> list[JsonValue]:
    """Names alone, and whether each was put in place and read back."""
    return [
        {
            "name": str(one.name),
            "agent": one.name.route.agent.value,
            "providers": _texts(one.providers),
            "inPlace": str(one.name) in observed.projected,
            "renewed": str(one.name) in observed.taken,
        }
        for one in plan.request.projection.credentials
    ]


def _kept(plan: LaunchPlan, observed: Observed) -> dict[str, JsonValue]:
    """What of the agent's HOME outlives the launch, by name: what a login left, whether a session is kept."""
    given = {str(one.name) for one in plan.request.projection.credentials}
    return {
        "login": _texts(name for name in observed.taken if name not in given and name != SESSION),
        "session": None if plan.request.session is None else SESSION in observed.taken,
    }


def _network(seen: NetworkSeen | None) -> dict[str, JsonValue] | None:
    """What the launch was allowed, and each attempt that it made; None for a launch without a network."""
    if seen is None:
        return None
    uplink = seen.plan.uplink
    return {
        "allow": _texts(map(str, seen.plan.allow.peers)),
        "exactAddresses": _texts(map(str, seen.plan.allow.exact)),
        "upstreamProxy": uplink.upstream is not None,
        "caBundle": str(Digest.of(uplink.ca_bundle)) if uplink.ca_bundle else None,
        "attempts": [attempt.to_json() for attempt in seen.attempts],
        "notListed": {decision.value: count for decision, count in seen.more},
        "relayEnded": seen.relay_ended,
    }


def _integrations(plan: LaunchPlan, observed: Observed) -> dict[str, JsonValue]:
    """What the policy turned on, by name and the lock's integrity; which agents were told; no value."""
    setup = plan.projection.setup
    return {
        "mcp": [
            {
                "name": one.name,
                "package": one.package,
                "version": one.version,
                "integrity": one.integrity,
                "agents": _texts(setup.server_agents),
                "secrets": _texts(one.secrets),
                "inPlace": f"mcp.{one.name}" in observed.projected,
            }
            for one in setup.integrations.servers
        ],
        "skills": [
            {
                "name": one.name,
                "integrity": one.integrity,
                "agents": _texts(setup.agents),
                "inPlace": f"skills.{one.name}" in observed.projected,
            }
            for one in setup.integrations.skills
        ],
        "fenced": _texts(setup.fenced),
    }


def _source(space: SpaceSeen | None) -> dict[str, JsonValue] | None:
    """Which files the launch began with; no path of the host, which is nobody's business."""
    if space is None:
        return None
    source = space.plan.source
    return {
        "kind": source.kind.value,
        "candidateOf": source.candidate_of,
        "commit": source.commit,
        "tree": source.tree.tree,
        "files": source.tree.files,
        "shallow": source.fetched.shallow,
        "route": space.plan.route.value,
        "workspace": space.plan.start.value,
        "workspaceBytes": space.plan.bound,
    }


def _export(space: SpaceSeen | None) -> dict[str, JsonValue] | None:
    """What came out, and how much did not: counted by kind, since the names are the agent's own words."""
    if space is None:
        return None
    imported, unseen = space.imported, space.unseen
    return {
        "status": space.status.value,
        "reason": space.reason,
        "base": space.plan.source.commit,
        "commit": imported.commit.name if imported else None,
        "parents": [*imported.commit.parents] if imported else [],
        "objects": imported.objects if imported else 0,
        "movedSubmodules": len(imported.moved_submodules) if imported else 0,
        "notExported": None
        if unseen is None
        else {
            "total": unseen.total,
            "complete": unseen.complete,
            "named": {kind.value: sum(one.kind is kind for one in unseen.entries) for kind in UnseenKind},
        },
    }


def _texts(values: Iterable[str]) -> list[JsonValue]:
    return [*sorted(values)]


def _command(plan: LaunchPlan, observed: Observed) -> dict[str, JsonValue]:
    """The program by its path inside, and a digest of the whole argv: arguments may hold a private text."""
    return {
        "agent": plan.agent,
        "program": observed.inside.command if observed.inside else "",
        "argvDigest": str(Digest.of(canonical_json([_printable(text) for text in plan.command.argv]))),
        "arguments": len(plan.command.argv) - 1,
        "user": f"{plan.command.user[0]}:{plan.command.user[1]}",
        "terminal": plan.request.terminal is not None,
    }


def _printable(text: str) -> str:
    """Bytes that are no text (surrogates) are written out, since canonical JSON has no way to say them."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
