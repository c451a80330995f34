"""A credential in a Debian package stops the build: in its data, its control files, its description."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from images.errors import CredentialFound, ExitCode
from provenance.debs import read_control
from provenance.scan.accept import accept
from provenance.scan.report import Verdict
from tests.fakes.credentials import Entry, make_layout, make_tar, token
from tests.fakes.debs import Package

from .conftest import ScanImage


def unpacked(package: Package) -> list[Entry]:
    """What dpkg makes of it: the data at its paths, control files in its database, fields in its status."""
    control = read_control(io.BytesIO(package.to_bytes()), package.name)
    info = "var/lib/dpkg/info"
    found = [Entry(path, content) for path, content, _ in package.members if isinstance(content, bytes)]
    found += [
        Entry(f"{info}/{package.name}.{name}", raw)
        for name, raw in control.files.items()
        if name != "control"
    ]
    found.append(Entry("var/lib/dpkg/status", b"Status: install ok installed\n" + control.files["control"]))
    return found


@pytest.mark.parametrize(
    ("package", "place"),
    [
        (Package("tool", members=(("etc/tool.conf", b"key = " + token() + b"\n", 0o644),)), "etc/tool.conf"),
        (
            Package("tool", files={"postinst": b"#!/bin/sh\nlogin " + token() + b"\n"}),
            "var/lib/dpkg/info/tool.postinst",
        ),
        (
            Package("tool", files={"templates": b"Default: " + token() + b"\n"}),
            "var/lib/dpkg/info/tool.templates",
        ),
        (
            Package("tool", fields={"Homepage": f"https://x.test/?t={token().decode()}"}),
            "var/lib/dpkg/status",
        ),
    ],
)
def test_a_credential_in_a_package_is_named_with_place_and_rule(
    scan: ScanImage, tmp_path: Path, package: Package, place: str
) -> None:
    image = make_layout(tmp_path, [make_tar(unpacked(package))])
    report = scan(image)
    assert report.verdict is not Verdict.CLEAN
    (finding,) = report.findings
    assert finding.rule == "anthropic-oauth"
    with pytest.raises(CredentialFound) as refused:
        accept(report, image)
    assert refused.value.code is ExitCode.CREDENTIAL
    said = f"{refused.value} {refused.value.hint}"
    assert place in said
    assert "anthropic-oauth" in said
    assert token().decode() not in said


def test_the_same_package_without_it_is_clean(scan: ScanImage, tmp_path: Path) -> None:
    plain = Package("tool", files={"postinst": b"#!/bin/sh\n"}, members=(("etc/tool.conf", b"a\n", 0o644),))
    assert scan(make_layout(tmp_path, [make_tar(unpacked(plain))])).verdict is Verdict.CLEAN
