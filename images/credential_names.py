"""Judge values by the name they are given under, and the passwords that URLs and headers carry."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from images.credential_places import (
    HARMLESS_NAMES,
    HARMLESS_VALUES,
    LEAST_LITERAL,
    LEAST_NAMED_LITERAL,
    SECRET_NAMES,
    SECRET_WORDS,
)

RULE_NAME: Final = "name"
RULE_USERINFO: Final = "url-userinfo"
RULE_AUTHORIZATION: Final = "authorization-header"

_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-]{0,99}")
_ASSIGNMENT: Final = re.compile(
    r"""(?<![A-Za-z0-9_.$\-])([A-Za-z_][A-Za-z0-9_.\-]{1,99})=("(?:[^"\\]|\\.){0,8192}"|'[^']{0,8192}'|[^\s"'&;|]{0,8192})"""
)
_USERINFO: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]{1,30}:\\?/\\?/([^\s/@\"'<>\\]{1,1024})@")
_AUTHORIZATION: Final = re.compile(
    r"(?i:authorization|x-api-key|private-token|x-auth-token)[\"']?\s*[:=]\s*[\"']?"
    r"((?:(?i:bearer|basic|token)\s+)?[^\s\"'\\,]{8,4096})"
)
_SCHEME: Final = re.compile(r"(?i:bearer|basic|token)\s+")
_FILLER_USERS: Final = re.compile(
    r"(?i)(?:user(?:name)?|login|me|x|git|account|name):(?:pass(?:word|wd)?|pw|secret|token|x+|\*+)"
)


@dataclass(frozen=True, slots=True)
class NamedValue:
    """A credential known by its surroundings: the rule, the name it stands under, the value."""

    rule: str
    name: str
    value: str = field(repr=False)


def judge_named(name: str, value: str) -> NamedValue | None:
    """A literal under a name that says credential. References, paths, switches and fillers are none."""
    plain = name.rpartition(":")[2]  # build-arg:NAME, //registry/:_authToken
    if not _VARIABLE.fullmatch(plain):
        return None  # package names and paths are keys of lock files, and speak of tokens of another kind
    least = least_literal(plain)
    if least is None:
        return None
    text = value.strip()
    if len(text) < least or HARMLESS_VALUES.fullmatch(text):
        return None
    return NamedValue(RULE_NAME, name, text)


def least_literal(name: str) -> int | None:
    """From which length on a literal under this name is a credential; None: the name says nothing of one."""
    upper = _CAMEL.sub("_", name).upper().replace("-", "_")
    if upper in SECRET_NAMES:
        return LEAST_NAMED_LITERAL
    return None if HARMLESS_NAMES.fullmatch(upper) or not SECRET_WORDS.search(upper) else LEAST_LITERAL


def judge_text(text: str, name: str = "") -> Iterator[NamedValue]:
    """URLs with a password, Authorization headers and NAME=value pairs anywhere in a text."""
    yield from judge_urls(text, name)
    for match in _AUTHORIZATION.finditer(text):
        value = _SCHEME.sub("", match.group(1))
        if len(value) >= LEAST_LITERAL and not HARMLESS_VALUES.fullmatch(value):
            yield NamedValue(RULE_AUTHORIZATION, name, value)
    for match in _ASSIGNMENT.finditer(text):
        found = judge_named(match.group(1), match.group(2).strip("\"'"))
        if found:
            yield found


def judge_urls(text: str, name: str = "") -> Iterator[NamedValue]:
    """user:password or a token before the @ of an URL."""
    for match in _USERINFO.finditer(text):
        userinfo = match.group(1)
        user, colon, password = userinfo.partition(":")
        secret = password if colon else user
        if not colon and (len(user) < 16 or not re.search(r"\d", user)):
            continue  # ssh://git@host and the like: a user, no password
        if HARMLESS_VALUES.fullmatch(secret) or _FILLER_USERS.fullmatch(userinfo) or "${" in secret:
            continue
        yield NamedValue(RULE_USERINFO, name, secret)
