"""Scanning within the test's own process: the tables compiled once, a report of an image or of files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import pytest

from images.oci import OciImage
from provenance.scan.allow import AllowList, PackageTree, shipped_allow_list
from provenance.scan.engine import Engine
from provenance.scan.passes import scan_sources
from provenance.scan.report import ScanReport
from provenance.scan.request import ScanRequest, Target
from provenance.scan.sources import image_sources
from tests.fakes.credentials import KEY, Entry, make_layout, make_tar


class ScanImage(Protocol):
    """Scan one image of a layout."""

    def __call__(
        self,
        image: OciImage,
        *,
        allow: AllowList | None = None,
        documents: tuple[tuple[str, bytes], ...] = (),
        packages: tuple[PackageTree, ...] = (),
    ) -> ScanReport: ...


ScanFiles = Callable[..., ScanReport]


@pytest.fixture(scope="session")
def engine() -> Engine:
    return Engine()


@pytest.fixture
def scan(engine: Engine) -> ScanImage:
    def run(
        image: OciImage,
        *,
        allow: AllowList | None = None,
        documents: tuple[tuple[str, bytes], ...] = (),
        packages: tuple[PackageTree, ...] = (),
    ) -> ScanReport:
        request = ScanRequest(
            target=Target.IMAGE,
            path=image.layout,
            digest=image.digest,
            key=KEY,
            documents=documents,
            packages=packages,
        )
        sources = image_sources(image.layout, image.digest)
        return scan_sources(sources, request, allow or shipped_allow_list(), engine)

    return run


@pytest.fixture
def scan_files(scan: ScanImage, tmp_path: Path) -> ScanFiles:
    """Entries of one layer (or tars of several) in, report out."""

    def run(*entries: Entry) -> ScanReport:
        return scan(make_layout(tmp_path, [make_tar(entries)]))

    return run
