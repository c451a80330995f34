"""The redactor: however a stream is split, escaped or coloured, no credential of it is seen."""

from __future__ import annotations

import base64
import itertools
import json
import re
import resource
import time
from collections.abc import Callable
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from images.credentials import MAX_CREDENTIAL, SHAPES, Confirm, Secret, Shape
from images.disguises import LEAST_BASE64, decode
from images.errors import UsageError
from images.redaction import _LEAST_TOKEN, _TOKEN, LONGEST_LINE, REDACTED, Redactor, hide
from tests.fakes.credentials import pem, sample

MARK = REDACTED.encode()
WORDS = [shape for shape in SHAPES if shape.confirm not in (Confirm.DER, Confirm.PEM)]
WORDS = [shape for shape in WORDS if shape.id != "putty-private-key"]
VALUE = 'p"a/s\\s wörd\t+1'
COLOUR = "\x1b[1;31m"


def shown(data: bytes, secrets: tuple[bytes, ...] = (), splits: tuple[int, ...] = ()) -> bytes:
    """The stream, split at these positions."""
    redactor = Redactor(Secret(secret) for secret in secrets)
    cuts = sorted({0, len(data), *(at % (len(data) + 1) for at in splits)})
    out = [redactor.feed(data[a:b]) for a, b in itertools.pairwise(cuts)]
    return b"".join([*out, redactor.close()])


def in_json(text: str, depth: int = 1) -> str:
    return in_json(json.dumps(text)[1:-1], depth - 1) if depth else text


def as_unicode(text: str) -> str:
    units = text.encode("utf-16-be").hex()
    return "".join("\\u" + units[at : at + 4] for at in range(0, len(units), 4))


def coloured(text: str) -> str:
    return COLOUR + f"{COLOUR}".join(text) + "\x1b[0m"


def all_percent(text: str) -> str:
    return "".join(f"%{byte:02X}" for byte in text.encode())


DISGUISES: dict[str, Callable[[str], str]] = {
    "plain": str,
    "JSON": in_json,
    "JSON in JSON": lambda text: in_json(text, 2),
    "JSON, four deep": lambda text: in_json(text, 4),
    "JSON with slashes": lambda text: in_json(text).replace("/", "\\/"),
    "JSON as UTF-8": lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
    "JSON, every letter": as_unicode,
    "JSON, every letter, in JSON": lambda text: in_json(as_unicode(text)),
    "after a colour": lambda text: COLOUR + text,
    "colours between all letters": coloured,
    "colours, in JSON": lambda text: in_json(coloured(text)),
    "a link of a terminal": lambda text: f"\x1b]8;;https://x.test\x1b\\{text}\x1b]8;;\x07",
    "percent": lambda text: quote(text, safe=""),
    "percent, lower case": lambda text: re.sub("%..", lambda m: m[0].lower(), quote(text, safe="")),
    "percent, every byte": all_percent,
    "percent twice": lambda text: quote(quote(text, safe=""), safe=""),
    "a form field": lambda text: quote(text, safe="").replace("%20", "+"),
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "base64, one byte on": lambda text: base64.b64encode(b"a" + text.encode() + b"z").decode(),
    "base64, two bytes on": lambda text: base64.b64encode(b"ab" + text.encode() + b"yz").decode(),
    "base64 for URLs": lambda text: base64.urlsafe_b64encode(text.encode()).decode(),
    "base64 in JSON with slashes": lambda text: base64.b64encode(text.encode()).decode().replace("/", "\\/"),
    "base64 in a URL": lambda text: quote(base64.b64encode(text.encode()).decode(), safe=""),
    "hexadecimal": lambda text: text.encode().hex(),
    "as Python shows bytes": lambda text: repr(text.encode())[2:-1],
    "as Python shows text": lambda text: ascii(text)[1:-1],
}
SHOWS_ITS_SHAPE = [name for name in DISGUISES if name != "hexadecimal"]


