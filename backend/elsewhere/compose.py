"""The plan as a Compose file, one service."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from backend.elsewhere.docker import docker_notes, exec_flags
from backend.elsewhere.yaml_text import Plain, yaml_document
from backend.engines.grammar import SHM_BYTES, check_plan

if TYPE_CHECKING:
    from backend.containers import Tmpfs
    from backend.plan import ElsewherePlan

SERVICE: Final = "agent"


def compose_file(plan: ElsewherePlan) -> str:
    """YAML after the Compose specification. Raises HostError for a plan that no engine would be told."""
    container = plan.container
    check_plan(container)
    service: dict[str, Plain] = {
        "image": str(container.image.id),
        "pull_policy": "never",
        "container_name": container.name,
        "hostname": container.hostname,
        "command": container.arguments,
        "stdin_open": container.keep_stdin,
        "init": False,
        "restart": "no",
        "healthcheck": {"disable": True},
        "logging": {"driver": "none"},
        "working_dir": container.working_dir,
        "network_mode": container.network.value,
        "ipc": "private",
        "shm_size": SHM_BYTES,
        "privileged": False,
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "read_only": container.read_only_root,
        "tmpfs": [f"{item.path}:{tmpfs_options(item)}" for item in container.tmpfs],
    }
    if container.user is not None:
        service["user"] = f"{container.user[0]}:{container.user[1]}"
    if (limits := container.limits) is not None:
        service |= {
            "mem_limit": limits.memory,
            "memswap_limit": limits.memory,  # the same number: no swap
            "cpus": limits.cpus,
            "pids_limit": limits.pids,
        }
    within = " ".join(flag for flag in exec_flags(plan) if flag not in ("--interactive", "--tty"))
    notes = (
        *docker_notes(plan),
        f"the agent, after up --detach: docker compose exec {within} {SERVICE} {' '.join(plan.command.argv)}",
    )
    return "".join(f"# {line}\n" for line in notes) + yaml_document({"services": {SERVICE: service}})


def tmpfs_options(item: Tmpfs) -> str:
    """Size, owner and mode of a memory file system, as the docker client is told them."""
    execution = "exec" if item.executable else "noexec"
    owner = f"uid={item.uid},gid={item.gid}"
    return f"rw,nosuid,nodev,{execution},size={item.size},mode={item.mode:04o},{owner}"
