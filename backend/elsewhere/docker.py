"""The plan as commands of the docker client: the same argv as a launch gives it."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final

from backend.engines.docker_create import create_arguments

if TYPE_CHECKING:
    from backend.plan import ElsewherePlan

# The first command inside has a terminal of its own kind, whose word the client brings along.
_TERMINAL: Final = "TERM"


def docker_commands(plan: ElsewherePlan) -> str:
    """A shell script: create, start, the agent in a terminal, and how to end it."""
    container = plan.container
    name = shlex.quote(container.name)
    lines = [
        *(f"# {line}" for line in docker_notes(plan)),
        _folded("docker", *create_arguments(container)),
        f"docker container start {name}",
        _folded("docker", "container", "exec", *exec_flags(plan), container.name, *plan.command.argv),
        f"# the end: docker container rm --force --volumes {name}",
    ]
    return "".join(f"{line}\n" for line in lines)


def docker_notes(plan: ElsewherePlan) -> tuple[str, ...]:
    """What whoever starts it on Docker must know."""
    image = plan.verified.image
    return (
        f"{image.settings.digest} is this image in Docker's classic store;"
        f" the containerd store calls it {image.digest}",
        "Docker takes limits also where it cannot enforce them: read them back from the cgroup inside",
        f"it ends by itself {plan.container.arguments[2]} s after its start",
    )


def exec_flags(plan: ElsewherePlan) -> tuple[str, ...]:
    """How the agent's command gets in: as its own uid, never as that of the watch."""
    command = plan.command
    return (
        "--interactive",
        "--tty",
        f"--user={command.user[0]}:{command.user[1]}",
        f"--workdir={command.working_dir}",
        *(f"--env={name}={value}" for name, value in command.environment if name != _TERMINAL),
    )


def _folded(*argv: str) -> str:
    """One command: a line for its name, one for each option, one for what follows them."""
    lines: list[list[str]] = [[]]
    for word in argv:
        if word.startswith("--") or (lines[-1][:1] and lines[-1][0].startswith("--")):
            lines.append([])
        lines[-1].append(word)
    return " \\\n    ".join(map(shlex.join, lines))
