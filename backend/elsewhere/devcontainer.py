"""The plan as a devcontainer.json: in the format's own words, and docker's flags for what it has none for."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from backend.elsewhere.docker import docker_notes
from backend.engines.docker_create import create_arguments

if TYPE_CHECKING:
    from backend.plan import ElsewherePlan

# The tool writes these itself, or starts with something of its own in their place.
_ITS_OWN: Final = ("--name", "--user", "--workdir", "--entrypoint", "--interactive")


def devcontainer_file(plan: ElsewherePlan) -> str:
    """JSON with comments, after the Development Container specification."""
    container = plan.container
    flags = [flag for flag in create_arguments(container) if flag.startswith("--")]
    document: dict[str, object] = {
        "name": plan.verified.image_name,
        "image": str(container.image.id),
        "workspaceMount": "",
        "workspaceFolder": plan.command.working_dir,
        "containerUser": "" if container.user is None else f"{container.user[0]}:{container.user[1]}",
        "remoteUser": str(plan.account.uid),
        "updateRemoteUserUID": False,
        "userEnvProbe": "none",
        "overrideCommand": True,
        "init": False,
        "privileged": False,
        "capAdd": [],
        "mounts": [],
        "shutdownAction": "stopContainer",
        "runArgs": [flag for flag in flags if flag.partition("=")[0] not in _ITS_OWN],
    }
    notes = (
        *docker_notes(plan)[:-1],
        "the tool keeps it alive with a command of its own: neither the image's init nor a deadline is there",
        "no folder of yours is mounted; what an editor installs inside needs a network, and there is none",
    )
    return "".join(f"// {line}\n" for line in notes) + json.dumps(document, indent=2) + "\n"