@pytest.mark.parametrize("name", DISGUISES)
def test_a_known_value_is_hidden_in_every_disguise(name: str) -> None:
    said = DISGUISES[name](VALUE)
    out = shown(f"before {said} after\n".encode(), (VALUE.encode(),))
    assert out.startswith(b"before ")
    assert out.endswith(b" after\n")
    rest = re.sub(rb"\x1b\[[0-9;]*m|\\+u001b\[[0-9;]*m|\x1b\]8;;[^\x07\x1b]*(?:\x07|\x1b\\)", b"", out[7:-7])
    assert MARK in rest
    assert len(rest.replace(MARK, b"")) <= 8, rest  # the edge letters of base64 tell less than a byte each


@pytest.mark.parametrize("shape", WORDS, ids=[shape.id for shape in WORDS])
def test_a_shape_is_hidden_in_every_disguise(shape: Shape) -> None:
    value = sample(shape).decode()
    for name in SHOWS_ITS_SHAPE:
        said = DISGUISES[name](value)
        out = shown(f"before {said} after\n".encode())
        assert MARK in out, name
        assert said.encode() not in out
        assert value.encode()[8:] not in decode(out).text


@pytest.mark.parametrize(
    "before", ["", "\x1b[0m", "\x1b[31m", "\\u001b[31m", "\\n", "\\\\n", "C:\\", "%", "="]
)
@pytest.mark.parametrize("value", [VALUE, "nothing-special", "u0041-value", "41abcdef", "\\begins-so"])
def test_what_stands_directly_before_a_value_does_not_save_it(before: str, value: str) -> None:
    for said in (value, in_json(value), quote(value, safe="")):
        out = shown(f"{before}{said} after".encode(), (value.encode(),))
        assert out.replace(b"\\", b"") == f"{before}{REDACTED} after".encode().replace(b"\\", b"")


def test_every_split_gives_the_same() -> None:
    secret = VALUE.encode()
    token = sample(next(shape for shape in SHAPES if shape.id == "github-token")).decode()
    text = (
        f"a {in_json(VALUE, 2)} {COLOUR}{token}\r\nhttps://user:pass@host/ {coloured(token)}\nBearer {token}"
    )
    data = text.encode()
    whole = shown(data, (secret,))
    assert whole.count(MARK) == 5
    for at in range(len(data) + 1):
        assert shown(data, (secret,), (at,)) == whole
    assert shown(data, (secret,), tuple(range(len(data)))) == whole


def test_every_split_of_a_private_key_gives_the_same_and_what_follows_is_shown() -> None:
    key = pem("ec")
    data = b"first\n" + key + b"second\nagain: " + json.dumps(key.decode()).encode() + b" third\n"
    whole = shown(data)
    assert whole == b'first\n[redacted]\nsecond\nagain: "[redacted]\\n" third\n'
    for at in range(len(data) + 1):
        assert shown(data, splits=(at,)) == whole


def test_a_private_key_without_an_end_hides_no_more_than_the_longest_key() -> None:
    lines = b"x" * 99 + b"\n"
    out = shown(b"-----BEGIN PRIVATE KEY-----\n" + lines * 300)
    assert out.startswith(MARK)
    assert len(lines) * 300 - MAX_CREDENTIAL - 200 < len(out) < len(lines) * 300


@pytest.mark.parametrize("cut", ["\x1b[", "\x1b[ ", "\x1b[0;1 ", "\x1b"])
def test_a_cut_terminal_code_that_takes_the_backslash_of_an_escape(cut: str) -> None:
    """A terminal shows no credential then; whoever reads the log without one does."""
    token = sample(next(shape for shape in SHAPES if shape.id == "github-token")).decode()
    for value in (VALUE, token):
        spelt = "".join(f"\\u{ord(char):04x}" for char in value)
        out = shown(f"{cut}{spelt} more".encode(), (VALUE.encode(),))
        assert MARK in out
        assert spelt[-60:].encode() not in out


SECRETS = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), min_size=8, max_size=40).map(
    lambda text: "k" + text.strip() + "-value"
)
PLAIN = st.text(" abcdefghijk.,;\n\r{}[]\x1b", max_size=60)


