"""Change JSON by its structure: keys twice, other types, odd numbers, depth, ambiguous texts."""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from tests.fuzz.mutate_bytes import change_bytes
from tests.fuzz.target import Dice, Mutate


class Pairs(list[list[Any]]):
    """An object as its pairs, so that a key can be there twice."""


class Literal(str):
    """Written as it is."""

    __slots__ = ()


_DEEP: Final = 70
_LOOKED_AT: Final = 20_000  # places: a document can grow with each change
_ODD: Final = (
    *map(
        Literal,
        (
            "null",
            "true",
            "false",
            "0",
            "-0",
            "1",
            "-1",
            "1.0",
            "1.5",
            "1e2",
            "1E400",
            "-1e999",
            "NaN",
            "Infinity",
            "-Infinity",
            "01",
            "+1",
            "0x10",
            "9007199254740993",
            "18446744073709551616",
            "1" + "0" * 400,
            "9" * 5000,
            '""',
            '"\\ud800"',
            '"\\udc00\\ud800"',
            '"\\ud83d\\ude00"',
            '"\\u0000"',
            '"\\u00e9"',
            '"a\\u0301"',
            "'x'",
            "[]",
            "{}",
            "[[]]",
            "[{}]",
            "[null]",
            '{"a":1,"a":2}',
            '{"__proto__":{}}',
            "[" * _DEEP + "]" * _DEEP,
            "[" * 3000 + "]" * 3000,
            '{"a":' * _DEEP + "1" + "}" * _DEEP,
            '"' + "x" * 3000 + '"',
            '"' + "x" * 100_000 + '"',
            "[" + "0," * 5000 + "0]",
            "/*x*/1",
        ),
    ),
)
_TAILS: Final = (
    "\n",
    " ",
    "\0",
    "/",
    "/..",
    "\u202e",
    "\u017f",
    "\u00df",
    "=",
    "x",
    "%",
    '"',
    "\\",
    "\x1b[m",
    "é",
    "\u0661",
)
_WRAP: Final[tuple[Callable[[Any], Any], ...]] = (
    lambda value: [value],
    lambda value: [value, value],
    lambda value: Pairs([["a", value]]),
    lambda value: Literal(json.dumps(_text(value))),
    lambda _: [],
)


def _text(value: Any) -> str:
    return value if isinstance(value, str) and not isinstance(value, Literal) else write(value)


def read(data: bytes) -> Any:
    """A seed as a tree of pairs."""
    return json.loads(data, object_pairs_hook=lambda pairs: Pairs([list(pair) for pair in pairs]))


def write(value: Any, indent: int | None = None, depth: int = 0) -> str:
    """The tree as text; with ``indent`` as a lock is written."""
    if isinstance(value, Literal):
        return str(value)
    if not isinstance(value, list):
        return json.dumps(value, ensure_ascii=False)
    opening, closing = ("{", "}") if isinstance(value, Pairs) else ("[", "]")
    if not value:
        return opening + closing
    colon = ":" if indent is None else ": "
    parts = [
        f"{write(item[0])}{colon}{write(item[1], indent, depth + 1)}"
        if isinstance(value, Pairs)
        else write(item, indent, depth + 1)
        for item in value
    ]
    if indent is None:
        return opening + ",".join(parts) + closing
    margin = "\n" + " " * (indent * (depth + 1))
    return opening + margin + f",{margin}".join(parts) + "\n" + " " * (indent * depth) + closing


Slot = tuple[list[Any], int]  # a list, and where in it a value stands


def slots(value: Any) -> Iterator[Slot]:
    """Every place of a value in the tree."""
    pending = [value]
    while pending:
        here = pending.pop()
        if isinstance(here, Pairs):
            for pair in here:
                yield pair, 1
                pending.append(pair[1])
        elif isinstance(here, list):
            for number, item in enumerate(here):
                yield here, number
                pending.append(item)


