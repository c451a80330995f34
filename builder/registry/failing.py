"""What a registry did wrong while something was pushed or pulled, each kind an error of its own."""

from __future__ import annotations

import re
from typing import Final

from builder.resolve.failures import At, failure
from images.config import BaseReference
from images.errors import BuilderError, HostError, NetworkFailed, NetworkReason, StateError

_AGAIN: Final = "type the command again; if it stays so, ask whoever runs the registry"
_SAID: Final = {
    "ELINK": "its list of referrers goes on at another place, or in a circle",
    "ETOOMANY": "it lists more about this image than one can have",
    "ECONFLICT": "others change its list of referrers faster than we",
    "EBADDIGEST": "it says that it stored other bytes than it was sent",
    "EBADMANIFEST": "it sent something that is no manifest and no list of referrers",
    "EREDIRECT": "it redirects too often, or to where nothing may go",
}
_LOOPBACK: Final = re.compile(r"(localhost|127\.[0-9.]+)(:\d+)?")


def registry_failure(code: str, at: tuple[str, ...], reference: BaseReference, command: str) -> BuilderError:
    """The error for a code of result.json. ``at``: hop and retry_after. ``command``: to type again."""
    hop, wait = at
    where = str(reference)
    if not hop and code in _SAID:
        reason = NetworkReason.WRONG_DIGEST if code == "EBADDIGEST" else NetworkReason.SERVER
        return NetworkFailed(reason, f"the registry cannot be used: {_SAID[code]}", where=where, hint=_AGAIN)
    if not hop and code in ("E404", "E410"):
        return NetworkFailed(
            NetworkReason.NOT_FOUND,
            f"the registry does not have it ({code})",
            where=where,
            hint="look at the name; a registry may also say so of what a login may not see",
        )
    if not hop and re.fullmatch(r"E4(?!01|03|07|29)\d\d", code):
        return NetworkFailed(
            NetworkReason.SERVER, f"the registry refuses what was sent ({code})", where=where, hint=_AGAIN
        )
    broken = failure(code, At(where, hop=hop, retry_after=wait, alias=""))
    if not isinstance(broken, (NetworkFailed, StateError)):  # in words about packages
        known = code if re.fullmatch(r"[A-Za-z0-9_]{1,60}", code) else "unknown"
        return HostError(f"the resolver did not finish ({known})", where=where, hint="builder doctor")
    broken.hint = broken.hint.replace("builder lock", command)
    host = reference.registry[0] if reference.registry else ""
    if broken.reason == NetworkReason.UNREACHABLE and _LOOPBACK.fullmatch(host):
        broken.hint = (
            f"{host} is the loopback of the container that asks: name this machine by an address of its own"
        )
    return broken
