"""Write a report as JSON, and read one strictly: it comes from a process that parsed untrusted images."""

from __future__ import annotations

import json
import re
from typing import Final

from images.digests import Digest
from images.errors import CredentialFound, UsageError
from images.strictjson import JsonValue, read_object
from provenance.scan.report import (
    MAX_FINDINGS,
    MAX_LISTED,
    MAX_REASONS,
    NESTED,
    REPORT_SCHEMA,
    BlobCoverage,
    Cleared,
    Finding,
    OpaqueMember,
    Place,
    PlaceKind,
    ScanReport,
)

MAX_REPORT: Final = 16 << 20
MAX_TEXT: Final = 2048
MAX_BLOBS: Final = 100_000
_HASH: Final = re.compile(r"[0-9a-f]{16}")


def report_to_json(report: ScanReport) -> bytes:
    """One line of JSON, as docs/reference/schemas/scan-report.schema.json says; without any value found."""
    return json.dumps(report_document(report), ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def report_document(report: ScanReport) -> dict[str, JsonValue]:
    """The same as a JSON value."""
    return {
        "schema": REPORT_SCHEMA,
        "subject": report.subject,
        "verdict": report.verdict.value,
        "ruleset": report.ruleset,
        "rulesetDigest": report.ruleset_digest,
        "engine": report.engine,
        "bytesScanned": report.bytes_scanned,
        "coverage": [
            {
                "digest": blob.digest,
                "kind": blob.kind,
                "total": blob.total,
                "scanned": blob.scanned,
                "members": blob.members,
            }
            for blob in report.coverage
        ],
        "findings": [_finding(finding) for finding in report.findings],
        "cleared": [{"finding": _finding(item.finding), "entry": item.entry} for item in report.cleared],
        "nested": NESTED,
        "openedCount": report.opened,
        "openedBytes": report.opened_bytes,
        "opaqueCount": report.opaque_count,
        "opaque": [
            {
                "layer": member.layer,
                "path": member.path,
                "format": member.format,
                "digest": member.digest,
                "size": member.size,
                "reason": member.reason,
                "file": member.file,
                "by": member.by,
            }
            for member in report.opaque
        ],
        "incomplete": list(report.incomplete),
    }


def report_from_json(raw: bytes) -> ScanReport:
    """Strict and bounded; the verdict is derived again. Raises CredentialFound: no report, no clean image."""
    document = read_object(raw, "scan report", max_bytes=MAX_REPORT, error=CredentialFound)
    _keys(
        document,
        "schema subject verdict ruleset rulesetDigest engine bytesScanned coverage findings cleared nested "
        "openedCount openedBytes opaqueCount opaque incomplete",
    )
    if document["schema"] != REPORT_SCHEMA or document["nested"] != NESTED:
        raise _broken("another schema than ours")
    report = ScanReport(
        subject=_text(document["subject"]),
        ruleset=_count(document["ruleset"]),
        ruleset_digest=_digest(document["rulesetDigest"]),
        engine=_text(document["engine"]),
        coverage=tuple(_coverage(item) for item in _list(document["coverage"], MAX_BLOBS)),
        findings=tuple(_read_finding(item) for item in _list(document["findings"], MAX_FINDINGS + 1)),
        cleared=tuple(_cleared(item) for item in _list(document["cleared"], MAX_FINDINGS + 1)),
        opened=_count(document["openedCount"]),
        opened_bytes=_count(document["openedBytes"]),
        opaque=tuple(_opaque(item) for item in _list(document["opaque"], MAX_LISTED)),
        opaque_count=_count(document["opaqueCount"]),
        incomplete=tuple(_text(item) for item in _list(document["incomplete"], MAX_REASONS)),
    )
    if document["verdict"] != report.verdict.value or document["bytesScanned"] != report.bytes_scanned:
        raise _broken("its verdict or sum does not follow from its content")
    if report.opaque_count < len(report.opaque):
        raise _broken("it lists more opaque members than it counts")
    return report


def _finding(finding: Finding) -> dict[str, JsonValue]:
    place = finding.place
    return {
        "rule": finding.rule,
        "kind": place.kind.value,
        "blob": place.blob,
        "path": place.path,
        "offset": place.offset,
        "hash": finding.hash,
        "file": finding.file,
        "explained": finding.explained,
    }


def _read_finding(value: JsonValue) -> Finding:
    item = _object(value, "rule kind blob path offset hash file explained")
    kind = _text(item["kind"])
    if kind not in set(PlaceKind):
        raise _broken(f"a place of kind {kind[:40]!r}")
    offset = item["offset"]
    short = _text(item["hash"])
    if not _HASH.fullmatch(short):
        raise _broken("a hash that is none")
    place = Place(
        PlaceKind(kind),
        _text(item["blob"]),
        _text(item["path"]),
        None if offset is None else _count(offset),
    )
    return Finding(_text(item["rule"]), place, short, _text(item["file"]), _text(item["explained"]))


def _cleared(value: JsonValue) -> Cleared:
    item = _object(value, "finding entry")
    return Cleared(_read_finding(item["finding"]), _text(item["entry"]))


def _opaque(value: JsonValue) -> OpaqueMember:
    item = _object(value, "layer path format digest size reason file by")
    return OpaqueMember(
        _text(item["layer"]),
        _text(item["path"]),
        _text(item["format"]),
        _digest(item["digest"]),
        _count(item["size"]),
        _text(item["reason"]),
        _digest(item["file"]),
        _text(item["by"]),
    )


def _coverage(value: JsonValue) -> BlobCoverage:
    item = _object(value, "digest kind total scanned members")
    kind = _text(item["kind"])
    if kind not in ("layer", "document"):
        raise _broken(f"coverage of a {kind[:40]!r}")
    return BlobCoverage(
        _text(item["digest"]), kind, _count(item["total"]), _count(item["scanned"]), _count(item["members"])
    )


def _object(value: JsonValue, keys: str) -> dict[str, JsonValue]:
    if not isinstance(value, dict):
        raise _broken("something that is not an object")
    _keys(value, keys)
    return value


def _keys(document: dict[str, JsonValue], keys: str) -> None:
    if set(document) != set(keys.split()):
        raise _broken(f"keys other than {keys}")


def _text(value: JsonValue) -> str:
    if not isinstance(value, str) or len(value) > MAX_TEXT:
        raise _broken("something that is not a short text")
    return value


def _count(value: JsonValue) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise _broken("something that is not a count")
    return value


def _list(value: JsonValue, most: int) -> list[JsonValue]:
    if not isinstance(value, list) or len(value) > most:
        raise _broken(f"something that is not a list of at most {most}")
    return value


def _digest(value: JsonValue) -> Digest:
    try:
        return Digest(_text(value))
    except UsageError as broken:
        raise _broken(broken.what) from None


def _broken(why: str) -> CredentialFound:
    return CredentialFound(
        f"the scanner's report cannot be read: {why}", where="scan report", reason="incomplete"
    )
