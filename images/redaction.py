"""The redactor: what people, logs and records may see of a text that a child or a file gave us.

Credentials are found by shape (the scanner's table, judged by letters alone, so more is hidden than the
scanner reports) and by known value, in every disguise of :mod:`images.disguises`. This guards against
accidents, not against a program that wants to smuggle something out: that one can use any cipher.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable
from typing import Final, TypeVar

from images.credentials import MAX_CREDENTIAL, SHAPES, Confirm, Secret
from images.disguises import (
    base64_cores,
    base64_origin,
    base64_texts,
    decode,
    escaped_base64,
    escaped_pattern,
    is_disguised,
    runs,
    spellings,
    strip_terminal_codes,
    unescape,
)
from images.errors import UsageError

REDACTED: Final = "[redacted]"
LONGEST_LINE: Final = 1 << 16  # the most that is ever held back
_OVERLAP: Final = 3 * MAX_CREDENTIAL // 2  # of an overlong line: the longest credential, with its escapes
_BEFORE: Final = 16  # bytes of what has gone out that the next ones are judged with
_ROUNDS: Final = 4  # a replacement can join what stood around it to something new
_LEAST_VALUE: Final = 6  # a shorter word would tear every text
_LONGEST_PIECE: Final = 512  # of a known value: each piece is looked for by itself
_MARK: Final = REDACTED.encode()

Text = TypeVar("Text", str, bytes)
Ranges = list[tuple[int, int]]

_TOKEN: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-./+=~\\"
_TOKEN_MASK: Final = bytes(97 if byte in _TOKEN else 32 for byte in range(256))
_LEAST_TOKEN: Final = 16  # no shape has fewer letters in a row
_USERINFO: Final = re.compile(rb"[^\s/:@\"'<>]{0,256}:[^\s/@\"'<>]{1,512}(?=@)")
_AUTHORIZATION: Final = re.compile(rb"[A-Za-z0-9._~+/=\-]{16,4096}")
_SCHEMES: Final = (b"bearer ", b"basic ", b"authorization: ")
_BEGIN: Final = rb"(?:-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|PuTTY-User-Key-File-[0-9]: )"
_END: Final = rb"(?:-----END [A-Z0-9 ]{0,40}-----|Private-MAC: [0-9a-f]{40,64})"
_BLOCK: Final = re.compile(
    _BEGIN + rb"(?:.{0,%d}?(?:(?P<end>" % MAX_CREDENTIAL + _END + rb")|\Z)|.{%d})" % MAX_CREDENTIAL, re.DOTALL
)
_BLOCK_END: Final = re.compile(_END)
_BLOCK_WORDS: Final = (b"PRIVATE", b"PuTTY")
_LINE_END: Final = re.compile(rb"[\r\n]")


def _tree(shapes: list[tuple[bytes, bytes]]) -> bytes:
    """Alternatives by their first byte: the engine then looks at few of them anywhere."""
    groups: dict[bytes, list[tuple[bytes, bytes]]] = {}
    for prefix, rest in shapes:
        groups.setdefault(prefix[:1], []).append((prefix[1:], rest))
    return b"|".join(
        re.escape(first)
        + (
            b"(?:" + _tree(group) + b")"
            if len(group) > 1 and all(prefix for prefix, _ in group)
            else b"(?:" + b"|".join(re.escape(prefix) + rest for prefix, rest in group) + b")"
        )
        for first, group in groups.items()
    )


_SHAPES: Final = re.compile(
    _tree(
        [
            (prefix, shape.rest)
            for shape in SHAPES
            if shape.confirm not in (Confirm.PEM, Confirm.DER) and shape.id != "putty-private-key"
            for prefix in shape.prefixes
        ]
    )
)


def redact(text: Text) -> Text:
    """The whole text with everything replaced that has the shape of a credential.

    URL passwords and Authorization values are hidden too.
    """
    return _all_at_once(text, Redactor())


def hide(text: Text, secrets: Iterable[Secret]) -> Text:
    """As :func:`redact`, and without any word of these secrets.

    A secret may be a whole file: its words are what stands between blanks, quotes and separators.
    """
    words = {word for secret in secrets for word in _words(secret.reveal()) if _pieces(word)}
    return _all_at_once(text, Redactor(map(Secret, words)))


def _all_at_once(text: Text, redactor: Redactor) -> Text:
    if isinstance(text, bytes):
        return redactor.feed(text) + redactor.close()
    raw = text.encode("utf-8", "surrogatepass")
    shown = redactor.feed(raw) + redactor.close()
    try:
        return shown.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:  # a known value that is no text was cut out of the middle of a character
        return shown.decode("utf-8", "replace")


class Redactor:
    """Takes one stream in chunks of any size and gives it back redacted; how it was split changes nothing.

    ``secrets``: known values, each of at least six bytes; one of several lines is looked for line by line.
    A line is given back once it is complete (``\\n`` or ``\\r``), and an endless one in parts: never more
    than ``LONGEST_LINE`` bytes are held back. :meth:`flush` is for a caller who does not want to wait.
    """

    def __init__(self, secrets: Iterable[Secret] = ()) -> None:
        self._values = _Values(secrets)
        self._held = bytearray()  # the beginning of a line
        self._before = b""  # the end of what that line has given out already
        self._inside = 0  # bytes of a private key that may still follow

    def feed(self, chunk: bytes) -> bytes:
        """The next bytes; returns what is certain."""
        out: list[bytes] = []
        for at in range(0, len(chunk), LONGEST_LINE // 2):
            out.extend(self._feed(chunk[at : at + LONGEST_LINE // 2]))
        return b"".join(out)

    def flush(self) -> bytes:
        """What an incomplete line can give already: all but its last word. For a prompt, by a timer."""
        held = bytes(self._held)
        marks = any(word in held for word in (b"-----", b"PuTTY"))
        unsure = marks or self._inside or self._values.have_blanks
        return b"" if unsure else self._give(held.rfind(b" ") + 1)

    def close(self) -> bytes:
        """The stream has ended: the rest. The redactor can then take another stream."""
        rest = self._lines(bytes(self._held))
        self._held.clear()
        self._before, self._inside = b"", 0
        return rest

    def _feed(self, chunk: bytes) -> Iterable[bytes]:
        last = max(chunk.rfind(b"\n"), chunk.rfind(b"\r")) + 1
        if last and len(self._held) + len(chunk) <= LONGEST_LINE:  # then no line in it is too long
            yield self._complete(chunk[:last])
            self._held += chunk[last:]
            return
        start = 0
        ends = {match.end() for match in _LINE_END.finditer(chunk)}
        for end in sorted(ends | {len(chunk)}):
            piece = chunk[start:end]
            while len(self._held) + len(piece) > LONGEST_LINE:
                room = LONGEST_LINE - len(self._held)
                self._held += piece[:room]
                piece = piece[room:]
                yield self._cut()
            if end in ends and piece:
                yield self._complete(piece)
            else:
                self._held += piece
            start = end

    def _complete(self, lines: bytes) -> bytes:
        whole = bytes(self._held) + lines
        self._held.clear()
        given = self._lines(whole)
        self._before = b""
        return given

    def _cut(self) -> bytes:
        """The first part of an overlong line, not through anything that is to be hidden."""
        at, held = LONGEST_LINE - _OVERLAP, bytes(self._held)
        if self._inside:
            end = _BLOCK_END.search(held)
            return self._give(end.end() if end and end.start() < at < end.end() else at)
        ranges = self._ranges(held, blocks=_may_have_blocks(held))
        for start, stop in ranges:
            if start < at < stop:
                at = start or stop
        return self._give(at, [(start, stop) for start, stop in ranges if stop <= at])

    def _give(self, at: int, ranges: Ranges | None = None) -> bytes:
        given = bytes(self._held[:at])
        del self._held[:at]
        said = self._lines(given) if ranges is None else self._hidden(_without(given, ranges))
        self._before = (self._before + given)[-_BEFORE:]
        return said

    def _lines(self, data: bytes) -> bytes:
        """Lines, or a part of one. Only a private key stretches over several."""
        if not self._inside and not _may_have_blocks(data):
            return self._hidden(data)
        said = []
        for line in re.split(rb"(?<=[\r\n])", data):
            said.append(self._line(line))
            self._before = b""
        return b"".join(said)

    def _line(self, line: bytes) -> bytes:
        if self._inside:
            end = _BLOCK_END.search(line)
            self._inside = 0 if end else max(0, self._inside - len(line))
            if end is None:
                return b""
            self._before = b""
            line = line[end.end() :]
        blocks = _may_have_blocks(line)
        for text in (line, decode(line).text) if blocks else ():
            found = list(_BLOCK.finditer(text))
            if found and found[-1]["end"] is None and found[-1].end() == len(text):
                self._inside = MAX_CREDENTIAL
        return self._hidden(line, blocks=blocks)

    def _hidden(self, data: bytes, *, blocks: bool = False) -> bytes:
        for _ in range(_ROUNDS):
            ranges = self._ranges(data, blocks=blocks)
            if not ranges:
                break
            data = _without(data, ranges)
        return data

    def _ranges(self, data: bytes, *, blocks: bool) -> Ranges:
        """What is to be hidden: ascending, apart from each other. ``blocks``: private keys are looked for."""
        text = self._before + data
        marks = [start for start, _ in _all_of(text, _MARK)]
        found = [
            (start, end)
            for start, end in (*_shapes(text, blocks=blocks), *self._values.find(text))
            if end > len(self._before) and not _is_in_mark(marks, start, end)
        ]
        merged: Ranges = []
        for start, end in sorted(found):
            if merged and start < merged[-1][1]:
                merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
            else:
                merged.append((start, end))
        before = len(self._before)
        return [(max(start - before, 0), end - before) for start, end in merged]


class _Values:
    """Known values, each in every spelling."""

    def __init__(self, secrets: Iterable[Secret]) -> None:
        pieces: set[bytes] = set()
        for secret in secrets:
            found = _pieces(secret.reveal())
            if not found:
                raise UsageError(f"a value of fewer than {_LEAST_VALUE} bytes cannot be kept out of a text")
            pieces |= found
        self.have_blanks = any(b" " in piece for piece in pieces)
        self._forms = sorted({form for piece in pieces for form in spellings(piece)}, key=len, reverse=True)
        self._pieces = sorted(pieces, key=len, reverse=True)
        self._pattern: re.Pattern[bytes] | None = None

    def find(self, text: bytes) -> Ranges:
        """Where any of them stands, in whatever disguise."""
        found = [place for form in self._forms for place in _all_of(text, form)]
        if self._pieces and is_disguised(text):
            if self._pattern is None:  # made when it is first needed: it takes a while
                cores = {core for piece in self._pieces for core in base64_cores(piece)}
                ways = [*map(escaped_pattern, self._pieces), *map(escaped_base64, sorted(cores))]
                self._pattern = re.compile(b"|".join(ways))
            bare = strip_terminal_codes(text)
            found += [bare.origin(*match.span()) for match in self._pattern.finditer(bare.text)]
            if bare.text != text:  # and as it looks where terminal codes mean nothing
                found += [match.span() for match in self._pattern.finditer(text)]
        return found


def _pieces(value: bytes) -> set[bytes]:
    lines = [line.strip() for line in _LINE_END.split(value)]
    long_enough = [line for line in lines if len(line) >= _LEAST_VALUE]
    found = set()
    for line in long_enough:
        starts = range(0, max(1, len(line) - _LEAST_VALUE), _LONGEST_PIECE)
        found |= {line[at : at + _LONGEST_PIECE + _LEAST_VALUE] for at in starts}
    return found


def _all_of(text: bytes, form: bytes) -> Ranges:
    found, at = [], text.find(form)
    while at >= 0:
        found.append((at, at + len(form)))
        at = text.find(form, at + 1)
    return found


def _may_have_blocks(data: bytes) -> bool:
    return any(word in data for word in _BLOCK_WORDS)


def _without(data: bytes, ranges: Ranges) -> bytes:
    parts, at = [], 0
    for start, end in ranges:
        parts += [data[at:start], _MARK]
        at = end
    return b"".join(parts) + data[at:]


def _is_in_mark(marks: list[int], start: int, end: int) -> bool:
    """Whether the range lies in what stands where something was hidden already."""
    at = bisect_right(marks, start) - 1
    return at >= 0 and end <= marks[at] + len(_MARK)


def _shapes(text: bytes, *, blocks: bool) -> Ranges:
    found = _plain_shapes(text, blocks=blocks)
    plain = text
    if is_disguised(text):
        bare = decode(text)
        plain = bare.text
        for way in (bare, unescape(text)) if b"\x1b" in text else (bare,):
            found += [way.origin(*place) for place in _plain_shapes(way.text, blocks=blocks)]
        found += [bare.origin(*place) for place in _in_base64(plain)]
    return found + _in_base64(text)


def _in_base64(text: bytes) -> Ranges:
    found = []
    for said, at in base64_texts(text):
        for place in _plain_shapes(said, blocks=True):
            start, end = base64_origin(*place)
            found.append((at + start, at + end))
    return found


def _plain_shapes(text: bytes, *, blocks: bool) -> Ranges:
    found = []
    for start, end in runs(text, _TOKEN_MASK, _LEAST_TOKEN):
        found += [match.span() for match in _SHAPES.finditer(text, start, end)]
        if text[max(0, start - _BEFORE) : start].lower().endswith(_SCHEMES):
            match = _AUTHORIZATION.match(text, start)
            found += [match.span()] if match else []
    for _, at in _all_of(text, b"://"):
        match = _USERINFO.match(text, at)
        found += [match.span()] if match else []
    if blocks:
        found += [match.span() for match in _BLOCK.finditer(text)]
    return found


# What a configuration file of a client holds beside its values.
_WORDS: Final = re.compile(rb"[^\s\"'=,;@]{%d,}" % _LEAST_VALUE)


def _words(secret: bytes) -> set[bytes]:
    found = {secret.strip()} if len(secret.strip()) >= _LEAST_VALUE else set()
    for word in _WORDS.findall(secret):
        found.add(word)
        found.update(part for part in word.split(b":") if len(part) >= _LEAST_VALUE)
    return found
