"""Change pins in the text of builder.toml: nothing but these values; comments and layout stay."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, MutableMapping
from typing import Any, cast

from images.errors import UsageError


def set_pins(text: str, pins: Mapping[str, str], *, where: str) -> str:
    """The text with other values at these dotted paths (``agents.pi``), which must be there.

    Raises UsageError when the file is written in a way that cannot be edited without touching more.
    """
    import tomlkit  # noqa: PLC0415  (slow, and only edits and errors need it)
    from tomlkit.exceptions import TOMLKitError  # noqa: PLC0415

    expected = tomllib.loads(text)
    try:
        document = tomlkit.parse(text)
        for path, value in pins.items():
            *tables, key = path.split(".")
            _table(document, tables)[key] = value
            _table(expected, tables)[key] = value
        edited = document.as_string()
    except (TOMLKitError, KeyError, TypeError):
        raise _by_hand(pins, where) from None
    # Two parsers must agree: what tomlkit wrote is what tomllib, the reader of every command, reads.
    try:
        unchanged = tomllib.loads(edited) == expected
    except tomllib.TOMLDecodeError:
        unchanged = False
    if not unchanged or edited.count("\n") != text.count("\n"):
        raise _by_hand(pins, where)
    return edited


def _table(document: MutableMapping[str, Any], path: list[str]) -> MutableMapping[str, Any]:
    found = document
    for key in path:
        found = cast("MutableMapping[str, Any]", found[key])
    return found


def _by_hand(pins: Mapping[str, str], where: str) -> UsageError:
    listed = ", ".join(f'{path} = "{value}"' for path, value in pins.items())
    return UsageError("cannot be edited without changing more", where=where, hint=f"write {listed} yourself")
