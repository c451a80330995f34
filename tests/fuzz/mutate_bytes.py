"""Change bytes without knowing what they mean: flips, cuts, copies, splices, words to stumble on."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from tests.fuzz.target import Dice

WORDS: Final = (
    b"",
    b"\0",
    b"\n",
    b"\r\n",
    b"\r",
    b"\t",
    b" ",
    b"\xff",
    b"\xef\xbb\xbf",
    b"\xc0\x80",
    b"\xed\xa0\x80",
    b"\xe2\x80\xae",
    b"\xf4\x90\x80\x80",
    b"-",
    b"--",
    b"..",
    b"../",
    b"/",
    b"\\",
    b'"',
    b"'",
    b"=",
    b":",
    b";",
    b",",
    b"{",
    b"}",
    b"[",
    b"]",
    b"%",
    b"%s",
    b"%00",
    b"$(id)",
    b"${HOME}",
    b"\x1b[31m",
    b"\x1b]0;x\x07",
    b"0",
    b"-0",
    b"-1",
    b"1e309",
    b"NaN",
    b"Infinity",
    b"9" * 20,
    b"9" * 5000,
    "\u0661".encode(),  # a digit that is not ASCII
    "\u017f".encode(),  # lowers or raises to an ASCII letter
    b"A" * 300,
)
_NUMBER: Final = re.compile(rb"[0-9]+")


def flip(dice: Dice, data: bytes) -> bytes:
    """Some bits."""
    raw = bytearray(data or b"\0")
    for _ in range(dice.choice((1, 1, 1, 2, 8))):
        raw[dice.randrange(len(raw))] ^= 1 << dice.randrange(8)
    return bytes(raw)


def set_byte(dice: Dice, data: bytes) -> bytes:
    """One byte anew."""
    raw = bytearray(data or b"\0")
    raw[dice.randrange(len(raw))] = dice.choice((0, 0xFF, 0x7F, 0x80, 0x0A, dice.randrange(256)))
    return bytes(raw)


def cut(dice: Dice, data: bytes) -> bytes:
    """Its end, or a piece of it."""
    at = dice.randrange(len(data) + 1)
    if dice.random() < 0.5:
        return data[:at]
    return data[:at] + data[at + dice.choice((1, 1, 2, 4, 16, 512, len(data))) :]


def insert(dice: Dice, data: bytes) -> bytes:
    """A word, often where the text has a border of its own."""
    borders = [found.start() for found in re.finditer(rb"[^A-Za-z0-9]", data[:20_000])]
    at = dice.choice(borders) if borders and dice.random() < 0.6 else dice.randrange(len(data) + 1)
    if dice.random() < 0.15:
        at = dice.choice((0, len(data)))
    return data[:at] + dice.choice(WORDS) + data[at:]


def repeat(dice: Dice, data: bytes) -> bytes:
    """A piece twice, or very often."""
    if not data:
        return b"\0"
    begin = dice.randrange(len(data))
    piece = data[begin : begin + dice.choice((1, 2, 8, 64, 512, 4096))]
    times = dice.choice((1, 1, 1, 2, 100, 2000))
    return data[:begin] + piece * min(times, 200_000 // len(piece) + 1) + data[begin:]


def renumber(dice: Dice, data: bytes) -> bytes:
    """A number in the text: one more, one less, none, or far too large."""
    found = list(_NUMBER.finditer(data[:100_000]))
    if not found:
        return insert(dice, data)
    one = dice.choice(found)
    number = int(one[0][:18])
    new = dice.choice(
        (number + 1, number - 1, 0, -1, 1, number * 10, 2**31, 2**32, 2**53 + 1, 2**63, 2**64, 10**30)
    )
    return data[: one.start()] + b"%d" % new + data[one.end() :]


def swap(dice: Dice, data: bytes) -> bytes:
    """Two lines, or two pieces."""
    mark = b"\n" if data.count(b"\n") > 2 else dice.choice((b",", b"\0", b" "))
    parts = data.split(mark)
    one, other = dice.randrange(len(parts)), dice.randrange(len(parts))
    parts[one], parts[other] = parts[other], parts[one]
    return mark.join(parts)


_WAYS: Final[tuple[Callable[[Dice, bytes], bytes], ...]] = (
    flip,
    set_byte,
    cut,
    insert,
    insert,
    repeat,
    renumber,
    swap,
)


def change_bytes(dice: Dice, data: bytes) -> bytes:
    """A few changes, mostly one."""
    for _ in range(dice.choice((1, 1, 1, 2, 3))):
        data = dice.choice(_WAYS)(dice, data)
    return data


def mutate_bytes(dice: Dice, seeds: Sequence[bytes]) -> bytes:
    """One seed changed; now and then the head of one with the tail of another."""
    data = dice.choice(seeds)
    if dice.random() < 0.1:
        other = dice.choice(seeds)
        data = data[: dice.randrange(len(data) + 1)] + other[dice.randrange(len(other) + 1) :]
    return change_bytes(dice, data)
