"""What is planted: each a credential in one place and one spelling, with a twin that holds none."""

from __future__ import annotations

import base64
import json
import random
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote

from images.credential_places import PATH_RULES, SECRET_NAMES, Look, PathRule
from images.credentials import SHAPES, Shape
from tests.fakes.credentials import Entry, near_miss, pem, sample, shape_named
from tests.fakes.packing import PACKS

Spell = Callable[[bytes], bytes]


@dataclass(frozen=True)
class Plant:
    """``layers``: which entries go into which layer. ``shows``: what a finding's place must hold.

    The other fields go into the configuration, the manifest and the documents beside the image.
    """

    group: str
    id: str
    layers: tuple[tuple[Entry, ...], ...] = ()
    shows: str = ""
    config: dict[str, object] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    documents: tuple[tuple[str, bytes], ...] = ()


def numbered(form: str) -> Spell:
    return lambda value: b"".join((form % byte).encode() for byte in value)


def special(form: str) -> Spell:
    return lambda value: b"".join(
        bytes((byte,)) if bytes((byte,)).isalnum() else (form % byte).encode() for byte in value
    )


def aligned(lead: int, encode: Callable[[bytes], bytes] = base64.b64encode) -> Spell:
    return lambda value: encode(b"\xfb\xef\xbe"[:lead] + value + b"\xff")


def wrapped(width: int, end: bytes, lead: int) -> Spell:
    def spell(value: bytes) -> bytes:
        text = base64.b64encode(b" " * lead + value + b" " * 90)
        return b"x\n" + end.join(text[at : at + width] for at in range(0, len(text), width)) + end

    return spell


SPELLINGS: Final[dict[str, Spell]] = {
    **{f"base64-{lead}": aligned(lead) for lead in range(3)},
    **{f"base64url-{lead}": aligned(lead, base64.urlsafe_b64encode) for lead in range(3)},
    **{f"mime-{lead}": wrapped(76, b"\r\n", lead) for lead in (0, 30, 40, 45, 50, 52, 54, 56)},
    **{f"lines-64-{lead}": wrapped(64, b"\n", lead) for lead in (1, 33, 40, 42, 44, 46, 47)},
    "base64-in-json": lambda value: json.dumps(base64.b64encode(value).decode()).replace("/", "\\/").encode(),
    "base64-in-url": lambda value: quote(base64.b64encode(value).decode(), safe="").encode(),
    "utf-16-le": lambda value: value.decode().encode("utf-16-le"),
    "utf-16-be": lambda value: b"\0" + value.decode().encode("utf-16-be"),
    "hex": lambda value: value.hex().encode(),
    "hex-upper": lambda value: value.hex().upper().encode(),
    "percent": special("%%%02X"),
    "percent-lower": special("%%%02x"),
    "percent-all": numbered("%%%02X"),
    "unicode": special("\\u%04x"),
    "unicode-all": numbered("\\u%04X"),
    "backslash-x": special("\\x%02x"),
    "backslash-x-all": numbered("\\x%02x"),
    "json-in-json": lambda value: json.dumps(json.dumps({"k": value.decode()})).encode(),
    "nul-before-and-after": lambda value: b"\0" + value + b"\0",
    "assigned": lambda value: b"key=" + value + b";",
    "in-a-list": lambda value: b"['" + value + b"','']",
}
# Of these the beginning alone is literal enough, and their letters need no escape to be what they are.
SPELLED: Final = (
    "anthropic-oauth",
    "openai-api-key",
    "github-token",
    "npm-token",
    "stripe-key",
    "slack-token",
)
VENDORED: Final = (
    "usr/lib/node_modules/x/dist/index.js",
    "usr/lib/node_modules/x/key.pem",
    "app/logo.svg",
    "app/package-lock.json",
    "app/pnpm-lock.yaml",
    "usr/lib/python3/dist-packages/x/__pycache__/a.cpython-311.pyc",
    "vendor/x/y.go",
    "usr/share/fonts/a.woff2",
    "usr/share/locale/de/LC_MESSAGES/a.mo",
    "app/dist/a.js.map",
    "test/fixtures/example.txt",
    "var/lib/dpkg/info/x.list",
)


