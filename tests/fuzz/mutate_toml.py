"""Change TOML by its lines: keys, tables and values that Python's reader takes and a careless model would."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from tests.fuzz.mutate_bytes import change_bytes
from tests.fuzz.target import Dice

_VALUES: Final = (
    "true",
    "false",
    "0",
    "-0",
    "1",
    "-1",
    "2",
    "0x10",
    "0o7",
    "1_000",
    "9007199254740993",
    "1" + "0" * 30,
    "9" * 5000,
    "1.0",
    "-0.0",
    "1e400",
    "inf",
    "-inf",
    "nan",
    '""',
    "''",
    '"\\u0000"',
    '"\\uD800"',
    '"\\U0010FFFF"',
    '"\\U00110000"',
    '"x\\n"',
    '"latest"',
    '"^1.0.0"',
    '"1.2.3\\n"',
    '"../x"',
    '"/"',
    '"*"',
    '"."',
    '"sha256:' + "0" * 64 + '"',
    '"' + "x" * 5000 + '"',
    '"""\nx\n"""',
    "[]",
    "[[]]",
    "[1, 'a']",
    "[" + "0," * 3000 + "]",
    "[" * 1500 + "]" * 1500,
    "{}",
    "{a=1}",
    "{a={a={a=1}}}",
    "{a=1,a=2}",
    "0001-01-01T00:00:00+14:00",
    "9999-12-31T23:59:59-12:00",
    "2027-02-28T00:00:00Z",
    "2027-02-28T00:00:00",
    "2027-02-30T00:00:00Z",
    "2027-02-28",
    "07:32:00",
    "2027-02-28T00:00:00.999999999999+23:59",
    '"1s"',
    '"9999999d"',
    '"0d"',
    '"1 d"',
)
_LINES: Final = (
    "[a]",
    "[[a]]",
    "[a.b.c]",
    "[[trust]]",
    "[expect]",
    "[run]",
    "a = 1",
    "a.b.c = 1",
    '"" = 1',
    '"a\\u0000b" = 1',
    "a." * 70 + "a = 1",
    "[" + "a." * 500 + "a]",
    "# comment \u202e",
    "\ufeff",
    "=",
    "x = ",
    '"""',
    "'''",
)
_KEY: Final = re.compile(r"^(\s*)([A-Za-z0-9_.\"@/-]+)(\s*=\s*)(.*)$")


def _change_line(dice: Dice, line: str) -> str:
    found = _KEY.match(line)
    if not found:
        return dice.choice(_LINES)
    margin, key, equals, value = found.groups()
    way = dice.randrange(6)
    if way <= 1:
        return f"{margin}{key}{equals}{dice.choice(_VALUES)}"
    if way == 2:
        return f"{margin}{_edit(dice, key)}{equals}{value}"
    if way == 3:
        return f"{margin}{key}{equals}{_edit(dice, value)}"
    if way == 4:
        return f"{margin}{key}{equals}[{value.partition('#')[0]}]"
    return f"{margin}{key}.{key}{equals}{value}"


def _edit(dice: Dice, text: str) -> str:
    at = dice.randrange(len(text) + 1)
    letter = dice.choice(
        ("", "x", "0", "-", ".", "\\n", "\\u0000", " ", "é", "A", '"', "'", ":", "@", "/", "\u017f")
    )
    return text[:at] + letter + text[at + dice.choice((0, 1)) :]


def mutate_toml(dice: Dice, seeds: Sequence[bytes]) -> bytes:
    """One seed with a few lines changed."""
    data = dice.choice(seeds)
    if dice.random() < 0.08:
        return change_bytes(dice, data)
    lines = data.decode().split("\n")
    for _ in range(dice.choice((1, 1, 1, 2, 3))):
        at = dice.randrange(len(lines))
        way = dice.randrange(10)
        if way <= 5:
            lines[at] = _change_line(dice, lines[at])
        elif way == 6:
            lines.insert(at, lines[dice.randrange(len(lines))])
        elif way == 7:
            del lines[at]
            lines = lines or [""]
        elif way == 8:
            lines.insert(at, dice.choice(_LINES))
        else:
            other = dice.randrange(len(lines))
            lines[at], lines[other] = lines[other], lines[at]
    text = dice.choice(("\n", "\n", "\n", "\r\n")).join(lines)
    data = text.encode("utf-8", "surrogatepass")
    return change_bytes(dice, data) if dice.random() < 0.05 else data
