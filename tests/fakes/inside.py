"""What the looking-around script prints in a container that is as planned, with changes on request."""

from __future__ import annotations

from collections.abc import Mapping

from backend.containers import ContainerPlan, ExecPlan
from backend.readback import WRITABLE_NEVER

ROOTLESS_MAP = ((0, 100000, 65536),)
SECTIONS = (
    "environment",
    "init",
    "init-status",
    "status",
    "mounts",
    "interfaces",
    "uid-map",
    "limits",
    "writable",
    "command",
)


def inside_answer(
    plan: ContainerPlan, command: ExecPlan, product: str, changes: Mapping[str, object]
) -> bytes:
    """``changes``: section name -> the text to give instead."""
    nonce, wanted, *places = command.argv[4:]
    image = plan.image.image.settings
    variables = dict(entry.partition("=")[::2] for entry in image.environment)
    variables |= {"HOSTNAME": plan.hostname} | dict(plan.environment) | dict(command.environment)
    if product == "podman":
        variables |= {"container": "podman"}
    init = (*(plan.entrypoint or image.entrypoint), *plan.arguments)
    uid, gid = command.user
    watch = plan.user or (0, 0)
    sections = {
        "environment": "".join(f"{name}={value}\0" for name, value in variables.items()),
        "init": "".join(f"{text}\0" for text in init),
        "init-status": _status(*watch),
        "status": _status(uid, gid),
        "mounts": _mounts(plan),
        "interfaces": "lo",
        "uid-map": "\n".join(f"{a:>10} {b:>10} {c:>10}" for a, b, c in ROOTLESS_MAP),
        "limits": _limits(plan),
        "writable": "\n".join(f"{_writable(plan, place, uid)} {place}" for place in places),
        "command": wanted if wanted.startswith("/") else f"/usr/bin/{wanted}",
    }
    sections |= {name: str(text) for name, text in changes.items()}
    body = "".join(f"\n{nonce} {name}\n{sections[name]}" for name in SECTIONS)
    return f"{body}\n{nonce} end\n".encode()


def _status(uid: int, gid: int) -> str:
    empty = "0" * 16
    sets = "\n".join(f"{name}:\t{empty}" for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"))
    return (
        f"Name:\tcat\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nGid:\t{gid}\t{gid}\t{gid}\t{gid}\nGroups:\t{gid} \n"
        f"{sets}\nNoNewPrivs:\t1\nSeccomp:\t2\n"
    )


def _mounts(plan: ContainerPlan) -> str:
    lines = [
        "72 48 0:39 / / ro,relatime - overlay overlay rw",
        "73 72 0:42 / /proc rw,nosuid,nodev,noexec,relatime - proc proc rw",
        "74 72 0:43 / /dev rw,nosuid - tmpfs tmpfs rw,size=65536k,mode=755",
        "75 74 0:44 / /dev/pts rw,nosuid,noexec,relatime - devpts devpts rw",
        "76 72 0:45 / /sys ro,nosuid,nodev,noexec,relatime - sysfs sysfs ro",
        "77 76 0:46 / /sys/fs/cgroup ro,nosuid,nodev,noexec,relatime - cgroup2 cgroup rw",
        "87 74 0:41 / /dev/mqueue rw,nosuid,nodev,noexec,relatime - mqueue mqueue rw",
        "88 74 0:47 / /dev/shm rw,nosuid,nodev,noexec,relatime - tmpfs shm rw,size=65536k",
    ]
    for number, item in enumerate(plan.tmpfs):
        kind = "" if item.executable else ",noexec"
        owner = (
            f"uid={ROOTLESS_MAP[0][1] + item.uid},gid={ROOTLESS_MAP[0][1] + item.gid}"  # as the host knows it
        )
        options = f"rw,size={item.size // 1024}k,mode={item.mode:o},{owner}"
        lines.append(
            f"{90 + number} 72 0:{50 + number} / {item.path} rw,nosuid,nodev{kind},relatime"
            f" - tmpfs tmpfs {options}"
        )
    for number, bind in enumerate(plan.read_only_binds):
        lines.append(f"{190 + number} 72 254:0 {bind.source} {bind.target} ro,relatime - ext4 /dev/vda rw")
    for number, item in enumerate(plan.named_volumes):
        how = "rw" if item.writable else "ro"
        lines.append(
            f"{290 + number} 72 254:0 /engine/volumes/{item.name}/_data {item.target} {how},relatime"
            " - ext4 /dev/vda rw"
        )
    return "\n".join(lines)


def _limits(plan: ContainerPlan) -> str:
    if plan.limits is None:
        return "memory.max max\npids.max max\ncpu.max max 100000"
    quota = round(plan.limits.cpus * 100_000)
    memory = plan.limits.memory // 4096 * 4096
    return f"memory.max {memory}\npids.max {plan.limits.pids}\ncpu.max {quota} 100000"


def _writable(plan: ContainerPlan, place: str, uid: int) -> str:
    if place in WRITABLE_NEVER:
        return "no"
    if any(item.target == place and item.writable for item in plan.named_volumes):
        return "yes"
    return "yes" if any(t.path == place and (t.mode & 0o002 or t.uid == uid) for t in plan.tmpfs) else "no"
