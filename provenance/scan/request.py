"""What the parent asks the scanning child for, as one JSON object on its standard input."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from images.credentials import Secret
from images.digests import Digest
from images.errors import CredentialFound, UsageError
from images.strictjson import JsonValue, read_object
from provenance.scan.allow import PackageTree, shipped_allow_list
from provenance.scan.layer_report import from_lines, to_lines
from provenance.scan.report import ScanReport

MAX_REQUEST = 64 << 20
# The child's exit code for "there is no image": the parent tells it from a crash by it.
EXIT_REFUSED = 3


class Target(StrEnum):
    """IMAGE: one image of a layout, alone or with all that refers to it. ARCHIVE: all that is there."""

    IMAGE = "image"
    IMAGE_AND_REFERRERS = "image-and-referrers"
    ARCHIVE = "archive"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanRequest:
    """``key``: of the short hashes, fresh for each run. ``documents``: (name, bytes) of bundles.

    ``known``: the operator's own values. They are here alone: not in argv, not in the environment.
    ``settled``: layers that are hashed and not scanned again. ``tell_layers``: a report of each layer too.
    """

    target: Target
    path: Path
    digest: Digest | None
    key: Secret
    threads: int = 2
    documents: tuple[tuple[str, bytes], ...] = ()
    packages: tuple[PackageTree, ...] = ()
    known: tuple[Secret, ...] = ()
    settled: tuple[ScanReport, ...] = ()
    tell_layers: bool = False

    def to_json(self) -> bytes:
        """For the child alone: it holds the key and the known values."""
        return json.dumps(
            {
                "target": self.target.value,
                "path": str(self.path),
                "digest": self.digest or "",
                "key": self.key.reveal().hex(),
                "threads": self.threads,
                "documents": [[name, base64.b64encode(raw).decode()] for name, raw in self.documents],
                "packages": [[tree.prefix, tree.name, tree.version] for tree in self.packages],
                "known": [[base64.b64encode(value.reveal()).decode()] for value in self.known],
                "settled": to_lines(self.settled).decode(),
                "tellLayers": self.tell_layers,
            }
        ).encode()


def read_request(raw: bytes) -> ScanRequest:
    """In the child. The parent wrote it, so a fault is a bug; still read strictly. Raises UsageError."""
    document = read_object(raw, "scan request", max_bytes=MAX_REQUEST)
    try:
        return _request(document)
    except (KeyError, ValueError, CredentialFound) as broken:
        why = f"not the request of a scan: {type(broken).__name__}"  # which may hold the key
        raise UsageError(why, where="scan request") from None


def _request(document: dict[str, JsonValue]) -> ScanRequest:
    digest = _text(document["digest"])
    threads = document["threads"]
    if not isinstance(threads, int) or isinstance(threads, bool) or not 1 <= threads <= 64:
        raise UsageError("threads is not a small number", where="scan request")
    return ScanRequest(
        target=Target(_text(document["target"])),
        path=Path(_text(document["path"])),
        digest=Digest(digest) if digest else None,
        key=Secret(bytes.fromhex(_text(document["key"]))),
        threads=threads,
        documents=tuple(
            (name, base64.b64decode(encoded, validate=True))
            for name, encoded in _rows(document["documents"], 2)
        ),
        packages=tuple(PackageTree(*row) for row in _rows(document["packages"], 3)),
        known=tuple(Secret(base64.b64decode(encoded)) for (encoded,) in _rows(document["known"], 1)),
        settled=from_lines(_text(document["settled"]).encode(), shipped_allow_list()),
        tell_layers=document["tellLayers"] is True,
    )


def _text(value: JsonValue) -> str:
    if not isinstance(value, str):
        raise UsageError("not text", where="scan request")
    return value


def _rows(value: JsonValue, width: int) -> list[list[str]]:
    if not isinstance(value, list):
        raise UsageError("not a list", where="scan request")
    rows = []
    for item in value:
        if not isinstance(item, list) or len(item) != width:
            raise UsageError(f"not a row of {width}", where="scan request")
        rows.append([_text(cell) for cell in item])
    return rows
