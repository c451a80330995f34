"""Judge the content of a file that a path rule names: a credential, or inert."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from images.credential_names import judge_text, judge_urls
from images.credential_places import HARMLESS_VALUES, LEAST_NAMED_LITERAL, Look, PathRule
from provenance.scan.collect import Collector
from provenance.scan.documents import judge_document, literals, parse_loosely
from provenance.scan.report import Place, PlaceKind

MAX_LOOK_INSIDE: Final = 4 << 20

_NPMRC: Final = re.compile(r"(?m)^[^#;\n=]*(?:_authToken|_auth|_password)\s*=\s*[\"']?([^\s\"']+)")
_NETRC: Final = re.compile(r"(?:^|\s)password\s+(\S+)")
_GIT_SECRET: Final = re.compile(r"(?im)^\s*(?:extraheader|password|oauthtoken|token)\s*=\s*(.+?)\s*$")
_HEADER_VALUE: Final = re.compile(r"(?i)^[\"']?authorization:\s*(?:basic|bearer|token)?\s*")
_KEY_STORES: Final = (
    b"\xfe\xed\xfe\xed",
    b"\xce\xce\xce\xce",
    b"\x03\xd9\xa2\x9a",
    b"\x30\x82",
    b"\x30\x83",
    b"\x30\x80",
)


def look_inside(rule: PathRule, content: bytes) -> Iterator[bytes]:
    """The values that make this file a finding; none when it is inert."""
    if not content.strip(b"\0 \t\r\n"):
        return
    for value in _LOOKS[rule.look](rule, content):
        yield value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value


def _present(_rule: PathRule, content: bytes) -> Iterator[str | bytes]:
    yield content


def _json_tokens(rule: PathRule, content: bytes) -> Iterator[str | bytes]:
    keys = frozenset(rule.keys)
    value = parse_loosely(content, rule.id)
    if value is not None:
        yield from _substantial(text for _, text in literals(value, keys))
        return
    names = "|".join(map(re.escape, rule.keys))
    pattern = re.compile(rf"[\"'](?:{names})[\"']\s*:\s*[\"']([^\"']+)")
    yield from _substantial(match.group(1) for match in pattern.finditer(_text(content)))


def _json_names(rule: PathRule, content: bytes) -> Iterator[str | bytes]:
    for _, found in judge_document(content, rule.id):
        yield found.value


def _text_names(_rule: PathRule, content: bytes) -> Iterator[str | bytes]:
    for found in judge_text(_text(content)):
        yield found.value


def _userinfo(_rule: PathRule, content: bytes) -> Iterator[str | bytes]:
    for found in judge_urls(_text(content)):
        yield found.value


def _npmrc(rule: PathRule, content: bytes) -> Iterator[str | bytes]:
    yield from _substantial(match.group(1) for match in _NPMRC.finditer(_text(content)))
    yield from _userinfo(rule, content)


def _netrc(rule: PathRule, content: bytes) -> Iterator[str | bytes]:
    yield from _substantial(match.group(1) for match in _NETRC.finditer(_text(content)))
    yield from _userinfo(rule, content)


def _ini(rule: PathRule, content: bytes) -> Iterator[str | bytes]:
    names = "|".join(map(re.escape, rule.keys))
    assigned = re.compile(rf"(?im)^\s*(?:-\s*)?[^\s#;=:]*\b(?:{names})[\"']?\s*[:=]\s*[\"']?([^\s\"',]+)")
    element = re.compile(rf"(?i)<(?:{names})>\s*([^<\s]+)")
    text = _text(content)
    yield from _substantial(match.group(1) for match in assigned.finditer(text))
    yield from _substantial(match.group(1) for match in element.finditer(text))


def _git_config(rule: PathRule, content: bytes) -> Iterator[str | bytes]:
    yield from _userinfo(rule, content)
    text = _text(content)
    yield from _substantial(_HEADER_VALUE.sub("", match.group(1)) for match in _GIT_SECRET.finditer(text))


def _key_store(_rule: PathRule, content: bytes) -> Iterator[str | bytes]:
    if content.startswith(_KEY_STORES):
        yield content


def _substantial(values: Iterator[str]) -> Iterator[str | bytes]:
    """Not a reference, path, switch or filler."""
    for value in values:
        if len(value) >= LEAST_NAMED_LITERAL and not HARMLESS_VALUES.fullmatch(value):
            yield value


def _text(content: bytes) -> str:
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return content.decode("utf-16", "replace")
    return content.decode("utf-8", "replace")


_LOOKS: Final[dict[Look, Callable[[PathRule, bytes], Iterator[str | bytes]]]] = {
    Look.PRESENT: _present,
    Look.JSON_TOKENS: _json_tokens,
    Look.JSON_NAMES: _json_names,
    Look.TEXT_NAMES: _text_names,
    Look.USERINFO: _userinfo,
    Look.NPMRC: _npmrc,
    Look.NETRC: _netrc,
    Look.INI: _ini,
    Look.GIT_CONFIG: _git_config,
    Look.KEY_STORE: _key_store,
}


def apply_rules(
    rules: tuple[PathRule, ...], content: bytes, blob: str, path: str, collector: Collector
) -> None:
    """Look inside under every rule; content that is too large to be looked at leaves the scan incomplete."""
    for rule in rules:
        if len(content) > MAX_LOOK_INSIDE and rule.look is not Look.PRESENT:
            collector.incomplete(f"{path} in {blob}: more than {MAX_LOOK_INSIDE} bytes where {rule.id} looks")
            continue
        for value in look_inside(rule, content):
            collector.found(rule.id, Place(PlaceKind.MEMBER_PATH, blob, path), value)
