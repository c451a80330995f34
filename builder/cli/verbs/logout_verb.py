"""`builder logout`: forget a login."""

from __future__ import annotations

from backend.logins.leasing import forget_login
from builder.cli.documents.logins import LogoutDocument
from builder.cli.invocation import Invocation, Result
from builder.cli.session import login_store
from builder.cli.verbs.login_verb import named


def run(invocation: Invocation) -> Result[LogoutDocument]:
    """UsageError when there is none; LaunchRefused while a launch has it."""
    name = named(invocation)
    forget_login(login_store(invocation), name)
    invocation.reporter.say(
        f"forgotten here: {name}; to end it at its provider, use the provider's own page of signed-in devices"
    )
    return Result(document=LogoutDocument(agent=name.agent, name=name.name))
