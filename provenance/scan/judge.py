"""Decide whether a candidate is a credential: its whole pattern, its edge, its check sum or structure."""

from __future__ import annotations

import base64
import functools
import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from images.credentials import MAX_CREDENTIAL, Confirm, LeftEdge, Shape
from images.disguises import escaped_pattern, unescape
from images.errors import UsageError
from images.strictjson import read_object
from provenance.scan.engine import Bytes, Candidate, Encoding

# What a judgement may look at before and after the candidate's start.
LEFT_CONTEXT: Final = 64
RIGHT_CONTEXT: Final = 2 * MAX_CREDENTIAL

_BASE64_RUN: Final = re.compile(rb"(?:[A-Za-z0-9+/_\-]|\\+[rn/]|%2[BbFf]|\s)*={0,2}")
_BASE64_GAPS: Final = re.compile(rb"\\+[rn]|\s|\\")
_BASE64_PERCENT: Final = re.compile(rb"%2([BbFf])")
_HEX_RUN: Final = re.compile(rb"(?:[0-9a-fA-F]{2})*")
_UTF16_RUN: Final = re.compile(rb"(?:[\x01-\x7f]\x00)*[\x01-\x7f]?")
_WORD_BEFORE: Final = re.compile(rb"[A-Za-z0-9]")
_ESCAPE_BEFORE: Final = re.compile(rb"(?:\\[nrt]|%[0-9A-Fa-f]{2}|\\u00[0-9a-fA-F]{2}|\\x[0-9a-fA-F]{2})\Z")
_FILLERS: Final = re.compile(
    rb"(?i)example|placeholder|redacted|changeme|x{6}|0{10}|abcdefgh|12345678|\*{4}|\.{4}"
)
_BASE62: Final = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_PEM_END: Final = re.compile(rb"-----END [A-Z0-9 ]{0,40}-----")
_PEM_HEADER: Final = re.compile(
    rb"(?:Proc-Type|DEK-Info|Comment|Version|Hash|Charset|Subject|x-[\w-]+): ?[^\r\n\\]*", re.I
)
# Line ends as source code, JSON and YAML write them; a + is a letter of base64 unless it joins two strings.
_PEM_GAPS: Final = re.compile(rb"[\"']\s*\+\s*[\"']|\\+[rnt]|\\\r?\n|[\s\0\"',|>#*;]")
_PEM_BODY: Final = re.compile(rb"[A-Za-z0-9+/]*={0,2}")
_LEAST_KEY: Final = 32
_OPENSSH: Final = b"openssh-key-v1\0"


@dataclass(frozen=True, slots=True)
class Confirmed:
    """A credential: ``value`` is what allow-list entries are bound to (a key's DER, else the letters)."""

    rule: str
    encoding: Encoding
    value: bytes = field(repr=False)


def judge(buffer: Bytes, candidate: Candidate) -> Confirmed | None:
    """The credential that starts at the candidate, or None. The buffer holds as much context as there is."""
    probe = candidate.probe
    if probe.encoding is Encoding.PLAIN:
        value = _plain(buffer, candidate.at, probe.shape)
    elif probe.encoding is Encoding.BASE64:
        start = candidate.at - probe.skew
        if start < 0:
            return None
        value = _plain(_decode_base64(buffer, start), probe.lead, probe.shape)
    else:
        value = _decoded(buffer, candidate.at, probe.shape, probe.encoding)
    return None if value is None else Confirmed(probe.shape.id, probe.encoding, value)


def _decoded(buffer: Bytes, at: int, shape: Shape, encoding: Encoding) -> bytes | None:
    """The credential that is written down here character by character, each in the same way."""
    end = min(len(buffer), at + RIGHT_CONTEXT)
    if encoding is Encoding.ESCAPED:
        if shape.left is LeftEdge.WORD and not _left_edge_holds(buffer, at):
            return None
        if shape.confirm is Confirm.KNOWN:
            return _escaped_value(buffer, at, end, shape)
        return _unescaped(bytes(buffer[at:end]), shape)
    if encoding is Encoding.HEX:
        digits = _HEX_RUN.match(buffer, at, end)
        before = _one_byte(bytes(buffer[max(0, at - 2) : at]))
        return _plain(before + bytes.fromhex(digits.group().decode()), len(before), shape) if digits else None
    run = _UTF16_RUN.match(buffer, at, end)
    return _plain(run.group()[::2], 0, shape) if run else None


