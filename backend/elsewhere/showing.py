"""Show an image's plan for use elsewhere: what every form says first, and which forms there are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from backend.elsewhere.compose import compose_file
from backend.elsewhere.devcontainer import devcontainer_file
from backend.elsewhere.docker import docker_commands
from backend.elsewhere.kubernetes import kubernetes_manifests

if TYPE_CHECKING:
    from backend.plan import ElsewherePlan


class Form(StrEnum):
    """For whom: commands of the docker client, a Compose file, a devcontainer.json, Kubernetes manifests."""

    DOCKER = "docker"
    COMPOSE = "compose"
    DEVCONTAINER = "devcontainer"
    KUBERNETES = "kubernetes"


_FORMS: Final[Mapping[Form, tuple[str, Callable[[ElsewherePlan], str]]]] = {
    Form.DOCKER: ("#", docker_commands),
    Form.COMPOSE: ("#", compose_file),
    Form.DEVCONTAINER: ("//", devcontainer_file),
    Form.KUBERNETES: ("#", kubernetes_manifests),
}
_NOT_ADMITTED: Final = "not admitted by builder"


def show_elsewhere(plan: ElsewherePlan, form: Form) -> str:
    """The text, with a line end at its end. Its first line says that this is no launch of builder."""
    verified = plan.verified
    says = (
        f"{_NOT_ADMITTED}: what is started from this, nobody proves again, reads back, watches or records",
        f"image {verified.image_name} {verified.image.digest}",
        f"verified under policy {verified.policy.digest}, lock {verified.lock_digest}",
        "only builder run has: credentials, /source and commits that come home, a network by list",
    )
    comment, made = _FORMS[form]
    return "".join(f"{comment} {line}\n" for line in says) + made(plan)
