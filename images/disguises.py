"""Ways in which one text can be spelled: JSON escapes at any depth, percent signs, terminal codes, base64.

Pure. What is decoded here is only looked at: :class:`Decoded` says where in the original a find lies.
"""

from __future__ import annotations

import base64
import binascii
import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

# Each way begins with a literal byte, so that the engine can skip to the next. A run of backslashes is one
# escape, however often the text was escaped again (it is looked at from its first), and so is %2525.
_RUN: Final = rb"\\(?<!\\\\)\\*+"
_ESC: Final = rb"(?:u001[bB]|x1[bB]|033|e)"
_CODE: Final = (
    rb"(?:\[[0-?]{0,64}[ -/]{0,8}[@-~]|[()][A-Z0-9]|[=>78]"
    rb"|\][^\x07\x1b\r\n\\]{0,512}(?:\x07|\x1b\\|\\++(?:u0007|x07|a|" + _ESC + rb"\\++)))"
)
_ESCAPE: Final = rb"u00(?P<unicode>[0-9a-fA-F]{2})|x(?P<hex>[0-9a-fA-F]{2})|(?P<letter>[\"'/bfnrt])"
_PERCENT: Final = rb"%(?:25){0,8}(?P<percent>[0-9a-fA-F]{2})"
_TERMINAL_CODE: Final = re.compile(rb"\x1b" + _CODE + b"|" + _RUN + _ESC + _CODE)
_TOKEN: Final = re.compile(
    rb"\x1b" + _CODE + b"|" + _RUN + b"(?:" + _ESC + _CODE + b"|" + _ESCAPE + b")|" + _PERCENT
)
_ESCAPED: Final = re.compile(_RUN + b"(?:" + _ESCAPE + b")|" + _PERCENT)
_NAMED: Final = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t"}
_NAMES: Final = {value: name for name, value in _NAMED.items()}

_BASE64: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_"
_BASE64_MASK: Final = bytes(97 if byte in _BASE64 else 32 for byte in range(256))
_PRINTABLE_MASK: Final = bytes(97 if byte in b"\t\n\r" or 32 <= byte < 127 else 32 for byte in range(256))
_URLSAFE: Final = bytes.maketrans(b"-_", b"+/")
_ANY_BACKSLASH: Final = rb"(?:\\++(?>(?:(?:u005|x5)[cC])?)|%(?:25){0,8}5[cC])"
_NEEDED: Final = 6  # other characters, of a value of which a backslash may be missing
LEAST_BASE64: Final = 24  # letters: of no shape are fewer than 18 bytes enough
_LEAST_DECODED: Final = 16


@dataclass(slots=True)
class Decoded:
    """A text without its disguise, and where each byte of it came from."""

    text: bytes
    _at: list[int] = field(default_factory=lambda: [0])  # positions in text, ascending, …
    _from: list[int] = field(default_factory=lambda: [0])  # … and in the original, from where both run along
    _one: list[bool] = field(default_factory=lambda: [False])  # one byte that was an escape

    def origin(self, start: int, end: int) -> tuple[int, int]:
        """The range of the original that says ``text[start:end]``; ``end`` is greater than ``start``."""
        first = bisect_right(self._at, start) - 1
        last = bisect_right(self._at, end - 1) - 1
        after = self._from[last + 1] if self._one[last] else self._from[last] + end - self._at[last]
        return self._from[first] + start - self._at[first], after

    def note(self, at: int, origin: int, *, one: bool) -> None:
        """From here on the two run along, or (``one``) for a single byte."""
        self._at.append(at)
        self._from.append(origin)
        self._one.append(one)


def is_disguised(text: bytes) -> bool:
    """Whether it holds a byte with which an escape or a terminal code begins."""
    return any(byte in text for byte in (b"\\", b"%", b"\x1b"))


def decode(text: bytes) -> Decoded:
    """Without terminal codes, and with each escape as the byte that it means."""
    return _without(text, _TOKEN)


def unescape(text: bytes) -> Decoded:
    """With each escape as the byte that it means, for whoever shows no terminal codes: a cut one takes the
    first letter of what follows, which may be the backslash of an escape."""
    return _without(text, _ESCAPED)


def strip_terminal_codes(text: bytes) -> Decoded:
    """Without terminal codes alone."""
    return _without(text, _TERMINAL_CODE)


def _without(text: bytes, token: re.Pattern[bytes]) -> Decoded:
    out = bytearray()
    found = Decoded(b"")
    at = 0
    for match in token.finditer(text):
        out += text[at : match.start()]
        meaning = _meaning(match)
        if meaning:
            found.note(len(out), match.start(), one=True)
            out += meaning
        at = match.end()
        found.note(len(out), at, one=False)
    found.text = bytes(out + text[at:])
    return found


def _meaning(match: re.Match[bytes]) -> bytes:
    groups = match.groupdict()
    digits = groups.get("unicode") or groups.get("hex") or groups.get("percent")
    if digits:
        return bytes((int(digits, 16),))
    letter = groups.get("letter") or b""
    return _NAMED.get(letter, letter)


