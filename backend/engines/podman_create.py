"""A container plan as the argv of ``podman container create``: the closed grammar of the Podman dialect."""

from __future__ import annotations

from backend.containers import ContainerPlan, Network, Purpose
from backend.engines.grammar import SHM_BYTES, check_plan, flag


def create_arguments(plan: ContainerPlan, *, userns: tuple[str, ...]) -> tuple[str, ...]:
    """Arguments after the client's own. ``userns``: from :func:`user_namespace`."""
    check_plan(plan)
    command = (*plan.entrypoint[1:], *plan.arguments)
    return (
        "container",
        "create",
        *_identity(plan),
        *_quirks(),
        *userns,
        *_isolation(plan),
        *_mounts(plan),
        plan.image.id.hex,
        *command,
    )


def user_namespace(purpose: Purpose, *, rootless: bool) -> tuple[str, ...]:
    """The one id mapping of each purpose: every further one would copy the whole image.

    nomap: the operator's own uid does not exist inside. BuildKit must be the operator inside, so that the
    socket in the private directory is reachable; it shares no mapping with runs. Rootful has neither.
    """
    if not rootless:
        return ()
    return (flag("userns", "keep-id:uid=1000,gid=1000" if purpose is Purpose.BUILD else "nomap"),)


def _identity(plan: ContainerPlan) -> tuple[str, ...]:
    logs = (
        (flag("log-driver", "k8s-file"), flag("log-opt", "max-size=1mb"))
        if plan.purpose is Purpose.BUILD
        else (flag("log-driver", "none"),)
    )
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


def _quirks() -> tuple[str, ...]:
    """What Podman would add by itself: the host's proxy, volumes, unbounded tmpfs, systemd's mounts."""
    return (
        flag("http-proxy", "false"),
        flag("image-volume", "ignore"),
        flag("read-only-tmpfs", "false"),
        flag("systemd", "false"),
    )


def _isolation(plan: ContainerPlan) -> tuple[str, ...]:
    network = "none" if plan.network is Network.NONE else "slirp4netns"
    flags = [flag("network", network), flag("ipc", "private"), flag("shm-size", str(SHM_BYTES))]
    if plan.purpose is Purpose.BUILD:
        # BuildKit makes user namespaces and mounts of its own; it gets no capability for that.
        flags += [flag("security-opt", "seccomp=unconfined"), flag("security-opt", "unmask=ALL")]
    else:
        flags += [flag("cap-drop", "ALL"), flag("security-opt", "no-new-privileges")]
    if plan.read_only_root:
        flags.append("--read-only")
    if plan.limits is not None:
        memory, pids = str(plan.limits.memory), plan.limits.pids
        flags += [
            flag("memory", memory),
            flag("memory-swap", memory),  # the same number: no swap
            flag("cpus", f"{plan.limits.cpus:.3f}"),
            flag("pids-limit", str(pids)),
            # Without a cgroup of its own this still bounds the processes of each uid in this user namespace.
            flag("ulimit", f"nproc={pids}:{pids}"),
        ]
    return tuple(flags)


def _mounts(plan: ContainerPlan) -> tuple[str, ...]:
    # Podman refuses uid= and gid=: who needs a private directory makes it inside as its own uid.
    tmpfs = (
        flag(
            "tmpfs",
            f"{item.path}:rw,nosuid,nodev,{'exec' if item.executable else 'noexec'},size={item.size}"
            f",mode={(0o1777 if item.uid or item.gid else item.mode):04o},notmpcopyup",
        )
        for item in plan.tmpfs
    )
    read_only = (
        flag("mount", f"type=bind,source={item.source},target={item.target},readonly,bind-nonrecursive")
        for item in plan.read_only_binds
    )
    private = (
        flag("mount", f"type=bind,source={item.source},target={item.target},bind-nonrecursive")
        for item in plan.private_binds
    )
    volumes = (flag("mount", f"type=volume,target={target}") for target in plan.volumes)
    # Podman 4 knows "readonly" for a bind alone.
    named = (
        flag(
            "mount",
            f"type=volume,source={item.name},target={item.target}{'' if item.writable else ',ro'}",
        )
        for item in plan.named_volumes
    )
    return (*tmpfs, *read_only, *private, *volumes, *named)
