"""What we write as SARIF has the shape that the standard asks for, whatever an image calls its files."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, Final
from urllib.parse import urlsplit

import jsonschema
from hypothesis import given
from hypothesis import strategies as st

from images.digests import Digest
from provenance.sarif import MAX_RESULTS, Level, SarifResult, SarifRule, path_uri, sarif_log
from provenance.scan.report import Place, PlaceKind
from provenance.scan.report_sarif import report_sarif
from tests.unit.provenance.scan.test_report import FINDING, REPORT

TEXT: Final = {
    "type": "object",
    "required": ["text"],
    "properties": {"text": {"type": "string", "minLength": 1}},
    "additionalProperties": False,
}
LEVEL: Final = {"enum": ["none", "note", "warning", "error"]}
NATURAL: Final = {"type": "integer", "minimum": 0}


def closed(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def listed(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


# The objects of SARIF 2.1.0 that we write, with those of the properties that the standard gives them.
LOCATION = closed(
    {
        "physicalLocation": closed(
            {
                "artifactLocation": closed(
                    {"uri": {"type": "string", "format": "uri-reference"}, "uriBaseId": {"type": "string"}},
                    "uri",
                ),
                "region": closed(
                    {
                        "startLine": {"type": "integer", "minimum": 1},
                        "byteOffset": NATURAL,
                        "byteLength": NATURAL,
                    }
                ),
            },
            "artifactLocation",
        ),
        "logicalLocations": listed(closed({"fullyQualifiedName": {"type": "string"}}, "fullyQualifiedName")),
    }
)
RESULT = closed(
    {
        "ruleId": {"type": "string"},
        "ruleIndex": NATURAL,
        "level": LEVEL,
        "message": TEXT,
        "locations": listed(LOCATION),
        "partialFingerprints": {"type": "object", "additionalProperties": {"type": "string"}},
        "suppressions": listed(
            closed({"kind": {"enum": ["inSource", "external"]}, "justification": {"type": "string"}}, "kind")
        ),
    },
    "message",
)
SHAPE: Final = closed(
    {
        "$schema": {"type": "string", "format": "uri"},
        "version": {"const": "2.1.0"},
        "runs": listed(
            closed(
                {
                    "tool": closed(
                        {
                            "driver": closed(
                                {
                                    "name": {"type": "string"},
                                    "version": {"type": "string"},
                                    "rules": listed(
                                        closed(
                                            {
                                                "id": {"type": "string"},
                                                "shortDescription": TEXT,
                                                "help": TEXT,
                                            },
                                            "id",
                                        )
                                    )
                                    | {"uniqueItems": True},
                                },
                                "name",
                            )
                        },
                        "driver",
                    ),
                    "invocations": listed(
                        closed(
                            {
                                "executionSuccessful": {"type": "boolean"},
                                "toolExecutionNotifications": listed(
                                    closed({"level": LEVEL, "message": TEXT}, "message")
                                ),
                            },
                            "executionSuccessful",
                        )
                    ),
                    "columnKind": {"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
                    "results": listed(RESULT),
                },
                "tool",
            )
        ),
    },
    "version",
    "runs",
)


def read(raw: bytes) -> dict[str, Any]:
    log: dict[str, Any] = json.loads(raw)
    jsonschema.Draft7Validator(SHAPE).validate(log)
    run: dict[str, Any] = log["runs"][0]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    for result in run["results"]:
        assert rules[result["ruleIndex"]] == result["ruleId"]
    return run


def test_findings_cleared_and_not_opened_are_told_apart() -> None:
    run = read(report_sarif(replace(REPORT, findings=(FINDING,)), version="1.2.3"))
    by_level = {result["level"] for result in run["results"]}
    assert by_level == {"error", "note"}
    assert [bool(result.get("suppressions")) for result in run["results"]].count(True) == 1
    assert run["tool"]["driver"]["version"] == "1.2.3"


def test_what_was_not_read_makes_the_run_no_success() -> None:
    whole = read(report_sarif(REPORT, version="1"))
    assert whole["invocations"] == [{"executionSuccessful": True}]
    unread = replace(REPORT, coverage=(replace(REPORT.coverage[0], scanned=9),))
    for report in (replace(REPORT, incomplete=("x",)), unread):
        invocation = read(report_sarif(report, version="1"))["invocations"][0]
        assert not invocation["executionSuccessful"]
        assert len(invocation["toolExecutionNotifications"]) == 1


def one(path: str, **more: Any) -> SarifResult:
    return SarifResult(rule="r", level=Level.ERROR, message="m", path=path, **more)


RULES = [SarifRule("r", "says", "help")]


@given(st.text(min_size=1), st.text(max_size=50), st.integers(min_value=0, max_value=2**63))
def test_any_name_of_a_file_is_a_relative_reference(path: str, inside: str, offset: int) -> None:
    run = read(sarif_log(RULES, [one(path, inside=inside, offset=offset)], version="1"))
    uri = run["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    split = urlsplit(uri)
    assert (split.scheme, split.netloc, split.query, split.fragment) == ("", "", "", "")
    assert uri.isascii()
    assert uri


def test_a_name_with_half_a_character_is_written_too() -> None:
    assert path_uri("a\udcffb c?#:") == "a%ED%B3%BFb%20c%3F%23%3A"


def test_what_is_too_much_for_a_code_host_is_counted() -> None:
    run = read(sarif_log(RULES, [one(str(n)) for n in range(MAX_RESULTS + 7)], version="1"))
    assert len(run["results"]) == MAX_RESULTS
    invocation = run["invocations"][0]
    assert "7 more" in invocation["toolExecutionNotifications"][0]["message"]["text"]
    assert invocation["executionSuccessful"]


def test_the_same_place_has_the_same_fingerprint_and_another_another() -> None:
    results = [one("a"), one("a"), one("b"), one("a", offset=1)]
    run = read(sarif_log(RULES, results, version="1"))
    prints = [next(iter(result["partialFingerprints"].values())) for result in run["results"]]
    assert prints[0] == prints[1]
    assert len(set(prints)) == 3


def test_a_place_without_a_path_is_named_by_its_blob() -> None:
    digest = Digest.of(b"x")
    run = read(sarif_log(RULES, [one(Place(PlaceKind.CONFIG, digest).blob)], version="1"))
    location = run["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert location == digest.replace(":", "%3A")
