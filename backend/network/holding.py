"""Hold the network of one launch: the socket while its container exists, the relay while its command runs."""

from __future__ import annotations

import contextlib
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from backend.account import Account, agent_exec
from backend.engines.client import complaint
from backend.engines.protocol import Engine
from backend.network.attempts import Attempt, AttemptLog, Decision
from backend.network.bounds import DEFAULT_BOUNDS
from backend.network.planning import CA_NAME, NetworkPlan
from backend.network.serving import Outlet, listening
from backend.runner import Outcome
from images.credentials import Secret
from images.errors import BuilderError, HostError, LaunchReason, LaunchRefused
from images.redaction import hide
from images.relay import READY, RELAY_PATH

READY_SECONDS: Final = 30.0
# An agent may end the relay as it may end any process of its own; it is not started for ever.
STARTS: Final = 20
_PAUSE: Final = 0.2  # seconds
_LONGEST_LABEL: Final = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkSeen:
    """What a launch reached, and tried to. ``more``: attempts beyond those listed, by decision.

    ``relay_ended``: how often the relay inside ended before the command did; after STARTS it stays away.
    """

    plan: NetworkPlan
    attempts: tuple[Attempt, ...]
    more: tuple[tuple[Decision, int], ...]
    relay_ended: int = 0


class Network:
    """The network of one launch in progress; without a plan there is none, and nothing is done."""

    def __init__(
        self, plan: NetworkPlan | None, now: Callable[[], datetime], secrets: Iterable[Secret] = ()
    ) -> None:
        known = tuple(secrets)
        self._plan = plan
        self._log = AttemptLog(now, show=lambda host: shown_host(host, known))
        self._relay: _Relay | None = None

    def seen(self) -> NetworkSeen | None:
        """Everything until now."""
        if self._plan is None:
            return None
        ended = self._relay.ended if self._relay is not None else 0
        return NetworkSeen(
            plan=self._plan, attempts=self._log.attempts(), more=self._log.more(), relay_ended=ended
        )

    @contextlib.contextmanager
    def served(self) -> Iterator[None]:
        """The socket is there, and answered, while this lasts. HostError when it cannot be."""
        plan = self._plan
        if plan is None:
            yield
            return
        outlet = Outlet(allow=plan.allow, log=self._log, bounds=DEFAULT_BOUNDS, upstream=plan.uplink.upstream)
        try:
            _make_folder(plan)
            with listening(plan.folder, outlet):
                yield
        finally:
            shutil.rmtree(plan.folder, ignore_errors=True)

    @contextlib.contextmanager
    def relayed(self, engine: Engine, container: str, account: Account) -> Iterator[None]:
        """The relay runs inside, as the agent, while this lasts; LaunchRefused when it does not start."""
        if self._plan is None:
            yield
            return
        self._relay = _Relay(engine, container, account)
        with self._relay.running():
            yield


class _Relay:
    """One exec that lasts, in a thread of its own. ``ended``: how often it did while it should run."""

    def __init__(self, engine: Engine, container: str, account: Account) -> None:
        self._engine = engine
        self._container = container
        self._plan = agent_exec(account, (RELAY_PATH,))
        self._stop = threading.Event()
        self._came = threading.Event()
        self._said = bytearray()
        self._why = ""
        self.ended = 0

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        thread = threading.Thread(target=self._run, name="relay", daemon=True)
        thread.start()
        try:
            self._came.wait(READY_SECONDS)
            if not self._is_ready():
                raise LaunchRefused(
                    LaunchReason.NETWORK_RELAY,
                    f"the network relay did not start inside: {self._why or 'it says nothing'}",
                    where=RELAY_PATH,
                    hint="builder doctor",
                )
            yield
        finally:
            self._stop.set()
            thread.join()

    def _is_ready(self) -> bool:
        return READY.encode() in self._said

    def _run(self) -> None:
        for _ in range(STARTS):
            try:
                outcome = self._engine.exec(
                    self._container,
                    self._plan,
                    on_stdout=self._take,
                    deadline=_FOREVER,
                    cancelled=self._stop.is_set,
                )
                self._why = _why(outcome)
            except HostError as failed:
                self._why = failed.what
            except BuilderError:  # another thread is being interrupted, and ends this one
                self._why = "interrupted"
            if self._is_ready() and not self._stop.is_set():
                self.ended += 1
            if not self._is_ready() or self._stop.wait(_PAUSE):
                break
        self._came.set()

    def _take(self, chunk: bytes) -> None:
        if not self._is_ready():
            self._said += chunk[:4096]
            if self._is_ready():
                self._came.set()


# The container has a deadline, and ends this exec with it.
_FOREVER: Final = 8 * 24 * 3600.0


def _why(outcome: Outcome) -> str:
    return complaint(outcome.stderr) or f"exit code {outcome.exit_code}"


def _make_folder(plan: NetworkPlan) -> None:
    """The agent's uid, another number on each engine, may enter it; the one around it is closed to others."""
    try:
        plan.folder.mkdir(mode=0o700)
        if plan.uplink.ca_bundle:
            file = plan.folder / CA_NAME
            file.write_bytes(plan.uplink.ca_bundle)
            file.chmod(0o644)
        plan.folder.chmod(0o711)
    except OSError as broken:
        raise HostError(
            f"the run's network cannot be served: {broken.strerror}",
            where=str(plan.folder),
            hint="builder doctor",
        ) from None


def shown_host(host: str, secrets: Iterable[Secret]) -> str:
    """A host as a record may hold it: who asks for it chose its letters, and they may be a credential.

    Of a name with a long label, as tunnels through names have, the end is shown.
    """
    labels = host.split(".")
    known = tuple(secrets)
    lower = tuple(one.lower() for one in known)  # as every host is
    if any(len(label) > _LONGEST_LABEL for label in labels[-2:]) or hide(host, (*known, *lower)) != host:
        return "(not shown)"
    if any(len(label) > _LONGEST_LABEL for label in labels):
        return "(…)." + ".".join(labels[-2:])
    return host
