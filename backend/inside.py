"""What a started container looks like from inside: one fixed script, run as the agent, and its strict reader.

The image's own ``sh`` and ``cat`` answer, before anything of the agent runs. So the answer is as trustworthy
as the verified image; what it shows is what the engine and the kernel made of the plan.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from images.errors import HostError

MAX_ANSWER: Final = 1024 * 1024  # bytes

# $1 is a nonce that marks the lines between sections; $2 is the command to look up, as execvp would;
# the rest are directories to try. Only sh and cat are needed.
SCRIPT: Final = r"""
mark() { printf '\n%s %s\n' "$nonce" "$1"; }
nonce=$1 wanted=$2
shift 2
mark environment; cat /proc/$$/environ
mark init; cat /proc/1/cmdline
mark init-status; cat /proc/1/status
mark status; cat /proc/self/status
mark mounts; cat /proc/self/mountinfo
mark interfaces; for item in /sys/class/net/*; do printf '%s\n' "${item##*/}"; done
mark uid-map; cat /proc/self/uid_map
mark limits
for file in memory/memory.limit_in_bytes pids/pids.max cpu/cpu.cfs_quota_us cpu/cpu.cfs_period_us \
    memory.max pids.max cpu.max; do
    [ -r /sys/fs/cgroup/$file ] && printf '%s %s\n' "$file" "$(cat /sys/fs/cgroup/$file)"
done
mark writable
for item in "$@"; do
    [ -w "$item" ] && printf 'yes %s\n' "$item" || printf 'no %s\n' "$item"
done
mark command
case $wanted in
    /*) [ -f "$wanted" ] && [ -x "$wanted" ] && printf '%s\n' "$wanted" ;;
    */*) [ -f "$wanted" ] && [ -x "$wanted" ] && printf '%s\n' "$PWD/$wanted" ;;
    *)
        IFS=:
        for item in $PATH; do
            if [ -f "$item/$wanted" ] && [ -x "$item/$wanted" ]; then
                printf '%s\n' "$item/$wanted"
                break
            fi
        done
        ;;
esac
mark end
"""
_SECTIONS: Final = (
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
    "end",
)
_CAPABILITIES: Final = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")
_ESCAPE: Final = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessFacts:
    """From /proc/PID/status: the four uids and gids, all groups, whether any capability is there at all."""

    uids: frozenset[int]
    gids: frozenset[int]
    groups: frozenset[int]
    capabilities: frozenset[str]  # names of the sets that are not empty
    no_new_privileges: bool
    seccomp: int  # 0 off, 1 strict, 2 filter


@dataclass(frozen=True, slots=True, kw_only=True)
class MountFacts:
    """One line of mountinfo."""

    target: str
    kind: str  # file system type
    root: str
    options: frozenset[str]  # of this mount
    super_options: frozenset[str]  # of the file system itself


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveLimits:
    """What the cgroup seen inside enforces; None where it says nothing or no limit."""

    memory: int | None
    pids: int | None
    cpus: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class InsideFacts:
    """What the script saw. ``command``: where the wanted command lies; empty when it is missing."""

    environment: tuple[tuple[str, str], ...]
    init_argv: tuple[str, ...]
    init: ProcessFacts
    process: ProcessFacts
    mounts: tuple[MountFacts, ...]
    interfaces: tuple[str, ...]
    uid_map: tuple[tuple[int, int, int], ...]
    limits: EffectiveLimits
    writable: tuple[tuple[str, bool], ...]
    command: str


def inside_argv(nonce: str, command: str, places: tuple[str, ...]) -> tuple[str, ...]:
    """The fixed command that looks around, and says which of ``places`` can be written to."""
    return ("sh", "-c", SCRIPT, "sh", nonce, command, *places)


def read_inside(answer: bytes, nonce: str) -> InsideFacts:
    """The script's answer as values. Raises HostError when anything is missing, doubled or malformed."""
    sections = _sections(answer, nonce)
    try:
        limits = dict(line.split(" ", 1) for line in _lines(sections["limits"]))
        return InsideFacts(
            environment=tuple(sorted(_variables(sections["environment"]))),
            init_argv=tuple(_zero_separated(sections["init"])),
            init=_process(sections["init-status"]),
            process=_process(sections["status"]),
            mounts=tuple(_mount(line) for line in _lines(sections["mounts"])),
            interfaces=tuple(sorted(_lines(sections["interfaces"]))),
            uid_map=tuple(_three(line) for line in _lines(sections["uid-map"])),
            limits=_limits(limits),
            writable=tuple(_yes_no(line) for line in _lines(sections["writable"])),
            command=sections["command"].strip("\n"),
        )
    except (ValueError, KeyError, IndexError, ArithmeticError):
        raise HostError("the container's account of itself is malformed", where="read-back inside") from None


