"""Write docs/reference/scan-rules.md from the tables: python -m tests.docs.scan_rules."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path

from images.credential_places import PATH_RULES, SECRET_NAMES, Look
from images.credentials import RULESET_VERSION, SHAPES, Confirm
from provenance.scan.nested import MAX_DEPTH, MAX_OPENED, MAX_OPENED_BYTES
from provenance.scan.unpack import FREE_BYTES, MAX_PACKED, MAX_PART, MAX_RATIO

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "scan-rules.md"

HEAD = f"""# Scan rules

Ruleset {RULESET_VERSION}. This page is written from the tables in `images/credentials.py`,
`images/credential_places.py` and `provenance/scan/allowlist.json` by `python -m tests.docs.scan_rules`; a
test holds them equal. A report names the ruleset by this number and by a digest over all of these tables.

What is read: every byte of every layer's tar (file contents, names, link targets, extended attributes,
replaced and removed files, what follows the end of the archive), the configuration with its history,
environment and labels, the manifest with its annotations, and the attestations and bundles given with it.
One byte not read makes the result *incomplete*, which is not clean.

Archives and compressed files inside of layers are scanned as the bytes they are, and opened: gzip, xz, lzma,
bzip2, zstd, zip (jar, whl), tar, deb, loose objects of git; {MAX_DEPTH} deep, {MAX_PACKED >> 20} MiB packed
and {MAX_PART >> 30} GiB unpacked each, at most {MAX_RATIO} times what they were packed in beyond
{FREE_BYTES >> 20} MiB, {MAX_OPENED_BYTES >> 30} GiB and {MAX_OPENED} files in a layer. What is inside goes
through the same shapes, paths and names; a place inside has a `!` before it. What cannot be opened (another
format, encrypted, cut short, a wrong check sum, beyond a limit, readers would differ on it) is *opaque*: with
path, reason and hash ([how one is answered for](../how-to/scan-any-image.md)).

A build does not scan a layer again that it found clean before, with the same tables, engine and program: it
hashes the layer's bytes, and the report is the same to the byte
([ADR 41](../adr/0041-a-build-remembers-clean-layers.md)). `builder verify`, `builder scan` and a scan for
values of your own (`--known`) always read everything.

A clean result says: *no match under this ruleset*. It does not say that there is no secret.
"""

CONFIRMED = {
    Confirm.LETTERS: "prefix and alphabet; not a filler such as `EXAMPLE`",
    Confirm.CRC32: "the check sum in the last six letters holds",
    Confirm.JWT: "header and payload are JSON objects, the header names an algorithm",
    Confirm.PEM: "the base64 holds a private key's ASN.1, OpenSSH's or PGP's format, or is encrypted",
    Confirm.BECH32: "the check sum of BIP 173 holds",
    Confirm.DER: "the bytes around are a private key's ASN.1",
}

LOOKED = {
    Look.PRESENT: "that it is there and not empty",
    Look.JSON_TOKENS: "a literal under",
    Look.JSON_NAMES: "names and URLs in JSON",
    Look.TEXT_NAMES: "names and URLs in text",
    Look.USERINFO: "a password in an URL",
    Look.NPMRC: "a literal `_authToken`, `_auth`, `_password`",
    Look.NETRC: "a password",
    Look.INI: "a literal under",
    Look.GIT_CONFIG: "a password in an URL, `extraheader`, a token",
    Look.KEY_STORE: "PKCS#12, JKS or KeePass by content",
}


def page() -> str:
    """The whole page."""
    return "\n".join([HEAD, *_shapes(), *_paths(), *_names(), *_allowed(), ""])


def _shapes() -> list[str]:
    rows = [
        "## Shapes",
        "",
        "Searched plain, in UTF-16, in hexadecimal, in base64 and base64url at all three alignments (with",
        "a line's end anywhere in it), and with all characters, or all but letters and digits, escaped as",
        "`%2d`, `\\u002d` or `\\x2d`. Nothing is asked of what follows. An operator's own values (`--known`)",
        "are searched in the same spellings, and in base64 of UTF-16 and of base64: rule `known-value-N`.",
        "",
        "| rule | starts with | confirmed by |",
        "| --- | --- | --- |",
    ]
    for shape in SHAPES:
        if shape.confirm is Confirm.DER:
            starts = "an algorithm identifier or the head of a modulus"
        else:
            shown = [f"`{prefix.decode().strip()}`" for prefix in shape.prefixes[:6]]
            starts = " ".join(shown) + (" …" if len(shape.prefixes) > 6 else "")
        rows.append(f"| `{shape.id}` | {starts} | {CONFIRMED[shape.confirm]} |")
    return [*rows, ""]


def _paths() -> list[str]:
    rows = [
        "## Paths",
        "",
        "In any layer and below any home. An empty file is a mount point, and harmless.",
        "",
        "| rule | paths | looked for |",
        "| --- | --- | --- |",
    ]
    for rule in PATH_RULES:
        globs = " ".join(f"`{glob}`" for glob in rule.globs)
        keys = " " + ", ".join(f"`{key}`" for key in rule.keys) if rule.keys else ""
        rows.append(f"| `{rule.id}` | {globs} | {LOOKED[rule.look]}{keys} |")
    return [*rows, ""]


def _names() -> list[str]:
    names = " ".join(f"`{name}`" for name in sorted(SECRET_NAMES))
    return [
        "## Names",
        "",
        "Rule `name`, in the environment, build arguments, history, labels, annotations, attestations and",
        "the files above: a literal of four characters or more under one of",
        "",
        names,
        "",
        "or of eight or more under any name with a word such as `TOKEN`, `SECRET`, `PASSWORD`, `API_KEY`.",
        "A reference (`${X}`), a path, a switch or a filler is none, nor is `GPG_KEY`, `SSH_AUTH_SOCK`,",
        "`*_SHA256`, `*_VERSION`, `*_MAX_OUTPUT_TOKENS`, `*_FILE`. Rules `url-userinfo` and",
        "`authorization-header`: a password in an URL, a literal in an Authorization header, in the same",
        "places.",
        "",
    ]


def _allowed() -> list[str]:
    document = json.loads(resources.files("provenance.scan").joinpath("allowlist.json").read_text())
    rows = [
        "## The allow-list",
        "",
        "An entry is bound to the SHA-256 of the exact bytes (of a key: of its DER), or to package, version,",
        "path and rule together, where a lock says which package lies there. None is bound to a path alone.",
        "What an entry clears stays in the report as *cleared*.",
        "",
        "| entry | rule | bound to | why it is harmless |",
        "| --- | --- | --- | --- |",
    ]
    for entry in document["values"]:
        rows.append(f"| `{entry['id']}` | `{entry['rule']}` | `{entry['sha256'][:16]}…` | {entry['why']} |")
    for entry in document["places"]:
        bound = f"{entry['package']} {entry['version']} `{entry['path']}`"
        rows.append(f"| `{entry['id']}` | `{entry['rule']}` | {bound} | {entry['why']} |")
    return rows


if __name__ == "__main__":
    PAGE.write_text(page())
