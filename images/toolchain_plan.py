"""How the toolchain layer is made: the files that its step reads, the packages it takes from the store."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from images.accounts import Accounts
from images.errors import UsageError
from images.lock import Artifact, Lock
from images.oci import Platform
from images.toolchain import DEB_NAME, DEB_VERSION, DpkgAction, split_name

FOLDER: Final = "toolchain"  # in the build contexts; also the name of the stage


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """One call of dpkg."""

    action: DpkgAction
    packages: tuple[Artifact, ...]


@dataclass(frozen=True, slots=True)
class ToolchainPlan:
    """Packages onto the base, in apt's order. ``accounts``: what /etc/passwd and /etc/group hold before."""

    steps: tuple[PlannedStep, ...]
    accounts: Accounts

    @property
    def debs(self) -> tuple[Artifact, ...]:
        """Every package, in the order in which it is unpacked."""
        return tuple(
            artifact for step in self.steps if step.action is DpkgAction.UNPACK for artifact in step.packages
        )

    def lists(self) -> Iterator[tuple[str, bytes]]:
        """The files that the build's script reads: name and bytes."""
        sums = sorted(f"{artifact.integrity.hex}  {deb_file(artifact)}\n" for artifact in self.debs)
        yield "sha256sums", "".join(sums).encode()
        yield "passwd", self.accounts.passwd
        yield "group", self.accounts.group
        for number, step in enumerate(self.steps):
            name = deb_file if step.action is DpkgAction.UNPACK else _dpkg_name
            lines = "".join(f"{name(artifact)}\n" for artifact in step.packages)
            yield f"steps/{number:04}-{step.action}", lines.encode()


def deb_file(artifact: Artifact) -> str:
    """Its name in the build context: the integrity, so that a name says what the bytes are."""
    return f"sha256-{artifact.integrity.hex}.deb"


def toolchain_plan(lock: Lock, platform: Platform, accounts: Accounts) -> ToolchainPlan | None:
    """None when nothing is asked for that the base has not. UsageError for what is no Debian name."""
    if lock.toolchain is None or not (steps := lock.toolchain.tree(platform).steps):
        return None
    known = lock.by_id()
    plan = ToolchainPlan(
        tuple(PlannedStep(step.action, tuple(known[name] for name in step.packages)) for step in steps),
        accounts,
    )
    for artifact in plan.debs:
        # Held by whoever reads a lock; held here too, since these become words of a command.
        if not DEB_NAME.fullmatch(artifact.name) or not DEB_VERSION.fullmatch(artifact.version):
            raise UsageError(f"{artifact.id[:100]!r} is no Debian package", where="builder.lock")
    return plan


def _dpkg_name(artifact: Artifact) -> str:
    """As dpkg takes it: a package for every architecture is qualified by none."""
    package, architecture = split_name(artifact.name)
    return package if architecture == "all" else artifact.name
