"""What a program has switched on in a terminal, and the codes that switch it off again."""

from __future__ import annotations

import re
from typing import Final

_MOST_CARRIED: Final = 80  # bytes of a code that is cut off at the end of a chunk
_MOST_PUSHED: Final = 99  # levels of the keyboard protocol's stack on one screen
_USUALLY_ON: Final = frozenset({7, 25})  # lines wrap, the cursor shows
_SCREENS: Final = frozenset({47, 1047, 1049})
# What outlives its program and spoils the next one: keys, cursor, screen, mouse, focus, paste, reports.
_MODES: Final = (
    _USUALLY_ON
    | _SCREENS
    | {1, 9, 66, 1000, 1001, 1002, 1003, 1004, 1005, 1006, 1015, 1016, 2004, 2026, 2031, 2048}
)

_CODE: Final = re.compile(rb"\x1b(?:\[([<=>?]?)([0-9;:]{0,64})( ?)([@-~])|([=>])|\(([0-~]))|([\x0e\x0f])")
_CUT: Final = re.compile(rb"\x1b(?:\(|\[[<=>?]?[0-9;:]{0,64} ?)?\Z")


class Modes:
    """Fed with a program's output in chunks, however they are cut; :attr:`undo` is right after each.

    A reset of the whole terminal is not believed: to switch off what is off already does no harm.
    """

    def __init__(self) -> None:
        self._carried = b""
        self._changed: set[int] = set()
        self._pushed = [0, 0]  # levels of the keyboard protocol: on the first screen, on the other one
        self._keyboard = self._keys = self._keypad = self._shape = self._region = self._painted = False
        self._inserting = self._drawing = self._shifted = False

    def feed(self, chunk: bytes) -> None:
        """Take note of the next bytes of output."""
        data = self._carried + chunk
        for found in _CODE.finditer(data):
            kind, numbers, space, last, keypad, letters, shift = found.groups()
            if last is not None:
                self._take(kind + space + last, numbers)
            elif keypad is not None:
                self._keypad = keypad == b"="
            elif letters is not None:
                self._drawing = letters != b"B"
            else:
                self._shifted = shift == b"\x0e"
        cut = _CUT.search(data, max(0, len(data) - _MOST_CARRIED))
        self._carried = cut[0] if cut else b""

    @property
    def undo(self) -> bytes:
        """The codes that switch off what is on, at most some 400 bytes; empty when nothing is."""
        keys = b"\x1b[=0u" * self._keyboard + b"\x1b[>4m" * self._keys + b"\x1b>" * self._keypad
        modes = [
            b"\x1b[?%d%c" % (mode, b"h" if mode in _USUALLY_ON else b"l")
            for mode in sorted(self._changed, key=lambda mode: (mode in _SCREENS, mode))
        ]
        drawn = b"\x0f" * self._shifted + b"\x1b(B" * self._drawing + b"\x1b[4l" * self._inserting
        looks = b"\x1b[0 q" * self._shape + b"\x1b[m" * self._painted
        region = b"\x1b7\x1b[r\x1b8" * self._region
        # Each screen has a stack of its own, so the other one's goes before that screen does.
        return b"".join((keys, _pop(self._pushed[1]), region, *modes, _pop(self._pushed[0]), drawn, looks))

    def _take(self, what: bytes, numbers: bytes) -> None:
        match what:
            case b"?h" | b"?l":
                self._switch(numbers, on=what == b"?h")
            case b">u":
                self._push(1)
            case b"<u":
                self._push(-int(numbers) if numbers.isdigit() else -1)
            case b"=u":
                self._keyboard = numbers.partition(b";")[0] not in (b"", b"0")
            case b">m":
                self._keys = numbers.startswith(b"4;") and numbers[2:] not in (b"", b"0")
            case b" q":
                self._shape = numbers not in (b"", b"0")
            case b"r":
                self._region = numbers != b""
            case b"m":
                self._painted = numbers not in (b"", b"0")
            case b"h" | b"l" if numbers == b"4":
                self._inserting = what == b"h"

    def _switch(self, numbers: bytes, *, on: bool) -> None:
        for number in numbers.split(b";"):
            if number.isdigit() and int(number) in _MODES:
                mode = int(number)
                if on is (mode in _USUALLY_ON):
                    self._changed.discard(mode)
                else:
                    self._changed.add(mode)

    def _push(self, levels: int) -> None:
        screen = int(bool(self._changed & _SCREENS))
        self._pushed[screen] = min(_MOST_PUSHED, max(0, self._pushed[screen] + levels))


def _pop(levels: int) -> bytes:
    return b"\x1b[<%du" % levels if levels else b""