def _sections(answer: bytes, nonce: str) -> dict[str, str]:
    text = answer.decode("utf-8", "surrogateescape")
    parts = re.split(rf"\n{re.escape(nonce)} ([a-z-]+)\n", text)
    if tuple(parts[1::2]) != _SECTIONS or parts[0] != "" or parts[-1].strip():
        raise HostError(
            "the container did not describe itself",
            where="read-back inside",
            hint="the image needs sh and cat: builder build",
        )
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def _lines(text: str) -> list[str]:
    return [line for line in text.split("\n") if line]


def _zero_separated(text: str) -> list[str]:
    return text.split("\0")[:-1]


def _variables(text: str) -> list[tuple[str, str]]:
    found = [entry.partition("=") for entry in _zero_separated(text)]
    return [(name, value) for name, _, value in found]


def _process(text: str) -> ProcessFacts:
    fields = {name: value.strip() for name, _, value in (line.partition(":") for line in _lines(text))}
    return ProcessFacts(
        uids=frozenset(map(int, fields["Uid"].split())),
        gids=frozenset(map(int, fields["Gid"].split())),
        groups=frozenset(map(int, fields["Groups"].split())),
        capabilities=frozenset(name for name in _CAPABILITIES if int(fields[name], 16)),
        no_new_privileges=fields["NoNewPrivs"] == "1",
        seccomp=int(fields["Seccomp"]),
    )


def _mount(line: str) -> MountFacts:
    fields = line.split(" ")
    dash = fields.index("-", 6)
    return MountFacts(
        target=_unescape(fields[4]),
        kind=fields[dash + 1],
        root=_unescape(fields[3]),
        options=frozenset(fields[5].split(",")),
        super_options=frozenset(fields[dash + 3].split(",")),
    )


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda found: chr(int(found[1], 8)), text)


def _three(line: str) -> tuple[int, int, int]:
    inside, outside, count = line.split()
    return int(inside), int(outside), int(count)


def _yes_no(line: str) -> tuple[str, bool]:
    answer, _, path = line.partition(" ")
    return path, {"yes": True, "no": False}[answer]


def _limits(found: dict[str, str]) -> EffectiveLimits:
    memory = found.get("memory.max", found.get("memory/memory.limit_in_bytes", "max"))
    pids = found.get("pids.max", found.get("pids/pids.max", "max"))
    quota, period = "max", "100000"
    if "cpu.max" in found:
        quota, period = found["cpu.max"].split()
    elif "cpu/cpu.cfs_quota_us" in found:
        quota, period = found["cpu/cpu.cfs_quota_us"], found["cpu/cpu.cfs_period_us"]
    unlimited = {"max", "-1"}
    return EffectiveLimits(
        # cgroup v1 writes "no limit" as the largest page-aligned number.
        memory=None if memory in unlimited or int(memory) >= 2**62 else int(memory),
        pids=None if pids in unlimited else int(pids),
        cpus=None if quota in unlimited else int(quota) / int(period),
    )
