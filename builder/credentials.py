"""Where the operator's credentials come from: files that only he can read, or descriptors; never typed."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from backend.projection.credentials import MAX_CREDENTIAL_BYTES, Credential, read_credential
from backend.projection.routes import CredentialName, parse_name
from backend.projection.server_secrets import ServerSecret, read_server_secret
from images.additions import ADDITION_NAME, VARIABLE_NAME
from images.errors import UsageError

if TYPE_CHECKING:
    from provenance.policy import SecretPlace

_SECRET_NAME: Final = re.compile(
    ADDITION_NAME.removesuffix("$") + r"\." + VARIABLE_NAME.removeprefix("^"), re.ASCII
)


@dataclass(frozen=True, slots=True)
class Source:
    """One credential by its name, and the file or the open descriptor that holds it."""

    name: CredentialName
    place: Path | int


def sources_of(files: Iterable[str], descriptors: Iterable[str]) -> tuple[Source, ...]:
    """From ``NAME=FILE`` and ``NAME=N`` of the command line. UsageError repeats neither FILE nor N:
    somebody may have typed the value there."""
    found = []
    for given in files:
        name, place = _split(given, "--credential NAME=FILE")
        found.append(Source(name, Path(place)))
    for given in descriptors:
        name, place = _split(given, "--credential-fd NAME=N")
        found.append(Source(name, _descriptor(place, f"--credential-fd {name}")))
    return tuple(found)


def kept_sources(
    kept: Iterable[tuple[str, Path]], agent: str, typed: Sequence[Credential]
) -> tuple[Source, ...]:
    """Those of settings.toml for the agent that runs; none when something is typed for it: that alone counts.

    ``agent``: empty for a plain command, which gets what is typed and nothing else.
    """
    named = [Source(parse_name(name), path) for name, path in kept]
    if any(one.name.route.agent == agent for one in typed):
        return ()
    return tuple(one for one in named if one.name.route.agent == agent)


def read_sources(sources: Sequence[Source], now: datetime) -> tuple[Credential, ...]:
    """Read all of them, strictly. UsageError names the credential and what is wrong, and quotes nothing."""
    names = [source.name for source in sources]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError("given twice", where=f"credential {twice}", hint="name one source for it")
    return tuple(_read(source, now) for source in sources)


def server_secret_descriptors(given: Iterable[str]) -> dict[str, int]:
    """From ``SERVER.VARIABLE=N`` of the command line; UsageError repeats nothing that is not a name."""
    found: dict[str, int] = {}
    where = "--server-secret-fd"
    for text in given:
        name, _, place = text.partition("=")
        if not _SECRET_NAME.fullmatch(name):
            raise UsageError("not SERVER.VARIABLE=N", where=where)
        if name in found:
            raise UsageError("given twice", where=where, hint="name one descriptor for it")
        found[name] = _descriptor(place, where)
    return found


def read_server_secrets(
    places: Iterable[SecretPlace], descriptors: Mapping[str, int]
) -> tuple[ServerSecret, ...]:
    """The values that the policy names, from its files and these descriptors: no more and no fewer."""
    left, found = dict(descriptors), []
    for place in places:
        name = f"{place.server}.{place.variable}"
        where, descriptor = f"secret {name}", left.pop(name, None)
        if place.path is not None and descriptor is None:
            raw = _private_file(place.path, where)
        elif place.path is None and descriptor is not None:
            raw = _all_of(descriptor, where)
        else:
            what = (
                "the policy has it given at each launch" if descriptor is None else "the policy has its file"
            )
            raise UsageError(what, where=where, hint=f"builder run --server-secret-fd {name}=N")
        found.append(read_server_secret(place.server, place.variable, raw))
    if left:
        raise UsageError(
            "not one that the policy names for a server of this launch",
            where="--server-secret-fd",
            hint="name it in [enable.secrets] of policy.toml",
        )
    return tuple(found)


def _descriptor(place: str, where: str) -> int:
    if not place.isascii() or not place.isdecimal() or len(place) > 6:
        raise UsageError("not the number of a descriptor", where=where)
    return int(place)


def _split(given: str, form: str) -> tuple[CredentialName, str]:
    name, equals, place = given.partition("=")
    found = parse_name(name)
    if not equals or not place:
        raise UsageError("names no source", where=f"credential {found}", hint=f"builder run {form}")
    return found, place


def _read(source: Source, now: datetime) -> Credential:
    where = f"credential {source.name}"
    if isinstance(source.place, int):
        return read_credential(source.name, _all_of(source.place, where), now)
    return read_credential(source.name, _private_file(source.place, where), now)


def _private_file(path: Path, where: str) -> bytes:
    # Not blocking: a pipe in its place is refused, and not waited for. Through no link.
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW
    try:
        handle = os.open(path, flags)
    except (OSError, ValueError) as broken:
        why = broken.strerror if isinstance(broken, OSError) else "not a path"
        raise UsageError(
            f"its file cannot be read: {why}",
            where=where,
            hint="name a 0600 file of your own that holds it, never the value",
        ) from None
    try:
        _need_private(os.fstat(handle), where)
        return _all_of(handle, where)
    finally:
        os.close(handle)


def _need_private(found: os.stat_result, where: str) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise UsageError("its file is not a regular file", where=where, hint="name a 0600 file of your own")
    if found.st_uid != os.geteuid():
        raise UsageError("its file belongs to another user", where=where, hint="make a 0600 copy of your own")
    if found.st_mode & 0o077:
        raise UsageError("others can read or change its file", where=where, hint="chmod 600 that file")


def _all_of(handle: int, where: str) -> bytes:
    """To the end, or one byte more than is allowed."""
    parts, left = [], MAX_CREDENTIAL_BYTES + 1
    while left > 0:
        try:
            part = os.read(handle, left)
        except (OSError, OverflowError) as broken:
            why = getattr(broken, "strerror", None) or "no such descriptor"
            raise UsageError(f"cannot be read: {why}", where=where) from None
        if not part:
            break
        parts.append(part)
        left -= len(part)
    return b"".join(parts)
