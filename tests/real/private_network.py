"""A network of a test's own: public addresses on its loopback, a resolver of its own, and nothing behind.

As root: ``unshare --net --mount -- python -m tests.real.private_network COMMAND…``. Whoever runs inside may
listen on any port. The product has no switch for this: it asks the resolver that this machine names.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

ADDRESS: Final = "11.22.33.44"
SIX: Final = "2600:1234::44"
RESOLVER: Final = "127.0.0.53"
_SET_FLAGS, _SET_ADDRESS, _SET_MASK = 0x8914, 0x8916, 0x891C
_UP_LOOPBACK_RUNNING: Final = 0x1 | 0x8 | 0x40


def is_private() -> bool:
    """Whether this process is in such a network."""
    with socket.socket(socket.AF_INET) as trying:
        try:
            trying.bind((ADDRESS, 0))
        except OSError:
            return False
    return True


def set_up() -> None:
    """Loopback with both addresses, the resolver's name, every port for everybody."""
    if Path("/proc/self/ns/net").readlink() == Path(f"/proc/{os.getppid()}/ns/net").readlink():
        sys.exit("this is no network namespace of its own")
    add_addresses()
    Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").write_text("0\n")
    with tempfile.NamedTemporaryFile("w", prefix="resolv-") as file:
        file.write(f"nameserver {RESOLVER}\noptions timeout:2 attempts:1\n")
        file.flush()
        Path(file.name).chmod(0o644)
        subprocess.run(["mount", "--bind", file.name, "/etc/resolv.conf"], check=True)


def add_addresses() -> None:
    """Both public addresses, alone, on the loopback of the network that this process is in."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, _SET_FLAGS, struct.pack("16sh14x", b"lo", _UP_LOOPBACK_RUNNING))
        for request, text in ((_SET_ADDRESS, ADDRESS), (_SET_MASK, "255.255.255.255")):
            address = struct.pack("HH4s8x", socket.AF_INET, 0, socket.inet_aton(text))
            fcntl.ioctl(control, request, struct.pack("16s16s", b"lo:1", address))
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as control:
        request = struct.pack(
            "=16sIi", socket.inet_pton(socket.AF_INET6, SIX), 128, socket.if_nametoindex("lo")
        )
        fcntl.ioctl(control, _SET_ADDRESS, request)


if __name__ == "__main__":
    set_up()
    with contextlib.suppress(OSError):
        os.execvp(sys.argv[1], sys.argv[1:])  # noqa: S606  (the very command)
    sys.exit(f"{sys.argv[1]} cannot be started")
