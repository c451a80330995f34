"""The report as JSON: its schema, its strict reader, its derived verdict, and the gate that takes it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from images.digests import Digest
from images.errors import CredentialFound, ExitCode, VerifyFailed
from images.oci import OciImage
from provenance.scan.accept import accept
from provenance.scan.report import (
    BlobCoverage,
    Cleared,
    Finding,
    OpaqueMember,
    Place,
    PlaceKind,
    ScanReport,
    Verdict,
)
from provenance.scan.report_json import report_from_json, report_to_json
from tests.fakes.credentials import Entry, make_layout, make_tar, token

from .conftest import ScanImage

SCHEMA = json.loads(
    (Path(__file__).parents[4] / "docs/reference/schemas/scan-report.schema.json").read_text()
)
DIGEST = Digest.of(b"x")
FINDING = Finding("jwt", Place(PlaceKind.CONTENT, DIGEST, "a/b", 7), "0123456789abcdef")
REPORT = ScanReport(
    subject=DIGEST,
    ruleset=1,
    ruleset_digest=DIGEST,
    engine="engine 1",
    coverage=(BlobCoverage(DIGEST, "layer", 10, 10, 1),),
    findings=(),
    cleared=(Cleared(FINDING, "entry"),),
    opened=3,
    opened_bytes=30,
    opaque=(OpaqueMember(DIGEST, "a.7z", "7z", DIGEST, 5, "7z is not opened", DIGEST),),
    opaque_count=1,
    incomplete=(),
)


@pytest.fixture
def image(tmp_path: Path) -> OciImage:
    return make_layout(tmp_path, [make_tar([Entry("a", b"x")])])


@pytest.mark.parametrize(
    ("report", "verdict"),
    [
        (REPORT, Verdict.CLEAN),
        (replace(REPORT, findings=(FINDING,)), Verdict.FOUND),
        (replace(REPORT, findings=(FINDING,), incomplete=("x",)), Verdict.FOUND),
        (replace(REPORT, incomplete=("x",)), Verdict.INCOMPLETE),
        (replace(REPORT, coverage=()), Verdict.INCOMPLETE),
        (replace(REPORT, coverage=(BlobCoverage(DIGEST, "layer", 10, 9, 1),)), Verdict.INCOMPLETE),
    ],
)
def test_the_verdict_follows_and_the_report_survives_json(report: ScanReport, verdict: Verdict) -> None:
    assert report.verdict is verdict
    raw = report_to_json(report)
    jsonschema.validate(json.loads(raw), SCHEMA)
    assert report_from_json(raw) == report


def test_a_real_report_follows_the_schema(scan: ScanImage, tmp_path: Path) -> None:
    image = make_layout(tmp_path, [make_tar([Entry(token().decode(), token()), Entry("a.gz", b"\x1f\x8b")])])
    report = scan(image, documents=(("bundle", token()),))
    raw = report_to_json(report)
    jsonschema.validate(json.loads(raw), SCHEMA)
    assert report_from_json(raw) == report
    assert token() not in raw


CHANGES: list[tuple[str, object]] = [
    ("schema", 1),
    ("verdict", "found"),
    ("bytesScanned", 11),
    ("ruleset", -1),
    ("ruleset", True),
    ("rulesetDigest", "sha256:1"),
    ("subject", 1),
    ("engine", "x" * 5000),
    ("nested", "all"),
    ("opaqueCount", 0),
    ("findings", {}),
    ("coverage", [{"digest": "x"}]),
    ("coverage", ["x"]),
    ("coverage", [{"digest": "x", "kind": "other", "total": 1, "scanned": 1, "members": 0}]),
    ("incomplete", ["x"] * 101),
    ("cleared", [{"finding": {}, "entry": "x"}]),
    ("unknown", 1),
]


@pytest.mark.parametrize(("key", "value"), CHANGES)
def test_a_report_that_was_bent_is_refused(key: str, value: object) -> None:
    document = json.loads(report_to_json(REPORT))
    document[key] = value
    with pytest.raises(CredentialFound, match="cannot be read"):
        report_from_json(json.dumps(document).encode())


@pytest.mark.parametrize("field", [{"kind": "elsewhere"}, {"hash": "xyz"}, {"offset": -1}, {"rule": 1}])
def test_a_finding_that_was_bent_is_refused(field: dict[str, object]) -> None:
    document = json.loads(report_to_json(replace(REPORT, findings=(FINDING,))))
    document["findings"][0] |= field
    with pytest.raises(CredentialFound, match="cannot be read"):
        report_from_json(json.dumps(document).encode())


@given(st.binary(max_size=300))
def test_any_bytes_are_refused_without_a_traceback(raw: bytes) -> None:
    with pytest.raises(CredentialFound):
        report_from_json(raw)


def test_a_clean_report_about_the_image_makes_the_permit(scan: ScanImage, image: OciImage) -> None:
    clean = accept(scan(image), image)
    assert clean.image is image
    assert clean.report.verdict is Verdict.CLEAN


@pytest.mark.parametrize(
    ("change", "reason", "words"),
    [
        ({"findings": (FINDING,)}, "credential", "jwt in content a/b at byte 7"),
        ({"findings": (FINDING,) * 5}, "credential", "and 2 more"),
        ({"incomplete": ("layer x: cut",)}, "incomplete", "layer x: cut"),
        ({"coverage": ()}, "incomplete", "not every byte"),
    ],
)
def test_everything_else_is_refused_with_its_reason(
    scan: ScanImage, image: OciImage, change: dict[str, object], reason: str, words: str
) -> None:
    with pytest.raises(CredentialFound, match=words) as caught:
        accept(replace(scan(image), **change), image)  # type: ignore[arg-type]
    assert caught.value.code is ExitCode.CREDENTIAL
    assert caught.value.reason == reason
    assert "builder scan" in caught.value.hint


def test_an_old_ruleset_is_refused(scan: ScanImage, image: OciImage) -> None:
    with pytest.raises(CredentialFound, match="policy asks for 99"):
        accept(scan(image), image, min_ruleset=99)


def test_a_report_about_another_image_is_refused(scan: ScanImage, image: OciImage) -> None:
    with pytest.raises(VerifyFailed, match="is about"):
        accept(replace(scan(image), subject=DIGEST), image)
