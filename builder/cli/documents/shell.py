"""What `completion` prints with --json."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from builder.cli.documents import Document, Kind


class Shell(StrEnum):
    """Whose completion."""

    BASH = "bash"
    ZSH = "zsh"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionDocument(Document):
    """``script``: as without ``--json``, for ``shell`` to read."""

    KIND: ClassVar = Kind("completion", "completion")

    shell: Shell
    script: str
