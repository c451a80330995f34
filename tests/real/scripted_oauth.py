"""A provider's accounts: a token endpoint that gives each refresh token once, and knows who comes twice."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from typing import Final

# Where the installed programs look for them: the addresses are in their binaries, and no setting moves them.
TOKEN_HOST: Final = "platform.claude.com"
MODEL_HOST: Final = "api.anthropic.com"
CODE: Final = "dummycodeofthescriptedprovider"
_WORD: Final = "Dummy" * 9


@dataclass
class Accounts:
    """One account. ``lifetime``: seconds that an access token is good for.

    A refresh token that comes a second time ends the whole login, as providers do.
    """

    lifetime: int = 3600
    number: int = 0
    ended: bool = False
    refreshed: int = 0
    signed_in: int = 0
    refused: list[str] = field(default_factory=list)
    issued: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def access(self) -> str:
        """The access token that is good now."""
        return "-".join(("sk", "ant", "oat01", f"{_WORD}Access{self.number}"))

    @property
    def refresh(self) -> str:
        """The refresh token that is good now."""
        return "-".join(("sk", "ant", "ort01", f"{_WORD}Refresh{self.number}"))

    def begin(self) -> None:
        """A first pair, as a login leaves it."""
        with self.lock:
            self._issue()

    def answer(self, body: bytes) -> tuple[int, bytes]:
        """To one request for tokens: status and document."""
        asked = json.loads(body)
        with self.lock:
            kind = asked.get("grant_type")
            if kind == "authorization_code" and asked.get("code") == CODE:
                self.signed_in += 1
                self.ended = False
            elif kind == "refresh_token" and asked.get("refresh_token") == self.refresh and not self.ended:
                self.refreshed += 1
            else:
                self.ended = self.ended or asked.get("refresh_token") in self.issued
                self.refused.append(str(kind))
                return 400, json.dumps({"error": "invalid_grant", "error_description": "spent"}).encode()
            return 200, json.dumps(self._issue()).encode()

    def knows(self, authorization: str) -> bool:
        """Whether a request to the models bears the access token that is good now."""
        return not self.ended and authorization == f"Bearer {self.access}"

    def _issue(self) -> dict[str, object]:
        self.number += 1
        self.issued += [self.access, self.refresh]
        return {
            "token_type": "Bearer",
            "access_token": self.access,
            "refresh_token": self.refresh,
            "expires_in": self.lifetime,
            "scope": "user:inference user:profile user:sessions:claude_code",
            "account": {"uuid": "00000000-0000-4000-8000-000000000001", "email_address": "a@example.test"},
            "organization": {"uuid": "00000000-0000-4000-8000-000000000002", "name": "dummy"},
        }