def runs(text: bytes, mask: bytes, least: int) -> Iterator[tuple[int, int]]:
    """Where at least ``least`` bytes in a row are in the class that ``mask`` maps to ``a``."""
    masked = text.translate(mask)
    wanted, at = b"a" * least, 0
    while (start := masked.find(wanted, at)) >= 0:
        end = masked.find(b" ", start)
        at = len(text) if end < 0 else end
        yield start, at


def base64_texts(text: bytes) -> Iterator[tuple[bytes, int]]:
    """What its base64 says where that is text, and the position of the letter that it begins in.

    All four alignments are tried: whatever stands before may use the same letters.
    """
    for start, end in runs(text, _BASE64_MASK, LEAST_BASE64):
        letters = text[start:end].translate(_URLSAFE)
        for skipped in range(4):
            usable = letters[skipped:]
            usable = usable[:-1] if len(usable) % 4 == 1 else usable
            data = binascii.a2b_base64(usable + b"=" * (-len(usable) % 4))
            if b"a" * _LEAST_DECODED in data.translate(_PRINTABLE_MASK):
                yield data, start + skipped


def base64_origin(start: int, end: int) -> tuple[int, int]:
    """The letters, counted from the first, in which bytes ``start`` to ``end`` are written."""
    return start * 8 // 6, -(-end * 8 // 6)


def spellings(value: bytes) -> frozenset[bytes]:
    """The value as it is, as a form field, in base64 at each alignment and alphabet, and in hexadecimal."""
    found = {value, value.replace(b" ", b"+"), value.hex().encode(), value.hex().upper().encode()}
    return frozenset(found | base64_cores(value))


def base64_cores(value: bytes) -> frozenset[bytes]:
    """The letters that depend on this value alone, wherever in a longer text it stands."""
    found = set()
    for before in range(3):
        whole = base64.b64encode(bytes(before) + value)
        core = whole[-(-before * 8 // 6) : (before + len(value)) * 8 // 6]
        found |= {core, core.translate(bytes.maketrans(b"+/", b"-_"))}
    return frozenset(found)


def escaped_pattern(value: bytes) -> bytes:
    """A regular expression for the value with any of its characters escaped, by whatever rule and depth."""
    try:
        characters = [char.encode() for char in value.decode()]
    except UnicodeDecodeError:
        characters = [bytes((byte,)) for byte in value]
    # A backslash may have gone with the terminal code that an escape behind it made.
    needed = len(characters) - characters.count(b"\\") < _NEEDED
    pattern, before = b"", b""
    for char in characters:
        if char != b"\\":
            pattern += _character(char, before)
        elif before != char:  # a run of backslashes is as good as one
            first = rb"(?<!\\)" if not before else b""
            # Atomic, not "++": before Python 3.11.5 a possessive group forgets what is left to try in it.
            pattern += first + b"(?>" + _ANY_BACKSLASH + (b"+" if first or needed else b"*") + b")"
        before = char
    return pattern


def escaped_base64(core: bytes) -> bytes:
    """A regular expression for letters of base64, of which JSON and URLs escape a few."""
    ways = {b"+": rb"(?:\+|%(?:25){0,8}2[bB])", b"/": rb"(?:\\*+/|%(?:25){0,8}2[fF])"}
    return b"".join(ways.get(core[at : at + 1], re.escape(core[at : at + 1])) for at in range(len(core)))


def _character(char: bytes, before: bytes) -> bytes:
    """One character; behind a backslash the run has been taken already, and is not asked for again."""
    run = rb"\\" if not before else rb"\\*+" if before == b"\\" else rb"\\++"
    ways = [
        b"".join(
            b"(?:%b|%%(?:25){0,8}%b|%bx%b)" % (re.escape(bytes((byte,))), digits, run, digits)
            for byte in char
            for digits in (_digits(b"%02x" % byte),)
        )
    ]
    if before and len(char) == 1 and not char.isalnum():
        ways.append(rb"\\*+" + re.escape(char))
    if char == b" ":
        ways.append(rb"\+")
    if char in _NAMES:
        ways.append(run + _NAMES[char])
    if char.isascii() or len(char) > 1:
        code, units = ord(char.decode()), char.decode().encode("utf-16-be").hex().encode()
        ways.append(b"".join(run + b"u" + _digits(units[at : at + 4]) for at in range(0, len(units), 4)))
        if 0x80 <= code <= 0xFF:
            ways.append(run + b"x" + _digits(b"%02x" % code))
        if code > 0xFFFF:
            ways.append(run + b"U" + _digits(b"%08x" % code))
    return b"(?:" + b"|".join(ways) + b")"


def _digits(digits: bytes) -> bytes:
    return b"".join(
        b"[%c%c]" % (digit, digit - 32) if digit >= ord("a") else b"%c" % digit for digit in digits
    )
