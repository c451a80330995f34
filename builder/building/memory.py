"""Decide whether BuildKit's state fits into memory: it is thrown away, and disks are slow at that."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from backend.containers import EngineFacts
from images.oci import OciImage
from images.render import BuildContext

# Seen: 2.7 GB of state for 0.4 GB of compressed input (unpacked, copied, compressed again).
_FACTOR: Final = 12
_CEILING: Final = 4  # times what is expected, where there is that much
_LEAVE: Final = 4 << 30  # bytes that everything else keeps
# overlayfs on a tmpfs needs user.* attributes there; without them BuildKit copies whole file systems instead.
_KERNEL: Final = (6, 6)


def state_bytes(
    context: BuildContext, base: OciImage, facts: EngineFacts, meminfo: Path = Path("/proc/meminfo")
) -> int:
    """The size of a memory file system that holds the state of this build; 0 = leave it on the engine's disk.

    Where the state lies changes how long a build takes and nothing else.
    """
    if context.toolchain is not None:
        # Seen: on memory BuildKit mounts overlayfs without its attributes, so that dpkg cannot rename its new
        # directories into place ("Invalid cross-device link").
        return 0
    found = re.match(r"(\d+)\.(\d+)", facts.kernel)
    if facts.remote or found is None or (int(found[1]), int(found[2])) < _KERNEL:
        return 0
    inputs = sum(item.artifact.size for item in context.artifacts)
    inputs += sum(layer.size for layer in base.manifest.layers)
    needed = _FACTOR * inputs
    usable = _available(meminfo) - _LEAVE
    # The size is a ceiling: what is not used is not taken.
    return min(usable, _CEILING * needed) if usable >= needed else 0


def _available(meminfo: Path) -> int:
    """Bytes that the kernel says can be used without swapping; 0 when it does not say."""
    try:
        found = re.search(r"^MemAvailable: +(\d{1,15}) kB$", meminfo.read_text(), re.MULTILINE)
    except (OSError, UnicodeDecodeError):
        return 0
    return int(found[1]) * 1024 if found else 0
