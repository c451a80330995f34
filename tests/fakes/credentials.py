"""Seeded dummies of every credential shape, and the tars and layouts that they are planted in."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import random
import re
import tarfile
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from images.credentials import SHAPES, Confirm, Secret, Shape
from images.digests import Digest
from images.oci import MEDIA_CONFIG, MEDIA_LAYER_GZIP, MEDIA_LAYER_TAR, MEDIA_MANIFEST, OciImage
from provenance.layout import open_image
from provenance.layout_writing import add_manifest, init_layout, write_blob

KEY = Secret(b"a test key of 32 bytes, not real")
_BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_TAILS = {
    "openai-legacy-key": (_BASE62, 20),
    "sendgrid-key": (_BASE62, 43),
    "airtable-token": ("0123456789abcdef", 64),
}


def sample(shape: Shape, seed: int = 0, prefix: bytes | None = None) -> bytes:
    """One dummy of the shape, of the least length that counts."""
    dice = random.Random(f"{shape.id}/{seed}")  # noqa: S311  (dummies, made again from their seed)
    start = shape.prefixes[seed % len(shape.prefixes)] if prefix is None else prefix
    made: dict[Confirm, Callable[[], bytes]] = {
        Confirm.CRC32: lambda: crc_token(start, dice),
        Confirm.JWT: lambda: jwt(dice),
        Confirm.PEM: lambda: pem(dice.choice(("rsa", "ec", "ed25519"))),
        Confirm.DER: lambda: der(dice.choice(("rsa", "ec", "ed25519"))),
        Confirm.BECH32: lambda: bech32(start, dice),
    }
    if shape.confirm in made:
        return made[shape.confirm]()
    if shape.id == "putty-private-key":
        return start + b"ssh-ed25519\r\nEncryption: none"
    letters = _letters(shape.alphabet)
    body = start + "".join(dice.choice(letters) for _ in range(shape.least)).encode() + shape.mark
    if shape.id in _TAILS:
        alphabet, count = _TAILS[shape.id]
        body += "".join(dice.choice(alphabet) for _ in range(count)).encode()
    return body


def near_miss(shape: Shape, seed: int = 0) -> bytes:
    """The same with the one thing wrong that makes it no credential."""
    good = sample(shape, seed)
    if shape.confirm is Confirm.BECH32:
        return good[:-1] + (b"q" if good[-1:] in b"pP" else b"p" if good.islower() else b"Q")
    if shape.confirm is Confirm.CRC32:
        return good[:-1] + (b"A" if good[-1:] != b"A" else b"B")
    if shape.confirm is Confirm.JWT:
        return good.replace(good.split(b".")[1], b"eyJub3QganNvbg")
    if shape.confirm is Confirm.PEM:
        return (
            b"-----BEGIN PRIVATE KEY-----\n"
            + base64.b64encode(bytes(range(90)))
            + b"\n-----END PRIVATE KEY-----"
        )
    if shape.confirm is Confirm.DER:
        last = 1 if good[1] < 0x80 else 1 + (good[1] & 0x7F)
        return good[:last] + bytes([good[last] ^ 1]) + good[last + 1 :]
    start = shape.prefixes[seed % len(shape.prefixes)]
    return start + _letters(shape.alphabet)[:1].encode() * shape.least + shape.mark


def _letters(alphabet: str) -> str:
    """The inside of a character class, spelt out; white space and separators left out of the middle."""
    found = [chr(code) for code in range(33, 127) if re.fullmatch(f"[{alphabet}]", chr(code))]
    return "".join(letter for letter in found if letter not in "=.\\/") or "".join(found)


def crc_token(prefix: bytes, dice: random.Random) -> bytes:
    """A GitHub or npm token whose check sum holds."""
    body = "".join(dice.choice(_BASE62) for _ in range(30))
    number = zlib.crc32(body.encode())
    digits = ""
    for _ in range(6):
        number, rest = divmod(number, 62)
        digits = _BASE62[rest] + digits
    return prefix + body.encode() + digits.encode()


_BECH32 = "qpzry9x8gf2tvdw0s3jn54khce6mua7l"


def bech32(start: bytes, dice: random.Random) -> bytes:
    """32 random bytes and the check sum of BIP 173, in the case of ``start``."""
    human = start[:-1].lower()
    numbers = [dice.randrange(32) for _ in range(51)] + [dice.randrange(2) << 4]
    spread = [byte >> 5 for byte in human] + [0] + [byte & 31 for byte in human]
    remainder = 1
    for number in (*spread, *numbers, *[0] * 6):
        top = remainder >> 25
        remainder = (remainder & 0x1FFFFFF) << 5 ^ number
        for bit, generator in enumerate((0x3B6A57B2, 0x26508E6D, 0x1EA119FA, 0x3D4233DD, 0x2A1462B3)):
            remainder ^= generator if top >> bit & 1 else 0
    remainder ^= 1
    check = [remainder >> 5 * (5 - place) & 31 for place in range(6)]
    data = "".join(_BECH32[number] for number in (*numbers, *check)).encode()
    return start + (data.upper() if start.isupper() else data)


def jwt(dice: random.Random) -> bytes:
    """Header, payload and a signature of random letters."""
    parts = [json.dumps({"alg": "HS256", "typ": "JWT"}), json.dumps({"sub": dice.random(), "aud": "nobody"})]
    text = [base64.urlsafe_b64encode(part.encode()).rstrip(b"=") for part in parts]
    return b".".join([*text, base64.urlsafe_b64encode(dice.randbytes(32)).rstrip(b"=")])


def pem(kind: str) -> bytes:
    """A private key made now, PKCS#8."""
    return _KEYS[kind].private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def der(kind: str) -> bytes:
    """The same as DER."""
    return _KEYS[kind].private_bytes(
        serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


_KEYS: dict[str, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey] = {
    "rsa": rsa.generate_private_key(public_exponent=65537, key_size=2048),
    "ec": ec.generate_private_key(ec.SECP256R1()),
    "ed25519": ed25519.Ed25519PrivateKey.generate(),
}


def shape_named(name: str) -> Shape:
    """From the table."""
    return next(shape for shape in SHAPES if shape.id == name)


def token(seed: int = 0) -> bytes:
    """A dummy of the kind that no other engine knows."""
    return sample(shape_named("anthropic-oauth"), seed)


@dataclass(frozen=True)
class Entry:
    """One member: a file unless ``kind`` says otherwise."""

    path: str
    content: bytes = b""
    kind: bytes = tarfile.REGTYPE
    link: str = ""
    pax: tuple[tuple[str, str], ...] = ()


def make_tar(entries: Iterable[Entry], *, format: int = tarfile.PAX_FORMAT) -> bytes:
    """A tar in the order given."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format) as tar:
        for entry in entries:
            info = tarfile.TarInfo(entry.path)
            info.type, info.linkname, info.size = entry.kind, entry.link, len(entry.content)
            info.pax_headers = dict(entry.pax)
            tar.addfile(info, io.BytesIO(entry.content))
    return out.getvalue()


def make_layout(
    root: Path,
    layers: Iterable[bytes],
    *,
    config: dict[str, object] | None = None,
    annotations: dict[str, str] | None = None,
    compress: bool = False,
) -> OciImage:
    """An image of these tars in a new layout below ``root``, opened and re-hashed."""
    layout = root / "layout"
    init_layout(layout)
    tars = list(layers)
    stored = [zlib_gzip(tar) if compress else tar for tar in tars]
    media_type = MEDIA_LAYER_GZIP if compress else MEDIA_LAYER_TAR
    blobs = [write_blob(layout, raw, media_type).to_json() for raw in stored]
    settings: dict[str, object] = {"architecture": "amd64", "os": "linux", "config": {}}
    settings |= config or {}
    settings["rootfs"] = {
        "type": "layers",
        "diff_ids": ["sha256:" + hashlib.sha256(tar).hexdigest() for tar in tars],
    }
    config_blob = write_blob(layout, json.dumps(settings).encode(), MEDIA_CONFIG).to_json()
    manifest = {"schemaVersion": 2, "mediaType": MEDIA_MANIFEST, "config": config_blob, "layers": blobs}
    if annotations:
        manifest["annotations"] = annotations
    found = add_manifest(layout, json.dumps(manifest).encode(), media_type=MEDIA_MANIFEST)
    return open_image(layout, Digest(found.digest))


def zlib_gzip(data: bytes) -> bytes:
    """One plain gzip member."""
    packer = zlib.compressobj(6, zlib.DEFLATED, 31)
    return packer.compress(data) + packer.flush()


def crc_dummy(prefix: str, seed: int = 0) -> bytes:
    """A GitHub or npm dummy by its prefix."""
    return crc_token(prefix.encode(), random.Random(f"{prefix}/{seed}"))  # noqa: S311  (a dummy)
