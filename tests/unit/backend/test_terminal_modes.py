"""What a program leaves switched on is known after every byte, and switched off by our own codes alone."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.terminal_modes import Modes

ON = {
    "another screen": (b"\x1b[?1049h", b"\x1b[?1049l"),
    "an older way to it": (b"\x1b[?47h", b"\x1b[?47l"),
    "the mouse, three ways at once": (b"\x1b[?1000;1003;1006h", b"\x1b[?1000l\x1b[?1003l\x1b[?1006l"),
    "focus": (b"\x1b[?1004h", b"\x1b[?1004l"),
    "marked pastes": (b"\x1b[?2004h", b"\x1b[?2004l"),
    "held back drawing": (b"\x1b[?2026h", b"\x1b[?2026l"),
    "arrow keys": (b"\x1b[?1h", b"\x1b[?1l"),
    "a hidden cursor": (b"\x1b[?25l", b"\x1b[?25h"),
    "lines that do not wrap": (b"\x1b[?7l", b"\x1b[?7h"),
    "the keypad": (b"\x1b=", b"\x1b>"),
    "keys with their modifiers": (b"\x1b[>4;2m", b"\x1b[>4m"),
    "the keyboard protocol, pushed twice": (b"\x1b[>1u\x1b[>5u", b"\x1b[<2u"),
    "the keyboard protocol, set": (b"\x1b[=5;1u", b"\x1b[=0u"),
    "a cursor of another shape": (b"\x1b[4 q", b"\x1b[0 q"),
    "a part that scrolls": (b"\x1b[2;20r", b"\x1b7\x1b[r\x1b8"),
    "colour": (b"\x1b[38;5;208m", b"\x1b[m"),
    "lines for letters": (b"\x1b(0", b"\x1b(B"),
    "the other letters": (b"\x0e", b"\x0f"),
    "inserting": (b"\x1b[4h", b"\x1b[4l"),
}


@pytest.mark.parametrize("name", ON)
def test_what_is_on_is_switched_off(name: str) -> None:
    on, off = ON[name]
    modes = Modes()
    modes.feed(b"before" + on + b"after")
    assert modes.undo == off
    modes.feed(off)
    assert modes.undo == b""


def test_a_program_that_cleans_up_leaves_nothing_to_do() -> None:
    modes = Modes()
    modes.feed(b"\x1b[?1049h\x1b[?25l\x1b[?2004h\x1b[>1u\x1b[1;31mhello\x1b[0m")
    modes.feed(b"\x1b[<u\x1b[?2004l\x1b[?25h\x1b[?1049l")
    assert modes.undo == b""


def test_questions_and_movements_are_no_modes() -> None:
    modes = Modes()
    modes.feed(
        b"\x1b[c\x1b[6n\x1b[?u\x1b[?2026$p\x1b[2J\x1b[10;20H\x1b]0;title\x07\x1b]52;c;aGk=\x07\x1b[?2027h"
    )
    assert modes.undo == b""


def test_each_screen_has_its_own_stack_of_keyboards() -> None:
    """What was pushed on the first screen is not popped from the other one, whose stack goes with it."""
    modes = Modes()
    modes.feed(b"\x1b[>1u\x1b[?1049h\x1b[>1u\x1b[<u\x1b[<u")
    assert modes.undo == b"\x1b[?1049l\x1b[<1u"


def test_a_reset_is_not_believed() -> None:
    """It may have gone into a string that the terminal did not read as one."""
    modes = Modes()
    modes.feed(b"\x1b[?1003h\x1bPtmux;\x1b\x1bc\x1b\\\x1bc")
    assert modes.undo == b"\x1b[?1003l"


@pytest.mark.parametrize("on", [on for on, _ in ON.values()], ids=list(ON))
def test_a_code_is_known_wherever_it_is_cut(on: bytes) -> None:
    whole = Modes()
    whole.feed(on)
    for at in range(1, len(on)):
        parts = Modes()
        parts.feed(on[:at])
        parts.feed(on[at:])
        assert parts.undo == whole.undo


CODES = st.sampled_from([code for pair in ON.values() for code in pair])
OUTPUT = st.lists(
    st.one_of(CODES, st.binary(max_size=12), st.sampled_from([b"\x1b", b"\x1b[", b"\x1b[?", b"\x1b[?1049"]))
).map(b"".join)


@given(OUTPUT, st.lists(st.integers(0, 400)))
def test_however_it_is_cut(output: bytes, cuts: list[int]) -> None:
    whole, parts = Modes(), Modes()
    whole.feed(output)
    at = [0, *sorted(min(cut, len(output)) for cut in cuts), len(output)]
    for begin, end in itertools.pairwise(at):
        parts.feed(output[begin:end])
    assert parts.undo == whole.undo


@given(OUTPUT)
def test_after_undoing_nothing_is_left(output: bytes) -> None:
    modes = Modes()
    modes.feed(output)
    undo = modes.undo
    modes.feed(b"\x18" + undo)  # cancels what was cut off
    assert modes.undo == b""


@given(st.lists(CODES, max_size=2000).map(b"".join))
def test_the_codes_are_few_and_ours_whatever_is_written(output: bytes) -> None:
    modes = Modes()
    modes.feed(output)
    ours = rb"\x1b\[(?:\?[0-9]{1,4}[hl]|<[0-9]{1,2}u|=0u|>4m|r|m|4l|0 q)|\x1b[>78]|\x1b\(B|\x0f"
    assert re.fullmatch(rb"(?:" + ours + rb")*", modes.undo)
    assert len(modes.undo) <= 400


def test_a_flood_of_half_a_code_costs_no_memory() -> None:
    modes = Modes()
    for _ in range(1000):
        modes.feed(b"\x1b[?" + b"1;" * 4096)
    assert modes.undo == b""