@settings(max_examples=300, deadline=None)
@given(
    value=SECRETS,
    name=st.sampled_from(sorted(DISGUISES)),
    around=st.tuples(PLAIN, PLAIN),
    splits=st.lists(st.integers(0, 4000), max_size=8),
)
def test_no_known_value_survives_in_any_disguise_however_split(
    value: str, name: str, around: tuple[str, str], splits: list[int]
) -> None:
    said = DISGUISES[name](value)
    data = f"{around[0]} {said} {around[1]}".encode()
    out = shown(data, (value.encode(),), tuple(splits))
    assert out == shown(data, (value.encode(),))
    assert MARK in out
    for spelt in DISGUISES.values():
        assert spelt(value).encode() not in out
    assert value.encode() not in decode(out).text


@settings(max_examples=200, deadline=None)
@given(
    parts=st.lists(
        st.one_of(
            st.binary(max_size=40),
            st.sampled_from(WORDS).map(sample),
            st.sampled_from(
                [b"\n", b"\r\n", b"://u:p@", b"bearer ", b"\\", b"%", b"\x1b[", b"-----END X-----"]
            ),
            st.just(pem("ec")),
        ),
        max_size=8,
    ),
    splits=st.lists(st.integers(0, 20_000), max_size=6),
)
def test_any_split_of_anything_gives_the_same_and_a_second_pass_changes_nothing(
    parts: list[bytes], splits: list[int]
) -> None:
    data = b"".join(parts)
    once = shown(data, (b"known value",), tuple(splits))
    assert once == shown(data, (b"known value",))
    assert shown(once, (b"known value",)) == once


@settings(max_examples=200, deadline=None)
@given(st.text(st.characters(codec="utf-8"), max_size=400), st.lists(st.integers(0, 2000), max_size=5))
def test_what_is_no_secret_is_unchanged(text: str, splits: list[int]) -> None:
    if not re.search(r"[A-Za-z0-9_\-./+=~%\\]{16}|://|KEY|\x1b", text):
        assert shown(text.encode(), (b"known value",), tuple(splits)) == text.encode()


def test_ordinary_output_is_unchanged() -> None:
    lines = [
        "drwxr-xr-x 2 root root 4096 Nov 29 20:00 /usr/lib/python3/dist-packages/setuptools",
        "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        '{"type": "text", "text": "line\\nline \\u00e9 \\"quoted\\" C:\\\\temp 100%25"}',
        "\x1b[32m✓\x1b[0m tests/unit/images/test_redaction.py::test_ordinary_output 100%",
        "https://example.test/a%20path?x=1&y=2#z user@host.test",
        base64.b64encode(b"an ordinary text, longer than any of the shapes needs").decode(),
    ]
    data = "\r\n".join(lines).encode()
    assert shown(data, (b"known value",)) == data


def test_an_endless_line_is_given_in_parts_and_no_value_falls_between_them() -> None:
    secret = b"the known value"
    token = sample(next(shape for shape in SHAPES if shape.id == "slack-token"))
    data = (b"x" * 1013 + b" " + secret + b" " + token + b" ") * 300
    redactor = Redactor([Secret(secret)])
    out, fed = bytearray(), 0
    for at in range(0, len(data), 4096):
        out += redactor.feed(data[at : at + 4096])
        fed += len(data[at : at + 4096])
        assert fed - len(out) - out.count(MARK) * 60 <= LONGEST_LINE
    out += redactor.close()
    assert bytes(out) == (b"x" * 1013 + b" " + MARK + b" " + MARK + b" ") * 300
    assert shown(data, (secret,), (70_001, 131_072, 200_000)) == bytes(out)


def test_a_line_exactly_as_long_as_is_held_back() -> None:
    for length in (LONGEST_LINE - 1, LONGEST_LINE, LONGEST_LINE + 1):
        data = b"y" * (length - 1) + b"\nnext"
        assert shown(data) == data
        assert shown(data, splits=(length - 1, length, length + 1)) == data


