"""From npm's error codes to our errors: what failed, which pin, and the ways on."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from images.errors import BuilderError, HostError, NetworkFailed, NetworkReason, PinError, StateError

GONE: Final = frozenset({"E404", "ETARGET", "ENOVERSIONS", "E410", "E451"})
_REASONS: Final = {
    **dict.fromkeys(("E401", "E403", "E407", "ENEEDAUTH", "EOTP"), NetworkReason.AUTH),
    "E429": NetworkReason.RATE_LIMITED,
    **dict.fromkeys(("EREDIRECT", "EBADMANIFEST"), NetworkReason.SERVER),
    **dict.fromkeys(
        (
            "ECONNRESET",
            "EPIPE",
            "Z_BUF_ERROR",
            "Z_DATA_ERROR",
            "ERR_STREAM_PREMATURE_CLOSE",
            "TAR_BAD_ARCHIVE",
            "EBADSIZE",
            "FETCH_ERROR",
        ),
        NetworkReason.TRUNCATED,
    ),
    **dict.fromkeys(
        (
            "ENOTFOUND",
            "EAI_AGAIN",
            "ECONNREFUSED",
            "ETIMEDOUT",
            "ESOCKETTIMEDOUT",
            "ERR_SOCKET_TIMEOUT",
            "ECONNECTIONTIMEOUT",
            "EIDLETIMEOUT",
            "ERESPONSETIMEOUT",
            "ETRANSFERTIMEOUT",
            "EHOSTUNREACH",
            "ENETUNREACH",
            "ENOTCACHED",
        ),
        NetworkReason.UNREACHABLE,
    ),
}
_SAID: Final = {
    NetworkReason.AUTH: "refuses these credentials",
    NetworkReason.RATE_LIMITED: "asks us to slow down",
    NetworkReason.TRUNCATED: "broke the connection off",
    NetworkReason.UNREACHABLE: "cannot be reached",
    NetworkReason.SERVER: "failed",
}
_LOGINS: Final = {
    "npm": "the npmrc that settings.toml names",
    "pypi": "the netrc that settings.toml names",
    "debian": "the apt_auth that settings.toml names",
    "": "registry_auth or netrc in settings.toml",
}
_CERTIFICATE: Final = re.compile(r"CERT|SELF_SIGNED|UNABLE_TO_(GET|VERIFY)|ERR_TLS|ERR_SSL")


# What result.json says of an error, in the order of At.
AT: Final = ("item", "spec", "step", "hop", "retry_after")


@dataclass(frozen=True, slots=True)
class At:
    """Where a client failed. ``item``: what we asked for; ``spec``: what the client says it is about.

    ``step``: what the resolver was doing. ``hop``: ``proxy`` (it was not reached, or does not let us),
    ``beyond`` (it does not reach the registry), else empty. ``retry_after``: seconds to wait, if the
    registry says so. ``alias``: npm, pypi, debian; empty: a registry of images, which ``item`` names.
    """

    item: str
    spec: str = ""
    step: str = ""
    hop: str = ""
    retry_after: str = ""
    alias: str = "npm"

    @property
    def start(self) -> str:
        """What a message begins with."""
        return f"{_printable(self.step)}: " if self.step else ""

    @property
    def wait(self) -> str:
        """How long to wait, in words."""
        known = re.fullmatch(r"[0-9]{1,6}", self.retry_after)
        return f"wait {self.retry_after} seconds" if known else "wait a while"

    @property
    def registry(self) -> str:
        """Who failed, in words."""
        return f"the {self.alias} registry" if self.alias else "the registry"


def failure(code: str, at: At) -> BuilderError:
    """The error for a client's ``code``: what failed, which pin, and the ways on."""
    code = code if re.fullmatch(r"[A-Za-z0-9_]{1,60}", code) else "unknown"
    where = _printable(at.item)
    if at.hop and code not in GONE:
        return _of_the_proxy(code, at)
    about = _printable(at.spec) or ("this version" if where else "a package")
    if code in GONE:
        return PinError(
            f"{about} is not in the registry (any more)",
            where=where,
            hint="pin another version in builder.toml, or mirror this one, then: builder lock",
            reason="not-found",
        )
    if code == "EINTEGRITY":
        return PinError(
            f"{about}: the registry's bytes are not those that were pinned",
            where=where,
            hint="find out who changed it; to pin what is there now: builder lock",
            reason="integrity",
        )
    if _CERTIFICATE.search(code):
        return NetworkFailed(
            NetworkReason.UNREACHABLE,
            f"{at.start}the certificate of {at.registry} is not trusted ({code})",
            where=where,
            hint="name your CA in settings.toml: ca_bundle = …",
        )
    if (reason := _reason(code)) is not None:
        hint = {
            NetworkReason.AUTH: f"correct {_LOGINS[at.alias]}, then: builder lock",
            NetworkReason.RATE_LIMITED: f"{at.wait}, then: builder lock",
        }.get(reason, "look at the network, then: builder lock")
        said = f"{at.start}{at.registry} {_SAID[reason]} ({code})"
        return NetworkFailed(reason, said, where=where, hint=hint)
    return _of_the_machine_or_the_pin(code, about, where)


def _of_the_proxy(code: str, at: At) -> NetworkFailed:
    """Which hop failed: our way to the proxy, or its way to the registry."""
    reason, said, hint = (
        NetworkReason.UNREACHABLE,
        f"the proxy does not reach {at.registry}",
        "ask whoever runs the proxy, then: builder lock",
    )
    if code == "E407":
        reason, said = NetworkReason.AUTH, "the proxy wants a login, or another one"
        hint = "write http://user:password@host:port into the file that settings.toml names: proxy_file"
    elif at.hop == "proxy" and code.startswith("E4"):
        reason, said = NetworkReason.AUTH, f"the proxy does not let us reach {at.registry}"
    elif at.hop == "proxy":
        said, hint = "the proxy cannot be reached", "correct proxy in settings.toml, then: builder lock"
    return NetworkFailed(reason, f"{at.start}{said} ({code})", where=_printable(at.item), hint=hint)


def _of_the_machine_or_the_pin(code: str, about: str, where: str) -> BuilderError:
    if code == "ENOSPC":
        return StateError("the engine's disk is full", where="resolver", hint="builder doctor")
    if code in ("ENOENT", "ESPAWN", "EACCES", "ENPM", "EUNKNOWN", "unknown", "EBADOUTPUT"):
        return HostError(
            f"npm did not work in the resolver container ({code})",
            where=where or "resolver",
            hint="builder doctor",
        )
    return PinError(
        f"{about}: npm cannot resolve it ({code})",
        where=where,
        hint="pin another version in builder.toml, then: builder lock",
    )


def _reason(code: str) -> NetworkReason | None:
    if re.fullmatch(r"E[235]\d\d|HPE_\w+", code):  # HPE: no HTTP at all
        return NetworkReason.SERVER
    return _REASONS.get(code)


def _printable(text: str) -> str:
    return "".join(char for char in text if char.isprintable())[:300]
