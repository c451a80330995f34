"""Every shape of the table is found in every encoding, and its clean twin is silent."""

from __future__ import annotations

import base64
import random

import pytest

from images.credentials import SHAPES, Confirm, Shape
from provenance.scan.engine import Encoding, Engine, EngineStopped
from provenance.scan.judge import judge
from tests.fakes.credentials import der, near_miss, pem, sample

IDS = [shape.id for shape in SHAPES]
TEXT_SHAPES = [shape for shape in SHAPES if shape.confirm is not Confirm.DER]

# The prefixes of the others follow from the key or header that is made.
FREE_SHAPES = [shape for shape in SHAPES if shape.confirm in (Confirm.LETTERS, Confirm.CRC32)]


def noise_of(seed: int) -> bytes:
    return random.Random(seed).randbytes(200)  # noqa: S311  (noise)


def rules(engine: Engine, data: bytes) -> set[tuple[str, Encoding]]:
    found = (judge(data, candidate) for candidate in engine.finder().find(data))
    return {(hit.rule, hit.encoding) for hit in found if hit}


@pytest.mark.parametrize("shape", SHAPES, ids=IDS)
@pytest.mark.parametrize("seed", range(5))
def test_a_sample_is_found_between_noise(engine: Engine, shape: Shape, seed: int) -> None:
    noise = noise_of(seed)
    assert (shape.id, Encoding.PLAIN) in rules(engine, noise + b"\0" + sample(shape, seed) + b"\0" + noise)


@pytest.mark.parametrize("shape", FREE_SHAPES, ids=[shape.id for shape in FREE_SHAPES])
def test_every_prefix_of_a_shape_is_found_at_the_start_and_at_the_end(engine: Engine, shape: Shape) -> None:
    for prefix in shape.prefixes:
        assert (shape.id, Encoding.PLAIN) in rules(engine, sample(shape, 1, prefix)), prefix


@pytest.mark.parametrize("shape", SHAPES, ids=IDS)
@pytest.mark.parametrize(
    "around", [b'"%s"', b"%s;", b"\0%s\0", b"x=%s\n", b"\\n%s\\n", b"%%3D%s%%26", b"'%s',"]
)
def test_no_edge_hides_it(engine: Engine, shape: Shape, around: bytes) -> None:
    assert (shape.id, Encoding.PLAIN) in rules(engine, b"  " + around % sample(shape, 2))


@pytest.mark.parametrize("shape", SHAPES, ids=IDS)
@pytest.mark.parametrize("seed", range(3))
def test_the_clean_twin_is_silent(engine: Engine, shape: Shape, seed: int) -> None:
    noise = noise_of(seed)
    assert shape.id not in {rule for rule, _ in rules(engine, noise + near_miss(shape, seed) + noise)}


@pytest.mark.parametrize("shape", TEXT_SHAPES, ids=[shape.id for shape in TEXT_SHAPES])
@pytest.mark.parametrize("codec", ["utf-16-le", "utf-16-be"])
def test_utf_16_is_read(engine: Engine, shape: Shape, codec: str) -> None:
    text = f"value={sample(shape, 3).decode()}\n".encode(codec)
    assert (shape.id, Encoding.UTF16) in rules(engine, b"\xff\xfe" + text)


LONG = [shape for shape in TEXT_SHAPES if len(min(shape.prefixes, key=len)) >= 7]


@pytest.mark.parametrize("shape", LONG, ids=[shape.id for shape in LONG])
@pytest.mark.parametrize("lead", [b"", b"u", b"us", b"user:"])
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode, base64.encodebytes])
def test_base64_is_read_at_every_alignment(engine: Engine, shape: Shape, lead: bytes, encode: object) -> None:
    encoded = encode(lead + b" " * bool(lead) + sample(shape, 4) + b"\n")  # type: ignore[operator]
    assert (shape.id, Encoding.BASE64) in rules(engine, b'{"v":"' + encoded + b'"}')


