"""Read the head of a CONNECT request, or of an upstream proxy's answer, from untrusted bytes. Pure."""

from __future__ import annotations

import re
from typing import Final

from backend.network.attempts import Decision, Refused
from images.config import NetworkPeer, parse_peer

MAX_HEAD: Final = 8 * 1024  # bytes, with the empty line at its end
END: Final = b"\r\n\r\n"
_MAX_FIELDS: Final = 64

_METHOD: Final = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,32}"
_REQUEST: Final = re.compile(rb"(" + _METHOD + rb") ([\x21-\x7e]{1,2048}) HTTP/1\.[01]")
_FIELD: Final = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}):[ \t]*([\t\x20-\x7e]*)")
_STATUS: Final = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})(?: [\t\x20-\x7e\x80-\xff]*)?")


def read_connect(head: bytes) -> NetworkPeer:
    """The peer that a whole head asks for, in lower case. Raises Refused.

    One form only: ``CONNECT host:port``, fields of one line each, an empty line, and not a byte behind it. A
    body, a second request, a bare CR or LF, a control or a letter outside of ASCII is refused, as is a Host
    field that names another host. What other fields say is not looked at, and goes nowhere.
    """
    if len(head) > MAX_HEAD or not head.endswith(END) or head.index(END) != len(head) - len(END):
        raise Refused(Decision.MALFORMED)
    first, *fields = head[: -len(END)].split(b"\r\n")
    asked = _REQUEST.fullmatch(first)
    if asked is None or len(fields) > _MAX_FIELDS:
        raise Refused(Decision.MALFORMED)
    if asked[1] != b"CONNECT":
        raise Refused(Decision.NOT_CONNECT)
    try:
        peer = parse_peer(asked[2].decode("ascii").lower())
    except ValueError:
        raise Refused(Decision.MALFORMED) from None
    _check_fields(fields, peer)
    return peer


def _check_fields(fields: list[bytes], peer: NetworkPeer) -> None:
    hosts = 0
    for line in fields:
        found = _FIELD.fullmatch(line)
        if found is None:
            raise Refused(Decision.MALFORMED)
        name, value = found[1].lower(), found[2].strip(b" \t").decode("ascii").lower()
        if name == b"host":
            hosts += 1
            if hosts > 1 or value not in (str(peer), str(peer).rpartition(":")[0]):
                raise Refused(Decision.MALFORMED)
        if name == b"transfer-encoding" or (name == b"content-length" and value != "0"):
            raise Refused(Decision.MALFORMED)


def read_status(head: bytes) -> int | None:
    """The status code of an upstream proxy's answer; None when it is no HTTP answer."""
    found = _STATUS.fullmatch(head.split(b"\r\n", 1)[0])
    return int(found[1]) if found else None
