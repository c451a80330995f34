"""The allow-list: bound to bytes or to package, version, path and rule together; never to a path alone."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from images.errors import UsageError
from provenance.scan.allow import AllowList, PackageTree, parse_allow_list, shipped_allow_list
from provenance.scan.report import Verdict
from tests.fakes.credentials import Entry, der, make_layout, make_tar, pem, token

from .conftest import ScanImage

TREE = PackageTree("opt/agents/pi/node_modules/fixture", "fixture", "1.2.3")
PATH = f"{TREE.prefix}/test/key.txt"


def allow(
    values: list[dict[str, str]] | None = None, places: list[dict[str, str]] | None = None
) -> AllowList:
    return parse_allow_list(
        json.dumps({"schema": 1, "values": values or [], "places": places or []}).encode()
    )


def value_entry(rule: str, value: bytes) -> dict[str, str]:
    return {"id": "v", "rule": rule, "sha256": hashlib.sha256(value).hexdigest(), "why": "a test"}


PLACE = {
    "id": "p",
    "rule": "anthropic-oauth",
    "package": "fixture",
    "version": "1.2.3",
    "path": "test/key.txt",
    "why": "a test",
}


def test_a_published_value_is_cleared_wherever_it_lies_and_stays_in_the_report(
    scan: ScanImage, tmp_path: Path
) -> None:
    image = make_layout(tmp_path, [make_tar([Entry("a", token()), Entry("b/c", token())])])
    report = scan(image, allow=allow([value_entry("anthropic-oauth", token())]))
    assert report.verdict is Verdict.CLEAN
    assert [item.entry for item in report.cleared] == ["v", "v"]
    assert [item.finding.place.path for item in report.cleared] == ["a", "b/c"]


@pytest.mark.parametrize(
    "data", [pem("rsa"), pem("rsa").replace(b"\n", b"\\n"), der("rsa")], ids=["pem", "json", "der"]
)
def test_a_published_key_is_known_by_its_der_in_every_form(
    scan: ScanImage, tmp_path: Path, data: bytes
) -> None:
    report = scan(
        make_layout(tmp_path, [make_tar([Entry("a", data)])]),
        allow=allow([value_entry("private-key", der("rsa"))]),
    )
    assert report.verdict is Verdict.CLEAN
    assert report.cleared


def test_another_key_in_the_same_file_is_still_found(scan: ScanImage, tmp_path: Path) -> None:
    image = make_layout(tmp_path, [make_tar([Entry("lib", pem("rsa") + b"\0" + pem("ec"))])])
    report = scan(image, allow=allow([value_entry("private-key", der("rsa"))]))
    assert report.verdict is Verdict.FOUND
    assert len(report.findings) == len(report.cleared) == 1


def test_a_value_is_cleared_for_its_rule_only(scan: ScanImage, tmp_path: Path) -> None:
    image = make_layout(tmp_path, [make_tar([Entry("a", token())])])
    assert scan(image, allow=allow([value_entry("jwt", token())])).verdict is Verdict.FOUND


def test_a_fixture_is_cleared_by_package_version_path_and_rule(scan: ScanImage, tmp_path: Path) -> None:
    image = make_layout(tmp_path, [make_tar([Entry(PATH, token())])])
    assert scan(image, allow=allow(places=[PLACE]), packages=(TREE,)).verdict is Verdict.CLEAN


@pytest.mark.parametrize(
    ("change", "trees", "path"),
    [
        ({}, (), PATH),
        ({}, (PackageTree(TREE.prefix, "fixture", "1.2.4"),), PATH),
        ({}, (PackageTree(TREE.prefix, "other", "1.2.3"),), PATH),
        ({}, (TREE,), f"{TREE.prefix}/test/other.txt"),
        ({}, (TREE,), "elsewhere/test/key.txt"),
        ({}, (TREE, PackageTree(f"{TREE.prefix}/test", "inner", "1.2.3")), PATH),
        ({"rule": "jwt"}, (TREE,), PATH),
    ],
    ids=["no-lock", "version", "package", "path", "place", "deeper-package", "rule"],
)
def test_a_fixture_is_found_when_one_of_the_four_differs(
    scan: ScanImage, tmp_path: Path, change: dict[str, str], trees: tuple[PackageTree, ...], path: str
) -> None:
    image = make_layout(tmp_path, [make_tar([Entry(path, token())])])
    assert scan(image, allow=allow(places=[PLACE | change]), packages=trees).verdict is Verdict.FOUND


@pytest.mark.parametrize(
    "document",
    [
        {"schema": 2, "values": [], "places": []},
        {"schema": 1, "values": []},
        {"schema": 1, "values": {}, "places": []},
        {"schema": 1, "values": [{"id": "x", "rule": "jwt", "sha256": "0"}], "places": []},
        {"schema": 1, "values": [value_entry("jwt", b"x") | {"why": ""}], "places": []},
        {"schema": 1, "values": [value_entry("jwt", b"x")] * 2, "places": []},
        {"schema": 1, "values": [], "places": [{"id": "x", "path": "a"}]},
    ],
)
def test_an_entry_without_its_binding_or_reason_is_refused(document: object) -> None:
    with pytest.raises(UsageError, match=r"allowlist\.json"):
        parse_allow_list(json.dumps(document).encode())


def test_the_shipped_list_is_bound_to_bytes_and_says_why() -> None:
    assert len(shipped_allow_list().ids) >= 11
    assert {"jwt-io-sample", "gnutls-selftest-rsa-2048"} <= shipped_allow_list().ids
