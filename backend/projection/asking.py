"""What a launch may ask of credentials and secrets: those of use to it, and none of them in an argument."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from backend.projection.integrations import SPEAK_MCP
from backend.requests import LaunchClass
from images.credential_names import judge_text
from images.errors import LaunchReason, LaunchRefused, UsageError
from images.redaction import redact

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from backend.projection.integrations import Integrations
    from backend.projection.placing import Projection

# The candidate's own commands and a detection are no agent's work, and a login is there to get one.
_WITH_CREDENTIALS: Final = frozenset({LaunchClass.EXECUTE, LaunchClass.REVIEW, LaunchClass.FIX})
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")


def check_projection(
    projection: Projection, launch_class: LaunchClass, agent: str, installed: Collection[str]
) -> None:
    """LaunchRefused when a credential is another agent's than the one that runs, or of one that is not there,
    and when the launch is of a class that gets none.

    ``agent``: empty for a plain command, which may start any of them.
    """
    for one in projection.credentials:
        owner = one.name.route.agent.value
        if launch_class not in _WITH_CREDENTIALS:
            why = f"a launch of class {launch_class} gets no credential, and {one.name} is given"
        elif owner != (agent or owner):
            why = f"{one.name} is not for {agent}"
        elif owner not in installed:
            why = f"{one.name} is for {owner}, which is not in the image"
        else:
            continue
        raise LaunchRefused(
            LaunchReason.CREDENTIAL_ROUTE, why, where="credentials", hint="leave it out, or run its agent"
        )


def is_set_up(launch_class: LaunchClass) -> bool:
    """Whether agents of such a launch are told of what the policy turns on."""
    return launch_class in _WITH_CREDENTIALS


def needs_server_secrets(launch_class: LaunchClass, agent: str) -> bool:
    """Whether a launch needs the values of the policy's servers: one whose agent, if it names one, can start
    them."""
    return is_set_up(launch_class) and (not agent or agent in SPEAK_MCP)


def check_server_secrets(
    projection: Projection, launch_class: LaunchClass, agent: str, integrations: Integrations
) -> None:
    """LaunchRefused unless exactly the values are given that the policy names for servers of this launch."""
    given = {(one.server, one.variable) for one in projection.server_secrets}
    wanted = integrations.secret_names if needs_server_secrets(launch_class, agent) else frozenset()
    twice = len(given) != len(projection.server_secrets)
    if given == wanted and not twice:
        return
    unasked, missing = sorted(given - wanted), sorted(wanted - given)
    server, variable = (unasked or missing or sorted(given))[0]
    why = (
        "is given and the policy names none such"
        if unasked
        else "is missing"
        if missing
        else "is given twice"
    )
    raise LaunchRefused(
        LaunchReason.SERVER_SECRET,
        f"the secret {variable} of the MCP server {server} {why} for this launch",
        where="[enable.secrets] of policy.toml",
        hint=f"builder run --server-secret-fd {server}.{variable}=N",
    )


def check_arguments(argv: tuple[str, ...], projection: Projection) -> None:
    """UsageError when an argument looks like a credential, or holds one of these: every process of the host
    reads argv."""
    for number, text in enumerate(argv):
        given = projection.key_in(text)
        named = next((found.name for found in judge_text(text)), None)
        if not given and named is None and redact(text) == text:
            continue
        name = f" ({given or named})" if given or (named and _NAME.fullmatch(named)) else ""
        raise UsageError(
            f"argument {number} of the command looks like a credential{name}, and argv is no place for one",
            where="the command",
            hint="builder run --credential NAME=FILE",
        )


def check_labels(texts: Iterable[str], projection: Projection) -> None:
    """UsageError when a name of the caller's looks like a credential, or holds one of these.

    It becomes a label, which everybody reads who may ask the engine, and a part of the journal and record.
    """
    for text in texts:
        if projection.key_in(text) or redact(text) != text:
            raise UsageError(
                "a run id or scope looks like a credential, and everybody reads labels",
                where="the request",
                hint="name the run by what it is about",
            )