def plants(seed: int, *, twin: bool) -> Iterator[Plant]:
    """All of them; with ``twin`` the same places hold what only looks like it."""
    make = near_miss if twin else sample
    yield from _plain(seed, make)
    yield from _spelled(seed, make)
    yield from _vendored(seed, make)
    yield from _binary(seed, make)
    yield from _packed(seed, make)
    yield from _paths(seed, twin=twin)
    yield from _names(seed, twin=twin)
    yield from _hidden(seed, make)
    yield from _deleted(seed, make)
    yield from _metadata(seed, twin=twin)


Make = Callable[[Shape, int], bytes]


def _at(group: str, id: str, path: str, content: bytes) -> Plant:
    place = f"srv/{group}-{id}/{path}"
    return Plant(group, id, ((Entry(place, content),),), place)


def _plain(seed: int, make: Make) -> Iterator[Plant]:
    for shape in SHAPES:
        yield _at("plain", shape.id, "README.md", b"it is `" + make(shape, seed) + b"`, keep it\n")


def _spelled(seed: int, make: Make) -> Iterator[Plant]:
    for name in SPELLED:
        value = make(shape_named(name), seed)
        for spelling, spell in SPELLINGS.items():
            yield _at("encoded", f"{name}-{spelling}", "notes", b"x: " + spell(value) + b"\n")
    key = pem("rsa") if make is sample else near_miss(shape_named("private-key"), seed)
    for ends, text in (("n", b"\\n"), ("nn", b"\\\\n"), ("r", b"\\r\\n")):
        yield _at("encoded", f"pem-{ends}", "settings.json", b'{"k":"' + key.replace(b"\n", text) + b'"}')


def _vendored(seed: int, make: Make) -> Iterator[Plant]:
    for number, path in enumerate(VENDORED):
        value = make(shape_named("openai-api-key"), seed + number)
        yield _at("vendored", str(number), path, b"// " + value + b"\n")


def _binary(seed: int, make: Make) -> Iterator[Plant]:
    dice = random.Random(f"binary/{seed}")  # noqa: S311  (noise)
    for number, name in enumerate(("anthropic-api-key", "stripe-key", "github-token", "private-key-der")):
        for around in (b"\0%s\0", b'"%s"', b"\x01%s\xff"):
            body = around.replace(b"%s", make(shape_named(name), seed + number))
            noise = dice.randbytes(70_000)
            yield _at("binary", f"{number}-{around[:1].hex()}", "tool", b"\x7fELF" + noise + body + noise)


def _packed(seed: int, make: Make) -> Iterator[Plant]:
    for id, (path, pack) in PACKS.items():
        yield _at("packed", id, path, pack(b"a line\n" + make(shape_named("anthropic-oauth"), seed) + b"\n"))


def _paths(seed: int, *, twin: bool) -> Iterator[Plant]:
    for rule in PATH_RULES:
        for number, glob in enumerate(rule.globs):
            path = glob.replace("**/", "", 1) if glob.startswith("**/") else glob
            path = path.replace("/**", "/x/y").replace("*", f"x{number}")
            content = _inert(rule) if twin else _alive(rule, f"swordfish-{seed}-9")
            if glob.startswith("**/"):
                yield _at("path", f"{rule.id}-{number}", path, content)
            else:
                yield Plant("path", f"{rule.id}-{number}", ((Entry(path, content),),), path)


def _alive(rule: PathRule, value: str) -> bytes:
    key = rule.keys[0] if rule.keys else "k"
    return {
        Look.PRESENT: value,
        Look.JSON_TOKENS: json.dumps({"a": {key: value}}),
        Look.JSON_NAMES: json.dumps({"env": {"API_TOKEN": value}}),
        Look.TEXT_NAMES: f"export API_TOKEN={value}\n",
        Look.USERINFO: f"url https://me:{value}@host.invalid/x\n",
        Look.NPMRC: f"//r.invalid/:_authToken={value}\n",
        Look.NETRC: f"machine r.invalid login me password {value}\n",
        Look.INI: f"[x]\n{key} = {value}\n",
        Look.GIT_CONFIG: f'[http "x"]\n\textraheader = AUTHORIZATION: basic {value}\n',
        Look.KEY_STORE: "",
    }[rule.look].encode() or b"\xfe\xed\xfe\xed" + value.encode()


