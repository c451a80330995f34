"""Which platform this machine is, as OCI names it."""

from __future__ import annotations

import platform

from images.errors import HostError
from images.oci import Platform

_ARCHITECTURES = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}


def host_platform() -> Platform:
    """linux/<architecture>: images are for Linux, whatever asks. HostError for one that we do not know."""
    machine = platform.machine().lower()
    if machine not in _ARCHITECTURES:
        raise HostError(f"no image can be for this machine: {machine}", hint="builder doctor")
    return Platform("linux", _ARCHITECTURES[machine])
