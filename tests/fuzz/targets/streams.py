"""What streams by: requests to the relay, a proxy's answer, a terminal, output to redact, progress."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path

from backend.network.attempts import Refused
from backend.network.connect_head import MAX_HEAD, read_connect, read_status
from backend.terminal_modes import Modes
from builder.building.progress import BuildProgress
from builder.report import visible
from images.config import parse_duration, parse_memory, parse_peer
from images.credentials import Secret
from images.disguises import base64_texts, decode, strip_terminal_codes, unescape
from images.redaction import Redactor, hide, redact
from tests.fuzz.mutate_bytes import mutate_bytes
from tests.fuzz.target import Ready, law, target

CONNECT = (
    b"CONNECT api.anthropic.com:443 HTTP/1.1\r\nHost: api.anthropic.com:443\r\n\r\n",
    b"CONNECT [2001:db8::1]:443 HTTP/1.1\r\nHost: [2001:db8::1]\r\nA: x\r\nContent-Length: 0\r\n\r\n",
    b"CONNECT 192.0.2.1:8443 HTTP/1.0\r\n\r\n",
)
SECRET = "sk-" + "ant-api03-" + "Dummy0word" * 8


@target(mutate_bytes, share=3, refusals=(Refused,))
def connect_request(folder: Path) -> Ready:
    """A request to the relay: what is taken has one meaning to every reader."""

    def look(head: bytes) -> object:
        peer = read_connect(head)
        law(
            len(head) <= MAX_HEAD and head.count(b"\r\n\r\n") == 1 and head.endswith(b"\r\n\r\n"),
            "more than a head",
        )
        law(
            head.isascii()
            and b"\n" not in head.replace(b"\r\n", b"")
            and b"\r" not in head.replace(b"\r\n", b""),
            "bare",
        )
        first = head.partition(b"\r\n")[0].split(b" ")
        law(len(first) == 3 and first[0] == b"CONNECT", "another method or line")
        law(parse_peer(str(peer)) == peer, "a peer that is another when it is written")
        law(str(peer) == first[1].decode().lower(), "another peer than the one that was asked for")
        return peer

    return Ready(CONNECT, look)


@target(mutate_bytes, share=3)
def answer_of_a_proxy(folder: Path) -> Ready:
    """An upstream proxy's answer."""

    def look(head: bytes) -> object:
        found = read_status(head)
        law(found is None or re.match(rb"HTTP/1\.[01] %d" % found, head), "a status that is not there")
        return found

    return Ready((b"HTTP/1.1 200 Connection established\r\n\r\n", b"HTTP/1.0 407 x\r\nA: b\r\n\r\n"), look)


@target(mutate_bytes, share=0.3)
def terminal_output(folder: Path) -> Ready:
    """An agent's output on a terminal: however it is cut, what undoes it is the same and short."""
    seeds = (
        b"\x1b[?1049h\x1b[?1000;1006h\x1b[?25l\x1b[>1u\x1b[1;20r\x1b[31mhello\x1b[0m\x1b(0\x0e",
        b"\x1b[<99u\x1b[=5u\x1b[>4;2m\x1b=\x1b[4h\x1b[6 q\x1b[?2004h",
    )

    def look(raw: bytes) -> object:
        whole, pieces = Modes(), Modes()
        whole.feed(raw)
        for byte in raw:
            pieces.feed(bytes([byte]))
        law(whole.undo == pieces.undo, "in other pieces it reads differently")
        law(len(whole.undo) < 1000, "an undo without end")
        law(not re.search(rb"[^\x1b\x0f\x20-\x7e]", whole.undo), "an undo with other bytes than codes")
        return whole.undo

    return Ready(seeds, look)


@target(mutate_bytes, share=0.15)
def output_to_redact(folder: Path) -> Ready:
    """Output of anybody: how it is cut changes nothing, and a known secret that it holds never comes out."""
    secret = Secret.of_text(SECRET)
    token = SECRET.encode()
    seeds = (
        b"key=" + token + b"\nAuthorization: Bearer " + token + b"\r\n",
        json.dumps({"a": f'x"{SECRET}"'}).encode() + b"\n\x1b[31m" + token + b"\x1b[0m\n",
        base64.b64encode(b"login:" + token) + b"\n-----BEGIN PRIVATE KEY-----\nMIIE\n",
    )

    def look(raw: bytes) -> object:
        whole, pieces = Redactor((secret,)), Redactor((secret,))
        out = whole.feed(raw) + whole.close()
        cut = b"".join(pieces.feed(raw[at : at + 13]) for at in range(0, len(raw), 13)) + pieces.close()
        law(out == cut, "in other pieces it is redacted differently")
        law(token not in out, "a known secret came out")
        law(token not in hide(raw, (secret,)) and token not in redact(raw), "a known secret came out")
        for read in (decode, unescape, strip_terminal_codes):
            read(raw)
        list(base64_texts(raw))
        return out

    return Ready(seeds, look)


@target(mutate_bytes, share=0.15)
def progress_of_buildkit(folder: Path) -> Ready:
    """buildx's own progress, line by line."""
    lines: list[str] = []
    vertex = {"digest": "sha256:" + "a" * 64, "name": "[1/2] RUN x", "started": "2026-01-01T00:00:00Z"}
    events = (
        {"vertexes": [vertex]},
        {"logs": [{"vertex": vertex["digest"], "data": base64.b64encode(b"line\n").decode()}]},
        {"vertexes": [{**vertex, "completed": "2026-01-01T00:00:01Z", "error": "exit code: 1"}]},
    )
    seed = b"".join(json.dumps(one).encode() + b"\n" for one in events) + b"ERROR: x\n"

    def look(raw: bytes) -> object:
        lines.clear()
        reader = BuildProgress(lines.append)
        for at in range(0, len(raw), 41):
            reader.take(raw[at : at + 41])
        reader.close()
        said = (*lines, *reader.last_lines(), reader.failed_step, *reader.running_steps())
        law(
            all("\x1b" not in text and "\n" not in text for text in said), "a line that a terminal would obey"
        )
        return said

    return Ready((seed,), look)


@target(mutate_bytes, share=3, refusals=(ValueError,))
def small_texts(folder: Path) -> Ready:
    """Peers, amounts and durations, and what is shown of them."""

    def look(raw: bytes) -> object:
        text = raw.decode("utf-8", "surrogateescape")
        shown = visible(text)
        law("\x1b" not in shown, "a code that a terminal would obey")
        found = []
        for parse in (parse_peer, parse_memory, parse_duration):
            try:
                found.append(parse(text))
            except ValueError:
                continue
        if not found:
            raise ValueError(text)
        return found

    return Ready((b"api.anthropic.com:443", b"[::1]:80", b"4GiB", b"90d"), look)