def _inert(rule: PathRule) -> bytes:
    key = rule.keys[0] if rule.keys else "k"
    return {
        Look.PRESENT: "",
        Look.JSON_TOKENS: json.dumps({"a": {key: "${VALUE}"}}),
        Look.JSON_NAMES: json.dumps({"env": {"API_TOKEN": "${API_TOKEN}"}, "theme": "dark"}),
        Look.TEXT_NAMES: "export API_TOKEN=${VALUE} MAX_OUTPUT_TOKENS=32000\n",
        Look.USERINFO: "url https://host.invalid/x\n",
        Look.NPMRC: "//r.invalid/:_authToken=${NPM_TOKEN}\n",
        Look.NETRC: "machine r.invalid login me\n",
        Look.INI: f"[x]\n{key} = ${{VALUE}}\n",
        Look.GIT_CONFIG: '[remote "x"]\n\turl = ssh://git@host.invalid/x\n',
        Look.KEY_STORE: "no store",
    }[rule.look].encode()


def _names(seed: int, *, twin: bool) -> Iterator[Plant]:
    for name in sorted(SECRET_NAMES):
        value = "${OTHER}" if twin else f"dull-{seed}"
        yield _at("names", name, ".env", f"{name}={value}\n".encode())


def _hidden(seed: int, make: Make) -> Iterator[Plant]:
    value = make(shape_named("npm-token"), seed).decode()
    long = "d" * 90 + "/" + "e" * 60
    yield Plant("hidden", "file-name", ((Entry(f"srv/hidden-n/{value}"),),), "srv/hidden-n")
    yield Plant("hidden", "long-name", ((Entry(f"srv/hidden-l/{long}/{value}"),),), "header")
    link = Entry("srv/hidden-s", kind=tarfile.SYMTYPE, link=f"/run/{value}")
    yield Plant("hidden", "link-target", ((link,),), "srv/hidden-s")
    pax = Entry("srv/hidden-x", b"x", pax=(("SCHILY.xattr.user.note", value),))
    yield Plant("hidden", "xattr", ((pax,),), "header")
    yield Plant(
        "hidden", "folder-name", ((Entry(f"srv/hidden-f/{value}/", kind=tarfile.DIRTYPE),),), "srv/hidden-f"
    )


def _deleted(seed: int, make: Make) -> Iterator[Plant]:
    value = make(shape_named("gitlab-token"), seed)
    first = (Entry("srv/deleted/a", value), Entry("srv/deleted/b", value), Entry("srv/gone/c", value))
    then = (Entry("srv/deleted/.wh.a"), Entry("srv/deleted/b", b"replaced"), Entry("srv/gone/.wh..wh..opq"))
    yield Plant("deleted", "removed", (first, then), "srv/deleted/a")
    yield Plant("deleted", "overwritten", (), "srv/deleted/b")
    yield Plant("deleted", "opaque-folder", (), "srv/gone/c")


def _metadata(seed: int, *, twin: bool) -> Iterator[Plant]:
    value = "${VALUE}" if twin else f"swordfish-{seed}-9"
    login = "https://git.invalid/x" if twin else f"https://ci:{value}@git.invalid/x"
    args = {"build-arg:REGISTRY_TOKEN": value}
    yield Plant("metadata", "environment", config={"Env": [f"TWINE_PASSWORD={value}"]}, shows="Env")
    yield Plant("metadata", "proxy", config={"Env": [f"X_PROXY={login}"]}, shows="Env")
    yield Plant("metadata", "label", config={"Labels": {"vcs-url": login}}, shows="Labels")
    yield Plant("metadata", "annotation", annotations={"image.source": login}, shows="annotations")
    statements: dict[str, object] = {
        "provenance-v0.2": {"invocation": {"parameters": {"args": args}}},
        "provenance-v1": {"buildDefinition": {"externalParameters": {"request": {"args": args}}}},
        "source-in-provenance": {"buildDefinition": {"externalParameters": {"vcs:source": login}}},
        "sbom-formulation": {"formulation": [{"url": login}]},
        "sbom-environment": {"descriptor": {"env": [f"SYFT_ATTEST_PASSWORD={value}"]}},
        "sbom-properties": {"properties": [{"name": "DB_PASSWORD", "value": value}]},
    }
    for id, predicate in statements.items():
        raw = json.dumps({"_type": "https://in-toto.io/Statement/v1", "predicate": predicate}).encode()
        envelope = json.dumps({"dsseEnvelope": {"payload": base64.b64encode(raw).decode()}}).encode()
        yield Plant("metadata", id, documents=((id, raw),), shows=id)
        yield Plant("metadata", f"{id}-signed", documents=((f"{id}-signed", envelope),), shows=f"{id}-signed")
