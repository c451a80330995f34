"""The values of settings.toml that say whom and what to trust: key ids, ages, exact releases."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Final

from pydantic import AfterValidator

from images.authenticity import KEY_ID
from images.config import parse_duration
from images.lock_reader import NPM_NAME

_RELEASE: Final = re.compile(rf"{NPM_NAME.pattern}@[0-9][0-9A-Za-z.+!_-]{{0,99}}", re.ASCII)


def _key_id(text: str) -> str:
    if not KEY_ID.fullmatch(text):
        raise ValueError("expected a key id: SHA256: and 43 characters of base64")
    return text


def _age(text: str) -> str:
    parse_duration(text)
    return text


def _release(text: str) -> str:
    """One exact version of one package: a name alone would except what is published tomorrow."""
    if not _RELEASE.fullmatch(text):
        raise ValueError("expected name@version, one exact version")
    return text


KeyId = Annotated[str, AfterValidator(_key_id)]
AgeText = Annotated[str, AfterValidator(_age)]
ReleaseText = Annotated[str, AfterValidator(_release)]


def span(text: str) -> timedelta:
    """The length of time that an :data:`AgeText` says."""
    return timedelta(seconds=parse_duration(text))
