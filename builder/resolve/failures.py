"""From npm's error codes to our errors: what failed, which pin, and the ways on."""

from __future__ import annotations

import re
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
    NetworkReason.AUTH: "the registry refuses these credentials",
    NetworkReason.RATE_LIMITED: "the registry asks us to slow down",
    NetworkReason.TRUNCATED: "the connection broke off",
    NetworkReason.UNREACHABLE: "the registry cannot be reached",
    NetworkReason.SERVER: "the registry failed",
}
_HINTS: Final = {
    NetworkReason.AUTH: "correct the npmrc that settings.toml names, then: builder lock",
    NetworkReason.RATE_LIMITED: "wait a while, then: builder lock",
}
_CERTIFICATE: Final = re.compile(r"CERT|SELF_SIGNED|UNABLE_TO_(GET|VERIFY)|ERR_TLS|ERR_SSL")


def failure(code: str, item: str, spec: str = "") -> BuilderError:
    """The error for npm's ``code``; ``item`` is what we asked for, ``spec`` what npm says it is about."""
    code = code if re.fullmatch(r"[A-Za-z0-9_]{1,60}", code) else "unknown"
    where = _printable(item)
    about = _printable(spec) or ("this version" if where else "a package")
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
            f"the registry's certificate is not trusted ({code})",
            where=where,
            hint="name your CA in settings.toml: ca_bundle = …",
        )
    if (reason := _reason(code)) is not None:
        hint = _HINTS.get(reason, "look at the network, then: builder lock")
        return NetworkFailed(reason, f"{_SAID[reason]} ({code})", where=where, hint=hint)
    return _of_the_machine_or_the_pin(code, about, where)


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
    if code.startswith("UND_ERR_"):  # of Node's own fetch
        return NetworkReason.UNREACHABLE if "TIMEOUT" in code else NetworkReason.TRUNCATED
    return _REASONS.get(code)


def _printable(text: str) -> str:
    return "".join(char for char in text if char.isprintable())[:300]
