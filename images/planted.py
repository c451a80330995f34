"""A credential in a file that the operator writes: told by place and rule of the scanner, never quoted."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from images.credential_names import RULE_AUTHORIZATION, RULE_NAME, RULE_USERINFO, judge_named, judge_text
from images.credential_places import HARMLESS_VALUES
from images.credentials import SHAPES
from images.redaction import redact

RULE_DISGUISED: Final = "disguised"
HINT: Final = (
    "take it out, and end its validity if it was ever shared; settings.toml names files for secrets, "
    "such as npmrc, netrc and proxy_file"
)

_VARIABLE: Final = re.compile(r"[A-Z_][A-Z0-9_]*")  # no package, Skill or server is called so
# A login before an image's name, where nobody's syntax has one: me:word@host/name, me:word@name@sha256:…
_REFERENCE_LOGIN: Final = re.compile(r"[^\s/@:]{1,256}:([^\s/@]{1,1024})@[^\s@]*[/@]")
_SCHEMES: Final = ("bearer ", "basic ", "authorization:")

Path = tuple[str | int, ...]


class CredentialRefused(ValueError):
    """In a validator: the value is a credential under ``rule``. The message never holds it."""

    def __init__(self, rule: str, what: str) -> None:
        super().__init__(what)
        self.rule = rule


@dataclass(frozen=True, slots=True)
class Planted:
    """Where the credential stands, by which rule, and what is said of it."""

    path: Path
    rule: str
    what: str = ""

    def __str__(self) -> str:
        return self.what or f"holds what rule {self.rule} says is a credential"


def rule_of(text: str) -> str | None:
    """The rule by which a text holds a credential whatever it is called; None: it holds none."""
    if redact(text) == text:
        return None
    raw, lower = text.encode("utf-8", "surrogatepass"), text.lower()
    shape = next((shape.id for shape in SHAPES if re.search(shape.pattern, raw)), None)
    if shape is not None:
        return shape
    if "://" in text:
        return RULE_USERINFO
    return RULE_AUTHORIZATION if any(word in lower for word in _SCHEMES) else RULE_DISGUISED


def rule_of_named(name: str, value: str) -> str | None:
    """The rule by which a value under a name is a credential, as the scanner judges a configuration."""
    if (rule := _shape(value)) is not None:
        return rule
    found = judge_named(name, value) or next(judge_text(value), None)
    return found.rule if found else None


def find_by_shape(document: Mapping[str, object]) -> Planted | None:
    """The first key or text of a document that holds a credential by its letters."""
    # One look at all of it: nearly every file holds none.
    words = "\n".join(word for node in _nodes(document) for word in node.words)
    if redact(words) == words:
        return None
    for node in _nodes(document):
        if isinstance(node.key, str) and (rule := _shape(node.key)) is not None:
            return Planted(node.path[:-1], rule, f"a key holds what rule {rule} says is a credential")
        if isinstance(node.value, str) and (rule := _shape(node.value)) is not None:
            return Planted(node.path, rule)
    return None


def judge_refused(path: Sequence[str | int], value: object, *, unknown: bool) -> Planted | None:
    """A value that its place does not take anyway: does it also look like a credential?

    ``unknown``: nobody knows its key, so what the key is called counts. Elsewhere keys are names of packages
    and Skills, which may speak of tokens, and only what is spelled like a variable counts.
    """
    for node in _nodes(value, tuple(path)):
        if not isinstance(node.value, str):
            continue
        name = next((part for part in reversed(node.path) if isinstance(part, str)), "")
        if (unknown or _VARIABLE.fullmatch(name)) and judge_named(name, node.value):
            return Planted(node.path, RULE_NAME)
        found = next(judge_text(node.value), None)
        if found is not None:
            return Planted(node.path, found.rule)
        login = _REFERENCE_LOGIN.match(node.value)
        if login and not HARMLESS_VALUES.fullmatch(login[1]):
            return Planted(node.path, RULE_USERINFO)
    return None


def _shape(text: str) -> str | None:
    """Logins in addresses are judged where an address is refused: there it is known what the file is for."""
    rule = rule_of(text)
    return None if rule in (RULE_USERINFO, RULE_AUTHORIZATION) else rule


@dataclass(frozen=True, slots=True)
class _Node:
    """One value of a document. The way to it is kept by the node above: a file can nest very deep."""

    key: str | int | None
    value: object
    above: _Node | None
    start: Path

    @property
    def path(self) -> Path:
        keys: list[str | int] = []
        node: _Node | None = self
        while node is not None and node.key is not None:
            keys.append(node.key)
            node = node.above
        return (*self.start, *reversed(keys))

    @property
    def words(self) -> Iterator[str]:
        yield from (part for part in (self.key, self.value) if isinstance(part, str))


def _nodes(document: object, start: Path = ()) -> Iterator[_Node]:
    """Every value, in the order of the document."""
    pending = [_Node(None, document, None, start)]
    while pending:
        node = pending.pop()
        yield node
        below: list[tuple[str | int, object]] = []
        if isinstance(node.value, dict):
            below = list(node.value.items())
        elif isinstance(node.value, list):
            below = list(enumerate(node.value))
        pending.extend(_Node(key, value, node, start) for key, value in reversed(below))
