"""Which path rules speak about a member: one look-up per component, regular expressions after it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from images.credential_places import HARMLESS_PATHS, PATH_RULES, PathRule

_WILD: Final = frozenset("*?[")


class PathTable:
    """The path rules as one structure."""

    def __init__(self, rules: Iterable[PathRule] = PATH_RULES) -> None:
        self._by_component: dict[str, list[tuple[re.Pattern[str], PathRule]]] = {}
        wild: list[tuple[str, re.Pattern[str], PathRule]] = []
        for rule in rules:
            for glob in rule.globs:
                pattern = re.compile(glob_to_regex(glob), re.DOTALL)
                trigger = _trigger(glob)
                if trigger:
                    self._by_component.setdefault(trigger, []).append((pattern, rule))
                else:
                    wild.append((_name_regex(glob.rpartition("/")[2]), pattern, rule))
        self._components = frozenset(self._by_component)
        self._wild = [(pattern, rule) for _, pattern, rule in wild]
        self._wild_name = re.compile("|".join(name for name, _, _ in wild) or r"(?!)", re.DOTALL)

    def rules_for(self, path: str) -> tuple[PathRule, ...]:
        """The rules for this path (no leading slash), in table order of their triggers; mostly none."""
        parts = path.split("/")
        candidates: list[tuple[re.Pattern[str], PathRule]] = []
        if not self._components.isdisjoint(parts):
            for part in dict.fromkeys(parts):
                candidates.extend(self._by_component.get(part, ()))
        if self._wild_name.fullmatch(parts[-1]):
            candidates.extend(self._wild)
        if not candidates or HARMLESS_PATHS.search(path):
            return ()
        found = dict.fromkeys(rule for pattern, rule in candidates if pattern.fullmatch(path))
        return tuple(found)


def glob_to_regex(glob: str) -> str:
    """``**/`` is any directory or none, ``/**`` at the end anything below, ``*`` stays in a name."""
    start = "(?:.*/)?" if glob.startswith("**/") else ""
    body = glob.removeprefix("**/")
    end = "/.+" if body.endswith("/**") else ""
    return start + _name_regex(body.removesuffix("/**")) + end


def _name_regex(text: str) -> str:
    return "".join("[^/]*" if letter == "*" else re.escape(letter) for letter in text)


def _trigger(glob: str) -> str:
    """The literal component that says most: the last one that has no wildcard."""
    literal = [part for part in glob.split("/") if part and _WILD.isdisjoint(part)]
    return literal[-1] if literal else ""
