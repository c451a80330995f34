"""From the resolver's codes about apt to our errors: what failed, which package, and the ways on."""

from __future__ import annotations

from typing import Final

from builder.resolve.failures import At, failure
from images.errors import BuilderError, HostError, PinError, UsageError
from images.toolchain import DEBIAN_REGISTRY

WHERE: Final = "toolchain.debian"
_SOURCES: Final = "look at this machine's apt sources, or at apt_sources in settings.toml; then: builder lock"


# Code -> error, what is said of the package or suite, hint, reason.
_KNOWN: Final[dict[str, tuple[type[BuilderError], str, str, str]]] = {
    "E404": (
        PinError,
        "{} is not in the Debian archive (any more)",
        "take another name or, if it was locked: builder lock --upgrade toolchain",
        "not-found",
    ),
    "EUNSIGNED": (
        PinError,
        "{} is vouched for by no signature of a key that is trusted here",
        _SOURCES,
        "unsigned",
    ),
    "ENOSUITE": (UsageError, "the apt sources do not have the base's suite {}", _SOURCES, ""),
    "ENOINDEX": (UsageError, "the apt sources name a suite that is not there: {}", _SOURCES, ""),
    "EREMOVES": (PinError, "apt would have to remove {} from the base", "take another package", ""),
    "EAPT": (
        PinError,
        "apt cannot resolve {} against the base",
        "take fewer or other packages; apt-get install in a container of the base says more",
        "",
    ),
    "EBADOUTPUT": (HostError, "apt said something of another form about {}", "builder doctor", ""),
}


def debian_failure(code: str, item: str, hop: str = "", retry_after: str = "") -> BuilderError:
    """The error for a code; ``item``: the package or suite that it is about, the others as in At."""
    about = "".join(char for char in item if char.isprintable())[:200]
    if hop or code not in _KNOWN:
        at = At(WHERE, about, step="apt", hop=hop, retry_after=retry_after, alias=DEBIAN_REGISTRY)
        return failure(code, at)
    kind, what, hint, reason = _KNOWN[code]
    error = kind(what.format(about or "what is asked for"), where=WHERE, hint=hint, reason=reason)
    if isinstance(error, PinError):
        error.pin = "toolchain"
    return error
