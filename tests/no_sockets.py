"""Run a command where the kernel kills whoever asks for a socket: ``python -m tests.no_sockets WORDS…``.

The filter holds for every thread and every child, whatever library asks, and cannot be taken off again.
"""

from __future__ import annotations

import ctypes
import os
import platform
import socket
import struct
import sys
from typing import Final
from unittest import mock

_SET_NO_NEW_PRIVILEGES: Final = 38
_SET_SECCOMP: Final = 22
_FILTER: Final = 2
_LOAD: Final = 0x20  # a word of what the kernel tells of a call
_EQUAL: Final = 0x15
_AT_LEAST: Final = 0x35
_RETURN: Final = 0x06
_KILL: Final = 0x80000000  # the whole process
_ALLOW: Final = 0x7FFF0000
# What the kernel calls this processor; socket, connect, socketpair; io_uring_setup, which could do the same.
_CALLS: Final = {
    "x86_64": (0xC000003E, (41, 42, 53, 425)),
    "aarch64": (0xC00000B7, (198, 203, 199, 425)),
}
_OTHER_ABI: Final = 0x40000000


def forbid_sockets() -> None:
    """From now on, in this process and all that it starts."""
    processor, calls = _CALLS[platform.machine()]
    program = [(_LOAD, 0, 0, 4), (_EQUAL, 1, 0, processor), (_RETURN, 0, 0, _KILL), (_LOAD, 0, 0, 0)]
    # A match jumps over what is left of the list and over the answer that allows.
    program += [(_AT_LEAST, len(calls) + 1, 0, _OTHER_ABI)]
    program += [(_EQUAL, len(calls) - number, 0, call) for number, call in enumerate(calls)]
    program += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _KILL)]
    raw = b"".join(struct.pack("HBBI", *line) for line in program)
    lines = ctypes.create_string_buffer(raw, len(raw))
    given = ctypes.create_string_buffer(struct.pack("H6xP", len(program), ctypes.addressof(lines)))
    kernel = ctypes.CDLL(None, use_errno=True)
    for arguments in ((_SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0), (_SET_SECCOMP, _FILTER, given, 0, 0)):
        if kernel.prctl(*arguments) != 0:
            raise OSError(ctypes.get_errno(), "prctl")


def main() -> int:
    """``--probe``: ask for a socket. Else the words of a command, by the clock of the tests."""
    forbid_sockets()
    if sys.argv[1:] == ["--probe"]:
        socket.socket(socket.AF_UNIX)
        return 0
    from builder import verifying  # noqa: PLC0415  (what reading the program does counts too)
    from builder.cli import main_inner  # noqa: PLC0415
    from builder.cli.invocation import Invocation  # noqa: PLC0415
    from tests.fakes.proved import NOW  # noqa: PLC0415

    # The base of the tests holds no tools, so no plan is compared.
    with (
        mock.patch.object(Invocation, "now", return_value=NOW),
        mock.patch.object(verifying, "_compare_config", return_value=None),
    ):
        return int(main_inner(sys.argv[1:], dict(os.environ)))


if __name__ == "__main__":
    sys.exit(main())