@pytest.mark.parametrize("kind", ["rsa", "ec", "ed25519"])
@pytest.mark.parametrize(
    "spell",
    [
        lambda text: text,
        lambda text: text.replace(b"\n", b"\\n"),
        lambda text: text.replace(b"\n", b"\\\\n"),
        lambda text: text.replace(b"\n", b"\r\n"),
        lambda text: text.replace(b"\n", b" "),
        lambda text: text.replace(b"\n", b"\n      "),
        lambda text: text.replace(b"\n", b""),
        lambda text: text.replace(b"/", b"\\/").replace(b"\n", b"\\n"),
        lambda text: text.replace(b"\n", b'\\n" +\n  "'),
        lambda text: text.partition(b"-----END")[0],
    ],
    ids=["plain", "json", "json-twice", "crlf", "one-line", "yaml", "joined", "slashes", "source", "no-end"],
)
def test_a_private_key_is_known_by_its_der_however_it_is_spelt(
    engine: Engine, kind: str, spell: object
) -> None:
    data = b"key: " + spell(pem(kind)) + b"\0"  # type: ignore[operator]
    found = [judge(data, candidate) for candidate in engine.finder().find(data)]
    values = [hit.value for hit in found if hit and hit.rule == "private-key"]
    assert values == [der(kind)]


@pytest.mark.parametrize("kind", ["rsa", "ec", "ed25519"])
def test_a_der_key_that_is_cut_short_is_none(engine: Engine, kind: str) -> None:
    assert rules(engine, noise_of(5) + der(kind)[:-5]) == set()


def test_words_that_only_speak_of_keys_are_silent(engine: Engine) -> None:
    text = (
        b'if (x.startsWith("-----BEGIN PRIVATE KEY-----")) throw "-----BEGIN RSA PRIVATE KEY-----\\n...";'
        b"-----BEGIN PRIVATE KEY-----\nMIIE...\n-----END PRIVATE KEY----- task-runner-with-a-very-long-name "
        b"AKIAIOSFODNN7EXAMPLE ghp_abcdefghijklmnopqrstuvwxyz0123456789 eyJhbGciOiJIUzI1NiJ9.e30.x "
        b"sk-ant-api03-" + b"x" * 60
    )
    assert rules(engine, text) == set()


def test_a_confirmed_credential_does_not_show_itself(engine: Engine) -> None:
    data = sample(SHAPES[0])
    hit = judge(data, engine.finder().find(data)[0])
    assert hit is not None
    assert data.decode() not in repr(hit)


ENCRYPTED = (
    b"-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n"
    b"DEK-Info: AES-128-CBC,00112233445566778899AABBCCDDEEFF\n\n"
    + base64.encodebytes(noise_of(7))
    + b"-----END RSA PRIVATE KEY-----\n"
)
PGP = (
    b"-----BEGIN PGP PRIVATE KEY BLOCK-----\nVersion: 1\n\n"
    + base64.encodebytes(noise_of(8))
    + b"=abcd\n-----END PGP PRIVATE KEY BLOCK-----\n"
)
OPENSSH = (
    b"-----BEGIN OPENSSH PRIVATE KEY-----\n"
    + base64.encodebytes(b"openssh-key-v1\0" + noise_of(9))
    + b"-----END OPENSSH PRIVATE KEY-----\n"
)


@pytest.mark.parametrize("data", [ENCRYPTED, PGP, OPENSSH], ids=["encrypted", "pgp", "openssh"])
def test_keys_in_other_formats(engine: Engine, data: bytes) -> None:
    assert ("private-key", Encoding.PLAIN) in rules(engine, data)


def test_more_candidates_than_are_judged_stop_the_engine(engine: Engine) -> None:
    with pytest.raises(EngineStopped, match="more than 3"):
        engine.finder(most=3).find(sample(SHAPES[0]) * 10)
    assert len(engine.finder(most=30).find(sample(SHAPES[0]) * 10)) == 10


def test_a_fault_in_the_callback_is_not_swallowed(engine: Engine) -> None:
    finder = engine.finder()
    finder._hits = None  # type: ignore[assignment]
    with pytest.raises(AttributeError):
        finder._scanner.scan(sample(SHAPES[0]))