def _unescaped(text: bytes, shape: Shape) -> bytes | None:
    """In steps: hardly a candidate is one, and hardly a credential is long."""
    value = None
    for length in (_ESCAPED_START, _ESCAPED_MOST, len(text)):
        piece = unescape(text[:length]).text
        if not piece.startswith(shape.prefixes):
            return None
        value = _plain(piece, 0, shape)
        # One that ends with the piece may go on behind it.
        if length >= len(text) or (value is not None and len(value) < len(piece) - _ESCAPED_CUT):
            return value
    return value


@functools.cache
def _escaped_pattern(shape: Shape) -> re.Pattern[bytes]:
    return re.compile(b"|".join(escaped_pattern(prefix) for prefix in shape.prefixes), re.DOTALL)


def _escaped_value(buffer: Bytes, at: int, end: int, shape: Shape) -> bytes | None:
    """A known value with some of its characters escaped, each by whatever rule."""
    return shape.prefixes[0] if _escaped_pattern(shape).match(buffer, at, end) else None


def _one_byte(digits: bytes) -> bytes:
    whole = len(digits) == 2 and _HEX_RUN.fullmatch(digits)
    return bytes.fromhex(digits.decode()) if whole else b""


@functools.cache
def _pattern(shape: Shape) -> re.Pattern[bytes]:
    return re.compile(shape.pattern, re.DOTALL)


def _plain(buffer: Bytes, at: int, shape: Shape) -> bytes | None:
    if shape.left is LeftEdge.WORD and not _left_edge_holds(buffer, at):
        return None
    match = _pattern(shape).match(buffer, at, min(len(buffer), at + MAX_CREDENTIAL))
    if match is None:
        return None
    return _CONFIRM[shape.confirm](buffer, at, match.group(), match.group(1))


def _left_edge_holds(buffer: Bytes, at: int) -> bool:
    before = bytes(buffer[max(0, at - 6) : at])
    return not before or not _WORD_BEFORE.match(before[-1:]) or bool(_ESCAPE_BEFORE.search(before))


def _decode_base64(buffer: Bytes, start: int) -> bytes:
    run = _BASE64_RUN.match(buffer, start, min(len(buffer), start + RIGHT_CONTEXT))
    text = _BASE64_GAPS.sub(b"", run.group()) if run else b""
    text = _BASE64_PERCENT.sub(lambda found: b"+" if found.group(1) in b"Bb" else b"/", text)
    text = text.rstrip(b"=").translate(bytes.maketrans(b"-_", b"+/"))
    whole = len(text) - (len(text) % 4 == 1)
    return base64.b64decode(text[:whole] + b"=" * (-whole % 4))


def _letters(_buffer: Bytes, _at: int, value: bytes, body: bytes) -> bytes | None:
    """A filler such as ``…EXAMPLE``, or fewer than eight distinct letters, is documentation."""
    if len(set(body)) < 8 or _FILLERS.search(value):
        return None
    return value


def _crc32(_buffer: Bytes, _at: int, value: bytes, body: bytes) -> bytes | None:
    """Source: GitHub's description of its token format of April 2021; npm follows it."""
    number = zlib.crc32(body[:-6])
    expected = bytearray()
    for _ in range(6):
        number, rest = divmod(number, 62)
        expected.append(_BASE62[rest])
    return value if bytes(reversed(expected)) == body[-6:] else None


_ESCAPED_START: Final = 320
_ESCAPED_MOST: Final = 4096
_ESCAPED_CUT: Final = 16  # bytes of an escape that the end of a piece may cut in two
_BECH32: Final = b"qpzry9x8gf2tvdw0s3jn54khce6mua7l"
_BECH32_GENERATOR: Final = (0x3B6A57B2, 0x26508E6D, 0x1EA119FA, 0x3D4233DD, 0x2A1462B3)


def _bech32(_buffer: Bytes, _at: int, value: bytes, _body: bytes) -> bytes | None:
    """BIP 173: the remainder over what stands before the last 1, and over what follows, is one."""
    human, _, data = value.lower().rpartition(b"1")
    spread = [byte >> 5 for byte in human] + [0] + [byte & 31 for byte in human]
    remainder = 1
    for number in (*spread, *(_BECH32.find(letter) for letter in data)):
        top = remainder >> 25
        remainder = (remainder & 0x1FFFFFF) << 5 ^ number
        for bit, generator in enumerate(_BECH32_GENERATOR):
            remainder ^= generator if top >> bit & 1 else 0
    return value if remainder == 1 else None