def change_tree(dice: Dice, tree: Any) -> Any:
    """One change of the tree, in place; what comes back is the top."""
    top = [tree]
    places = [(top, 0), *itertools.islice(slots(tree), _LOOKED_AT)]
    holder, at = dice.choice(places)
    value = holder[at]
    kind = dice.randrange(8)
    if kind == 0:
        holder[at] = dice.choice(_ODD)
    elif kind == 1:
        other, where = dice.choice(places)
        holder[at] = copy.deepcopy(other[where])
    elif kind == 2:
        holder[at] = dice.choice(_WRAP)(value)
    elif kind in (3, 4) and isinstance(value, list) and value:
        _change_list(dice, value)
    else:
        holder[at] = _change_value(dice, value)
    return top[0]


def _change_list(dice: Dice, value: list[Any]) -> None:
    number = dice.randrange(len(value))
    way = dice.randrange(6)
    pairs = isinstance(value, Pairs)
    if way == 0:
        del value[number]
    elif way == 1:  # the same once more: for an object, a key twice
        value.append(list(value[number]) if pairs else value[number])
    elif way == 2 and pairs:  # a key twice, with another value
        value.insert(dice.choice((0, len(value))), [value[number][0], dice.choice(_ODD)])
    elif way == 3 and pairs:
        value[number][0] = _change_text(dice, value[number][0])
    elif way == 4 and pairs:
        value.append(
            [dice.choice(("x", "", "schema", "\u0000", "é", "__class__", "a" * 300)), dice.choice(_ODD)]
        )
    else:
        other = dice.randrange(len(value))
        value[number], value[other] = value[other], value[number]


def _change_value(dice: Dice, value: Any) -> Any:
    if isinstance(value, Literal | bool | list) or value is None:
        return dice.choice(_ODD)
    if isinstance(value, str):
        return _change_text(dice, value)
    return Literal(
        str(dice.choice((value + 1, value - 1, -value, value * 10, 0, 2**31, 2**53, 2**53 + 2, float(value))))
    )


def _change_text(dice: Dice, text: str) -> str:  # noqa: PLR0911  (one for each way)
    """Mostly little: what was almost the text that is wanted finds the reader that is almost strict."""
    way = dice.randrange(9)
    at = dice.randrange(len(text) + 1)
    if way == 0:
        return text + dice.choice(_TAILS)
    if way == 1:
        return dice.choice(_TAILS) + text
    if way == 2:
        return text[:at] + text[at + 1 :]
    if way == 3:
        return text[:at] + dice.choice(_TAILS) + text[at:]
    if way == 4:
        return text.upper() if dice.random() < 0.5 else text.swapcase()
    if way == 5:
        return (
            text[:at] + chr(dice.choice((0, 9, 10, 32, 127, 160, 0x2028, 0xFEFF, 0x1F600))) + text[at + 1 :]
        )
    if way == 6:
        return ""
    if way == 7:
        return text * dice.choice((2, 10, 100))
    return text[:at] + dice.choice("0123456789abcdefABCDEFxyz-._:/@+=") + text[at + 1 :]


def json_mutator(*, indent: int | None = None, newline: bool = False, sort: bool = False) -> Mutate:
    """A mutator for documents that are written in this form."""

    def mutate(dice: Dice, seeds: Sequence[bytes]) -> bytes:
        data = dice.choice(seeds)
        if dice.random() < 0.1:
            return change_bytes(dice, data)
        tree = read(data)
        for _ in range(dice.choice((1, 1, 1, 2, 4))):
            tree = change_tree(dice, tree)
        if sort:
            _sort(tree)
        data = (write(tree, indent) + ("\n" if newline else "")).encode("utf-8", "surrogatepass")
        return change_bytes(dice, data) if dice.random() < 0.1 else data

    return mutate


def _sort(tree: Any) -> None:
    """Keys in order again, so that a changed document is not refused for its form alone."""
    for value in [tree, *(holder[at] for holder, at in slots(tree))]:
        if isinstance(value, Pairs):
            value.sort(key=lambda pair: str(pair[0]))


mutate_json: Final = json_mutator()
