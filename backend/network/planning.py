"""Plan the network of one launch: its list, the socket's place, what programs inside are told. See ADR 25."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from backend.containers import ContainerPlan, ExecPlan, ReadOnlyBind
from backend.network.admitting import AllowList, granted
from backend.network.bounds import Uplink
from backend.requests import LaunchClass, LaunchRequest, Supervision
from images.errors import LaunchReason, LaunchRefused, UsageError
from images.relay import NETWORK_PLACE, RELAY_PORT, RELAY_SINCE

if TYPE_CHECKING:
    from backend.admission import AdmittedImage

CA_NAME: Final = "ca.pem"
_PROXY: Final = f"http://127.0.0.1:{RELAY_PORT}"
_OWN: Final = "localhost,127.0.0.1,::1"
# As each program wants it: curl and git read small letters, others capitals. ``http`` too, so that what is no
# CONNECT gets an answer that says so, and is written down. Node's own switch (NODE_USE_ENV_PROXY) makes every
# start of Node print a warning, and none of the three CLIs needs it.
_VARIABLES: Final = (
    ("HTTPS_PROXY", _PROXY),
    ("HTTP_PROXY", _PROXY),
    ("NO_PROXY", _OWN),
    ("http_proxy", _PROXY),
    ("https_proxy", _PROXY),
    ("no_proxy", _OWN),
)
# Node adds these authorities to its own; the others believe them alone.
_AUTHORITIES: Final = (
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "NODE_EXTRA_CA_CERTS",
    "PIP_CERT",
    "REQUESTS_CA_BUNDLE",
    "SSL_CERT_FILE",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkPlan:
    """The network of one launch. ``folder``: where the controller serves it; made then, removed after it."""

    allow: AllowList
    folder: Path
    uplink: Uplink

    @property
    def bind(self) -> ReadOnlyBind:
        """Read-only: a socket can be connected to all the same, and nobody inside can put another there."""
        return ReadOnlyBind(source=self.folder, target=NETWORK_PLACE)

    @property
    def environment(self) -> tuple[tuple[str, str], ...]:
        """Beside the image's own, for the agent's command."""
        given = dict(_VARIABLES)
        if self.uplink.ca_bundle:
            given |= dict.fromkeys(_AUTHORITIES, f"{NETWORK_PLACE}/{CA_NAME}")
        return tuple(sorted(given.items()))


def plan_network(
    admitted: AdmittedImage, request: LaunchRequest, launch_id: str, staging: Path | None
) -> NetworkPlan | None:
    """None for a launch that asks for none. Raises LaunchRefused or UsageError."""
    if not request.allow:
        return None
    allow = granted(request.allow, admitted.verified.policy.network)
    for reason, what, hint in _against(admitted, request):
        raise LaunchRefused(reason, what, where="[run].allow", hint=hint)
    if staging is None:
        raise UsageError("a launch with a network needs a private directory for its socket")
    return NetworkPlan(allow=allow, folder=staging / f"network-{launch_id}", uplink=request.uplink)


def _against(admitted: AdmittedImage, request: LaunchRequest) -> Iterable[tuple[LaunchReason, str, str]]:
    unsupported = LaunchReason.NETWORK_UNSUPPORTED
    none = "set allow = [] in builder.toml"
    if request.supervision is Supervision.LEASED:
        yield unsupported, "a leased launch outlives its controller, which would carry its network", none
    if request.launch_class is LaunchClass.EXPORT_COMMAND:
        yield unsupported, "a command over the files of a commit has no network", none
    if not admitted.shared_files:
        yield (
            unsupported,
            f"{admitted.facts.product} does not see this machine's files, so no socket of ours",
            "use an engine on this machine: builder doctor",
        )
    if admitted.verified.lock.recipe.renderer < RELAY_SINCE:
        yield (
            LaunchReason.NETWORK_RELAY,
            "the image was made before images had a network relay",
            "builder lock, then builder build",
        )


def with_network(container: ContainerPlan, network: NetworkPlan) -> ContainerPlan:
    """The launch's container with the socket's folder, and still with no network of its own."""
    return replace(container, read_only_binds=(*container.read_only_binds, network.bind))


def through_network(command: ExecPlan, network: NetworkPlan) -> ExecPlan:
    """The agent's command, told of the relay."""
    return replace(command, environment=(*command.environment, *network.environment))
