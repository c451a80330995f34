"""What has a directory of its own in an image: where builder.toml names it, where it lies, its stage."""

from __future__ import annotations

from typing import ClassVar


class InRoom:
    """A base of lock entries; each kind says in which section it is named, and in which room it lies."""

    __slots__ = ()

    SECTION: ClassVar[str]  # of builder.toml
    ROOM: ClassVar[str]  # below /opt
    STAGE: ClassVar[str]  # what its name begins with, as a stage and in the build contexts

    name: str

    @property
    def place(self) -> str:
        """Where builder.toml names it."""
        return f"{self.SECTION}.{self.name}"

    @property
    def directory(self) -> str:
        """Where it lies in the image."""
        return f"/opt/{self.ROOM}/{self.name}"

    @property
    def folder(self) -> str:
        """Its stage, and its name in the build contexts."""
        return f"{self.STAGE}{self.name}"