def _known(_buffer: Bytes, _at: int, value: bytes, _body: bytes) -> bytes | None:
    return value


def _jwt(_buffer: Bytes, _at: int, value: bytes, _body: bytes) -> bytes | None:
    """Both parts are JSON objects and the header names an algorithm."""
    header, payload = (_json_part(part) for part in value.split(b".")[:2])
    return value if header and payload and b'"alg"' in header else None


def _json_part(part: bytes) -> bytes:
    raw = _decode_base64(part, 0)
    try:
        read_object(raw, "JWT", max_bytes=MAX_CREDENTIAL)
    except UsageError:
        return b""
    return raw


def _pem(buffer: Bytes, at: int, value: bytes, _body: bytes) -> bytes | None:
    """Base64 of a private key's ASN.1 (its DER is the value), of OpenSSH's or PGP's format, or encrypted."""
    start = at + len(value)
    last = min(len(buffer), at + MAX_CREDENTIAL)
    end = _PEM_END.search(buffer, start, last)
    raw = bytes(buffer[start : end.start() if end else last])
    encrypted = b"ENCRYPTED" in raw[:200]
    text = _PEM_GAPS.sub(b"", _PEM_HEADER.sub(b"", raw.replace(b"\\/", b"/")))
    body = _PEM_BODY.match(text)
    decoded = _decode_base64(body.group(), 0) if body else b""
    if len(decoded) < _LEAST_KEY:
        return None
    if encrypted or b"PGP" in value or b"SSH2" in value or decoded.startswith(_OPENSSH):
        return decoded
    return _private_key(decoded)


# A PKCS#1 or SEC 1 key inside of PKCS#8: the outer one is the key that allow-list entries know.
_WRAPPED: Final = re.compile(
    rb"\x02\x01[\x00\x01]\x30"
    rb"(?:\x0d\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x01\x05\x00"
    rb"|\x13\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07)"
    rb"\x04(?:\x82..|\x81.|.)\Z",
    re.DOTALL,
)


def _der(buffer: Bytes, at: int, value: bytes, _body: bytes) -> bytes | None:
    """The sequence around the marker; the whole key is the value."""
    for length in (0,) if value.startswith(b"\x30") else (2, 3, 4):
        start = at - length
        if start < 0 or buffer[start] != 0x30:
            continue
        found = _private_key(bytes(buffer[start : start + MAX_CREDENTIAL]), whole=True)
        if found is not None and length in (0, _header(found)[0]):
            return None if _WRAPPED.search(bytes(buffer[max(0, start - 32) : start])) else found
    return None


def _private_key(der: bytes, *, whole: bool = False) -> bytes | None:
    """The DER of a key at the start: a sequence whose elements fill it exactly and look like a key's.

    A key that is cut short counts too, unless ``whole``.
    """
    head, size = _header(der)
    if not head or der[0] != 0x30 or size < _LEAST_KEY or size > MAX_CREDENTIAL:
        return None
    if head + size > len(der):
        return None if whole else der
    inner = der[head : head + size]
    tags = _tags(inner)
    if tags is None:
        return None
    # Version, then key; or an encryption scheme, then the encrypted key.
    is_key = tags[:1] == [0x02] and len(tags) >= 3 and inner[1] == 1 and inner[2] <= 3
    is_encrypted = tags == [0x30, 0x04]
    return der[: head + size] if is_key or is_encrypted else None


def _header(der: bytes) -> tuple[int, int]:
    """Length of the header and of the content; (0, 0) when it is none."""
    if len(der) < 2:
        return 0, 0
    if der[1] < 0x80:
        return 2, der[1]
    count = der[1] & 0x7F
    if count not in (1, 2) or len(der) < 2 + count:
        return 0, 0
    return 2 + count, int.from_bytes(der[2 : 2 + count], "big")


def _tags(inner: bytes) -> list[int] | None:
    tags = []
    position = 0
    while position < len(inner):
        head, size = _header(inner[position : position + 6])
        if not head or position + head + size > len(inner):
            return None
        tags.append(inner[position])
        position += head + size
    return tags


_CONFIRM: Final[dict[Confirm, Callable[[Bytes, int, bytes, bytes], bytes | None]]] = {
    Confirm.LETTERS: _letters,
    Confirm.CRC32: _crc32,
    Confirm.JWT: _jwt,
    Confirm.PEM: _pem,
    Confirm.DER: _der,
    Confirm.BECH32: _bech32,
    Confirm.KNOWN: _known,
}