def test_a_prompt_is_shown_by_a_flush_and_a_half_credential_is_not() -> None:
    token = sample(next(shape for shape in SHAPES if shape.id == "github-token"))
    redactor = Redactor()
    assert redactor.feed(b"Bearer " + token[:20]) == b""
    assert redactor.flush() == b"Bearer "
    assert redactor.flush() == b""
    assert redactor.feed(token[20:] + b" ok\n") == MARK + b" ok\n"
    assert redactor.feed(b"-----BEGIN ") + redactor.flush() == b""
    assert redactor.close() == b"-----BEGIN "


def test_after_a_flush_a_header_is_still_one() -> None:
    redactor = Redactor()
    assert redactor.feed(b"Authorization: ") + redactor.flush() == b"Authorization: "
    assert redactor.feed(b"0123456789abcdefghij\n") == MARK + b"\n"


def test_a_value_of_several_lines_is_hidden_line_by_line() -> None:
    secret = b"machine example.test\r\n  password hunter2-hunter2\r\n}\n"
    out = shown(b"> machine example.test\n> password hunter2-hunter2\n> }\n", (secret,))
    assert out == b"> [redacted]\n> [redacted]\n> }\n"


def test_a_long_value_is_hidden_whole() -> None:
    secret = bytes(33 + at * 7 % 90 for at in range(1500))
    assert shown(b"a " + secret + b" b", (secret,)) == b"a " + MARK + b" b"


@pytest.mark.parametrize("short", [b"", b"12345", b"a\nb\nc\n", b"      1"])
def test_a_value_that_is_too_short_to_hide_is_refused_and_not_shown(short: bytes) -> None:
    with pytest.raises(UsageError) as caught:
        Redactor([Secret(short)])
    assert short.decode().strip() not in str(caught.value) or not short.strip()


def test_words_of_a_file_are_hidden_in_a_message() -> None:
    npmrc = Secret(b"//host.test/:_authToken=dummy-value-1\na=b\n")
    assert hide('got "dummy-value-1" \\"dummy-value-1\\"', (npmrc,)) == f'got "{REDACTED}" \\"{REDACTED}\\"'


def test_the_table_fits_what_is_looked_at_first() -> None:
    """Only runs of these letters are compared with the shapes: a new shape must not fall outside."""
    for shape in WORDS:
        value = sample(shape)
        assert not set(value) - set(_TOKEN), shape.id
        assert len(value) >= _LEAST_TOKEN
        assert len(base64.b64encode(value)) >= LEAST_BASE64


@pytest.mark.parametrize(
    "flood",
    [
        b"\\" * 60_000,
        b'\\\\"' * 20_000,
        b"%25" * 20_000,
        b"\x1b[" * 30_000,
        b"\x1b]" * 30_000,
        b"://" * 20_000,
        b"eyJhbGciOi" * 6_000,
        b"-----BEGIN PRIVATE KEY-----" * 2_000,
        b"known valu" * 6_000,
        b"A" * 60_000,
        b"[redacted]" * 6_000,
    ],
    ids=lambda flood: repr(flood[:8]),
)
def test_no_text_takes_long(flood: bytes) -> None:
    began = time.process_time()
    shown(flood * 3, (b"known value", b'\\"\\quoted\\"\\', b"AAAAAAAAAA", b"redacted"))
    assert time.process_time() - began < 5


def test_memory_is_bounded() -> None:
    redactor = Redactor([Secret(b"known value")])
    redactor.feed(b"warm " * 100_000)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(100):
        redactor.feed(b"no newline at all, " * 3_400)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 3 * 1024  # kB; 6 MB went through


@pytest.mark.parametrize("value", [b"redacted", b"[redacted]", b"[redacted", b"a [redacted] b"])
def test_a_value_made_of_the_mark_itself_is_hidden_once(value: bytes) -> None:
    once = shown(b"x " + value + b" y", (value,))
    assert once == b"x [redacted] y"
    assert shown(once, (value,)) == once
