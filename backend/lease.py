"""The lease inside a leased container: a file that PID 1 watches, and that only the watch uid can write.

It holds the machine's uptime, in seconds, when it was last renewed. Whoever renews it is an exec as the watch
uid; the agent can read it, and neither write, replace nor remove it.
"""

from __future__ import annotations

import math
from typing import Final

from backend.account import ROOT, WATCH, Account
from backend.containers import ExecPlan
from backend.engines.client import complaint
from backend.engines.protocol import Engine
from backend.readback import allowances_of
from images.errors import HostError

PLACE: Final = "/run/lease"
_FILE: Final = f"{PLACE}/renewed"
LEASE_CALL_SECONDS: Final = 30.0

# PID 1's work. $1: how old the lease may grow, in seconds. A renewal that is half-written or from the future
# is none. Without sleep it ends at once, rather than spin. It has no child but sleep, no pipe and no input.
WATCH_LEASE: Final = f"""\
read -r now _ </proc/uptime; now=${{now%%.*}} last=$now
while [ $((now - last)) -lt "$1" ]; do
    sleep 1 || exit 1
    read -r now _ </proc/uptime; now=${{now%%.*}}
    if read -r said _ 2>/dev/null <{_FILE}; then
        case $said in '' | *[!0-9]*) ;; *) [ "$said" -gt "$now" ] || last=$said ;; esac
    fi
done"""
RENEW: Final = f"read -r now _ </proc/uptime && printf '%s\\n' \"${{now%%.*}}\" >{_FILE}"
MAKE: Final = f"mkdir -m 0755 {PLACE} && {RENEW}"
AGE: Final = f"read -r said _ <{_FILE} && read -r now _ </proc/uptime && echo $((${{now%%.*}} - said))"
# What an agent would need to keep its container alive for ever.
REACH: Final = f"for item in /run {PLACE} {_FILE}; do [ ! -w $item ] || exit 1; done"


def watched_by_lease(deadline: float, seconds: int) -> tuple[str, ...]:
    """What the init runs instead of ``cat``: it ends at the deadline, or when the lease has grown old."""
    limit = str(math.ceil(deadline))
    return ("timeout", "-k5", limit, "sh", "-c", WATCH_LEASE, "lease", str(seconds))


def hand_lease(engine: Engine, container: str, account: Account) -> None:
    """Make the lease in a container that has just been started, before anything of the agent runs.

    HostError when that fails, or when the agent could reach it.
    """
    if allowances_of(engine.product).own_tmpfs:
        _as(engine, container, WATCH, MAKE)
    else:
        # The engine gave /run to root, who cannot give it on: so the place is opened, used, and closed again.
        _as(engine, container, ROOT, f"mkdir -m 1777 {PLACE}")
        _as(engine, container, WATCH, RENEW)
        _as(engine, container, ROOT, f"chmod 0755 {PLACE}")
    _as(engine, container, account.ids, REACH)


def renew_lease(engine: Engine, container: str) -> None:
    """Say that the container is still wanted. HostError when it cannot be said."""
    _as(engine, container, WATCH, RENEW)


def lease_age(engine: Engine, container: str) -> int | None:
    """Seconds since the lease was renewed; None when the container does not say."""
    outcome = engine.exec(container, _plan(WATCH, AGE), deadline=LEASE_CALL_SECONDS)
    said = outcome.stdout.decode("ascii", "replace").strip()
    return int(said) if outcome.ok and said.isdecimal() else None


def _as(engine: Engine, container: str, user: tuple[int, int], script: str) -> None:
    outcome = engine.exec(container, _plan(user, script), deadline=LEASE_CALL_SECONDS)
    if not outcome.ok:
        why = complaint(outcome.stderr) or f"exit code {outcome.exit_code}"
        raise HostError(
            f"the lease in container {container[:12]} cannot be kept: {why}",
            where=engine.product,
            hint="builder ps",
            reason="lease",
        )


def _plan(user: tuple[int, int], script: str) -> ExecPlan:
    return ExecPlan(argv=("sh", "-c", script), user=user, working_dir="/")
