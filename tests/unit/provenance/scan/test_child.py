"""The real child process: what it answers, how it fails, and that it opens no socket."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from images.digests import Digest
from images.errors import UsageError
from images.oci import MEDIA_EMPTY, MEDIA_MANIFEST, OciImage
from provenance.layout_writing import add_manifest, write_blob
from provenance.scan.accept import accept
from provenance.scan.allow import PackageTree
from provenance.scan.memory import LayerMemory
from provenance.scan.report import ScanReport, Verdict
from provenance.scan.report_json import report_from_json, report_to_json
from provenance.scan.request import ScanRequest, Target, read_request
from provenance.scan.run import CHILD_ARGV, ChildResult, scan_archive, scan_image
from tests.fakes.credentials import KEY, Entry, make_layout, make_tar, token


def run_child(argv: tuple[str, ...], stdin: bytes) -> ChildResult:
    """As the process runner does it: nothing of our environment, a limit.

    HOME keeps Python's own start from asking the name service for it, which would be a socket.
    """
    done = subprocess.run(argv, input=stdin, capture_output=True, env={"HOME": "/"}, timeout=60, check=False)
    return ChildResult(exit_code=done.returncode, stdout=done.stdout, stderr=done.stderr)


def answering(result: ChildResult) -> Callable[[tuple[str, ...], bytes], ChildResult]:
    return lambda _argv, _stdin: result


@pytest.fixture
def image(tmp_path: Path) -> OciImage:
    return make_layout(tmp_path, [make_tar([Entry("a", b"x" * 900)])])


@pytest.fixture
def report(image: OciImage) -> ScanReport:
    return scan_image(image, key=KEY, run_child=run_child)


def test_an_image_is_scanned_in_the_child_and_accepted(image: OciImage, report: ScanReport) -> None:
    assert report.verdict is Verdict.CLEAN
    assert accept(report, image).image is image


def test_a_leak_comes_back_from_the_child_without_its_value(tmp_path: Path) -> None:
    image = make_layout(tmp_path, [make_tar([Entry("a", token())])])
    answers: list[ChildResult] = []

    def watched(argv: tuple[str, ...], stdin: bytes) -> ChildResult:
        assert not any(KEY.reveal().hex() in part for part in argv)
        answers.append(run_child(argv, stdin))
        return answers[-1]

    report = scan_image(image, key=KEY, run_child=watched, documents=(("bundle", b"{}"),))
    assert report.verdict is Verdict.FOUND
    assert token() not in answers[0].stdout + answers[0].stderr
    assert KEY.reveal().hex().encode() not in answers[0].stdout


def test_the_short_hash_depends_on_the_key_of_the_run(tmp_path: Path) -> None:
    image = make_layout(tmp_path, [make_tar([Entry("a", token())])])
    other = type(KEY)(b"another key of 32 bytes, no more")
    first = scan_image(image, key=KEY, run_child=run_child)
    again = scan_image(image, key=KEY, run_child=run_child)
    second = scan_image(image, key=other, run_child=run_child)
    assert first == again
    assert first.findings[0].hash != second.findings[0].hash


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (ChildResult(exit_code=1, stdout=b"", stderr=b"Traceback"), "ended with 1"),
        (ChildResult(exit_code=-11, stdout=b""), "ended with -11"),
        (ChildResult(exit_code=None, stdout=b"", detail="timed out after 900 s"), "timed out"),
        (ChildResult(exit_code=0, stdout=b""), "not acceptable JSON"),
        (ChildResult(exit_code=0, stdout=b"{}"), "cannot be read"),
        (ChildResult(exit_code=0, stdout=b'{"verdict":"clean"}'), "cannot be read"),
    ],
)
def test_a_crash_a_time_out_and_nonsense_are_incomplete_and_never_clean(
    image: OciImage, result: ChildResult, words: str
) -> None:
    report = scan_image(image, key=KEY, run_child=answering(result))
    assert report.verdict is Verdict.INCOMPLETE
    assert words in report.incomplete[0]


def test_an_answer_about_another_image_or_a_part_of_it_or_other_tables_is_incomplete(
    image: OciImage, report: ScanReport
) -> None:
    bent = [
        replace(report, subject=Digest.of(b"other")),
        replace(report, coverage=report.coverage[:-1]),
        replace(report, coverage=report.coverage[1:]),
        replace(report, ruleset=report.ruleset + 1),
        replace(report, ruleset_digest=Digest.of(b"other")),
    ]
    for answer in bent:
        result = ChildResult(exit_code=0, stdout=report_to_json(answer))
        got = scan_image(image, key=KEY, run_child=answering(result))
        assert got.verdict is Verdict.INCOMPLETE, answer


def test_what_the_child_tells_of_layers_is_remembered_and_given_back(image: OciImage, tmp_path: Path) -> None:
    folder = tmp_path / "scans"
    folder.mkdir(mode=0o700)
    first, again = LayerMemory(folder, folder / "key"), LayerMemory(folder, folder / "key")
    reports = [scan_image(image, key=KEY, run_child=run_child, memory=one) for one in (first, again)]
    assert (first.recalled, again.recalled) == (0, 1)
    assert reports[0] == reports[1] == scan_image(image, key=KEY, run_child=run_child)


def test_a_document_that_the_child_did_not_read_is_incomplete(image: OciImage, report: ScanReport) -> None:
    result = ChildResult(exit_code=0, stdout=report_to_json(report))
    got = scan_image(image, key=KEY, run_child=answering(result), documents=(("bundle", b"{}"),))
    assert got.verdict is Verdict.INCOMPLETE


def test_an_archive_is_scanned_in_the_child(image: OciImage) -> None:
    assert scan_archive(image.layout, key=KEY, run_child=run_child).verdict is Verdict.CLEAN
    one = scan_archive(image.layout, key=KEY, run_child=run_child, digest=image.digest)
    assert one.subject == image.digest


def test_a_path_that_is_no_image_is_a_usage_error_without_a_traceback(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        scan_archive(tmp_path / "gone", key=KEY, run_child=run_child)
    assert "Traceback" not in str(caught.value)
    assert str(tmp_path) in str(caught.value)


def test_an_archive_that_is_cut_short_is_incomplete(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(make_tar([Entry("index.json", b"{}" * 4000)])[:2000])
    report = scan_archive(path, key=KEY, run_child=run_child)
    assert report.verdict is Verdict.INCOMPLETE
    assert "ends inside a member" in report.incomplete[0]


def test_a_digest_that_the_layout_lacks_is_a_usage_error(image: OciImage) -> None:
    with pytest.raises(UsageError, match="not here"):
        scan_archive(image.layout, key=KEY, run_child=run_child, digest=Digest.of(b"other"))


def attach(image: OciImage, document: bytes) -> Digest:
    """A referrer of the image, as attestations and bundles are stored."""
    layer = write_blob(image.layout, document, "application/vnd.dev.sigstore.bundle.v0.3+json")
    manifest = {
        "schemaVersion": 2,
        "mediaType": MEDIA_MANIFEST,
        "config": write_blob(image.layout, b"{}", MEDIA_EMPTY).to_json(),
        "layers": [layer.to_json()],
        "subject": {"mediaType": MEDIA_MANIFEST, "digest": image.digest, "size": len(image.manifest.raw)},
    }
    add_manifest(image.layout, json.dumps(manifest).encode(), media_type=MEDIA_MANIFEST)
    return layer.digest


def test_what_refers_to_the_image_is_read_with_it(image: OciImage) -> None:
    digest = attach(image, json.dumps({"predicate": {"build-arg:NPM_TOKEN": "swordfish-9"}}).encode())
    report = scan_archive(image.layout, key=KEY, run_child=run_child, digest=image.digest)
    assert [(finding.rule, finding.place.blob) for finding in report.findings] == [("name", digest)]
    assert scan_image(image, key=KEY, run_child=run_child).verdict is Verdict.CLEAN


def test_a_referrer_that_cannot_be_read_is_incomplete(image: OciImage) -> None:
    digest = attach(image, b"{}2")
    (image.layout / "blobs/sha256" / digest.hex).unlink()
    report = scan_archive(image.layout, key=KEY, run_child=run_child, digest=image.digest)
    assert report.verdict is Verdict.INCOMPLETE


def test_an_image_whose_manifest_went_away_is_incomplete(image: OciImage) -> None:
    (image.layout / "blobs/sha256" / image.digest.hex).unlink()
    assert scan_image(image, key=KEY, run_child=run_child).verdict is Verdict.INCOMPLETE


def test_the_request_survives_its_pipe(image: OciImage) -> None:
    request = ScanRequest(
        target=Target.IMAGE,
        path=image.layout,
        digest=image.digest,
        key=KEY,
        documents=(("a", b"\0\xff"),),
        packages=(PackageTree("opt/x", "x", "1"),),
    )
    assert read_request(request.to_json()) == request
    assert KEY.reveal().decode() not in repr(request)


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_the_child_opens_no_socket_and_starts_no_process(image: OciImage, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    strace = (shutil.which("strace") or "", "-f", "-e", "trace=network,execve", "-o", str(trace))
    result = run_child(
        (*strace, *CHILD_ARGV),
        ScanRequest(target=Target.IMAGE, path=image.layout, digest=image.digest, key=KEY).to_json(),
    )
    assert report_from_json(result.stdout).verdict is Verdict.CLEAN
    calls = re.findall(r"^\d+ +(\w+)\(", trace.read_text(), re.MULTILINE)
    assert calls == ["execve"]
