"""Where the members of a wheel lie in a server's or tool's directory: as in a virtual environment."""

from __future__ import annotations

from typing import Final

PYTHON: Final = "/usr/bin/python3"  # the image's own: of the base, or of the Debian toolchain
# Generated in every such directory, so no wheel may bring them.
GENERATED: Final = ("pyvenv.cfg", "run", "bin/python", "bin/python3")
DATA: Final = ".data"
DIST_INFO: Final = ".dist-info"
# What an installer writes about itself, and what Python would write: in no image of ours.
_NOISE: Final = frozenset({"INSTALLER", "REQUESTED", "direct_url.json"})
_BYTECODE: Final = (".pyc", ".pyo")


def site_packages(python: str) -> str:
    """Where packages lie, below the directory; ``python`` as 3.11."""
    return f"lib/python{python}/site-packages"


def wheel_place(path: str, site: str, name: str) -> tuple[str, bool] | None:
    """Where a member lies below the directory, and whether it is a command; None: it is left out.

    ``site``: of :func:`site_packages`; ``name``: of the package. ValueError for a scheme that nobody knows.
    The build's own script (wheel.mjs in Containerfile.in) does the same; the layer audit compares.
    """
    parts = path.split("/")
    if "__pycache__" in parts or path.endswith(_BYTECODE):
        return None
    if len(parts) == 2 and parts[0].endswith(DIST_INFO) and parts[1] in _NOISE:
        return None
    if not parts[0].endswith(DATA) or len(parts) == 1:
        return f"{site}/{path}", False
    schemes = {
        "purelib": f"{site}/",
        "platlib": f"{site}/",
        "scripts": "bin/",
        "data": "",
        "headers": f"include/site/{site.split('/')[1]}/{name}/",
    }
    rest = "/".join(parts[2:])
    if not rest or parts[1] not in schemes:
        raise ValueError(f"{path[:120]!r} is in no scheme that is known")
    return f"{schemes[parts[1]]}{rest}", parts[1] == "scripts"
