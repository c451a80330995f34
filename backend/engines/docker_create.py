"""A container plan as the argv of ``docker container create``: the closed grammar of the Docker dialect."""

from __future__ import annotations

from backend.containers import ContainerPlan, Network, Purpose
from backend.engines.grammar import SHM_BYTES, check_plan, flag


def create_arguments(plan: ContainerPlan) -> tuple[str, ...]:
    """Arguments after the client's own. Raises HostError for a plan that breaks the rules of its purpose."""
    check_plan(plan)
    command = (*plan.entrypoint[1:], *plan.arguments)
    return (
        "container",
        "create",
        *_identity(plan),
        *_isolation(plan),
        *_mounts(plan),
        plan.image.id,
        *command,
    )


def _identity(plan: ContainerPlan) -> tuple[str, ...]:
    # What the daemon's own configuration could add (an init from the host, a restart policy) is off by name.
    logs: tuple[str, ...] = (flag("log-driver", "none"),)
    if plan.purpose is Purpose.BUILD:
        options = ("max-size=1m", "max-file=1", "compress=false")
        logs = (flag("log-driver", "local"), *(flag("log-opt", option) for option in options))
    return (
        flag("name", plan.name),
        flag("hostname", plan.hostname),
        *(flag("label", f"{name}={value}") for name, value in plan.labels),
        flag("pull", "never"),
        flag("init", "false"),
        flag("restart", "no"),
        "--no-healthcheck",
        *logs,
        *(("--rm",) if plan.auto_remove else ()),
        *(("--interactive",) if plan.keep_stdin else ()),
        *((flag("user", f"{plan.user[0]}:{plan.user[1]}"),) if plan.user is not None else ()),
        *(flag("group-add", str(group)) for group in plan.extra_groups),
        flag("workdir", plan.working_dir),
        *(flag("env", f"{name}={value}") for name, value in plan.environment),
        *((flag("entrypoint", plan.entrypoint[0]),) if plan.entrypoint else ()),
    )


def _isolation(plan: ContainerPlan) -> tuple[str, ...]:
    network = "none" if plan.network is Network.NONE else "bridge"
    flags = [flag("network", network), flag("ipc", "private"), flag("shm-size", str(SHM_BYTES))]
    if plan.purpose is Purpose.BUILD:
        # BuildKit makes user namespaces and mounts of its own; it gets no capability for that.
        flags += [flag("security-opt", "seccomp=unconfined"), flag("security-opt", "systempaths=unconfined")]
    else:
        flags += [flag("cap-drop", "ALL"), flag("security-opt", "no-new-privileges")]
    if plan.read_only_root:
        flags.append("--read-only")
    if plan.limits is not None:
        memory = str(plan.limits.memory)
        flags += [
            flag("memory", memory),
            flag("memory-swap", memory),  # the same number: no swap
            flag("cpus", f"{plan.limits.cpus:.3f}"),
            flag("pids-limit", str(plan.limits.pids)),
        ]
    return tuple(flags)


def _mounts(plan: ContainerPlan) -> tuple[str, ...]:
    tmpfs = (
        flag(
            "tmpfs",
            f"{item.path}:rw,nosuid,nodev,{'exec' if item.executable else 'noexec'}"
            f",size={item.size},mode={item.mode:04o},uid={item.uid},gid={item.gid}",
        )
        for item in plan.tmpfs
    )
    # A submount below a read-only bind would stay writable: it is not carried along at all.
    read_only = (
        flag("mount", f"type=bind,source={item.source},target={item.target},readonly,bind-nonrecursive=true")
        for item in plan.read_only_binds
    )
    private = (
        flag("mount", f"type=bind,source={item.source},target={item.target},bind-nonrecursive=true")
        for item in plan.private_binds
    )
    volumes = (flag("mount", f"type=volume,target={target}") for target in plan.volumes)
    named = (
        flag(
            "mount",
            f"type=volume,source={item.name},target={item.target}{'' if item.writable else ',readonly'}",
        )
        for item in plan.named_volumes
    )
    return (*tmpfs, *read_only, *private, *volumes, *named)
