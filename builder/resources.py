"""Find the files that ship beside the code: in an installed wheel, or in an editable checkout."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from images.errors import StateError

_HERE: Final = Path(__file__).resolve().parent
# What the wheel puts under builder/resources (pyproject.toml, force-include), and where a checkout has it.
_IN_CHECKOUT: Final = {"Containerfile.in": Path("Containerfile.in"), "bootstrap": Path("tools/bootstrap")}


def resource(name: str) -> Path:
    """The path of a shipped file or folder, such as ``bootstrap``, ``Containerfile.in`` or ``resolve.mjs``.

    Raises StateError when the installation lacks it.
    """
    candidates = [_HERE / "resources" / name]
    if name in _IN_CHECKOUT:
        candidates.append(_HERE.parent / _IN_CHECKOUT[name])
    for candidate in candidates:
        if candidate.exists():
            return candidate
    raise StateError(
        "a file of the installation is missing",
        where=str(candidates[0]),
        hint="install agent-image-builder again",
    )
