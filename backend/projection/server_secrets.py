"""Read the value of one variable of one MCP server strictly; what is wrong is told, never quoted."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from backend.projection.hosting import refuse_hosting, refuse_hosting_login
from images.additions import VARIABLE_NAME
from images.credentials import Secret
from images.errors import UsageError

MAX_SERVER_SECRET: Final = 8192  # bytes
# No blank, quote, "$" or "{": agents put variables and files in the place of ${NAME} and {env:NAME}.
_VALUE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~+/=:@%,-]{7,8191}")
_VARIABLE: Final = re.compile(VARIABLE_NAME, re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSecret:
    """Permit: one value that was read, bounded and refused nothing. Constructed only here."""

    server: str
    variable: str
    content: Secret = field(repr=False)

    @property
    def name(self) -> str:
        """As in settings and messages."""
        return f"{self.server}.{self.variable}"


def read_server_secret(server: str, variable: str, raw: bytes) -> ServerSecret:
    """From the operator's file. UsageError says what is wrong; LaunchRefused: it is for Git hosting."""
    where = f"secret of mcp.{server}"
    if not _VARIABLE.fullmatch(variable):
        raise UsageError("not the name of a variable", where=where)
    where = f"secret {server}.{variable}"
    refuse_hosting_login(variable, where)
    refuse_hosting_login(server, where)
    try:
        value = raw.decode("ascii").removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise UsageError("not a text of ASCII letters", where=where) from None
    refuse_hosting(value, where)
    if not _VALUE.fullmatch(value):
        raise UsageError(
            f"not a value: one line of 8 to {MAX_SERVER_SECRET} letters, digits and ._~+/=:@%,-",
            where=where,
            hint="put the value alone into the file",
        )
    return ServerSecret(server=server, variable=variable, content=Secret.of_text(value))
