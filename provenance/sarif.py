"""Write findings as SARIF 2.1.0 (OASIS), the form in which code hosts show what a checker says. Pure.

It knows nothing of what is checked. Whatever a message holds, it is shown as text: redacted, on one line, no
link.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final
from urllib.parse import quote

from images.redaction import redact
from images.strictjson import JsonValue

SARIF_VERSION: Final = "2.1.0"
SARIF_SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
TOOL_NAME: Final = "agent-image-builder"
MAX_RESULTS: Final = 5000  # what one run of a code host takes at most
MAX_MESSAGE: Final = 1000
_FINGERPRINT: Final = "placeHash/v1"
_CHECKOUT: Final = "%SRCROOT%"  # by the name that code hosts give it
_LINK: Final = re.compile(r"[\\\[\]]")  # in a plain text message these begin an embedded link


class Level(StrEnum):
    """How much a result matters."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class SarifRule:
    """One kind of result: its id, what it says, and what helps, if anything does in general."""

    id: str
    says: str
    help: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SarifResult:
    """One result. ``path``: a file, of the checkout or ``inside`` of what these words name; empty for none.

    ``same_as``: what makes it the same result in the next run, on whatever line; else its place does.
    ``accepted``: why it does not count; code hosts then show it as closed.
    """

    rule: str
    level: Level
    message: str
    path: str = ""
    line: int | None = None
    offset: int | None = None
    inside: str = ""
    same_as: str = ""
    accepted: str = ""


def sarif_log(
    rules: Iterable[SarifRule],
    results: Iterable[SarifResult],
    *,
    version: str,
    failures: Iterable[str] = (),
) -> bytes:
    """One log of one run. ``failures``: why the check did not see everything; then it was no success."""
    used = {rule.id: rule for rule in rules}
    order = {id: number for number, id in enumerate(used)}
    notes: list[JsonValue] = [{"level": "error", "message": {"text": text}} for text in failures]
    invocation: dict[str, JsonValue] = {"executionSuccessful": not notes}
    shown = list(results)
    if len(shown) > MAX_RESULTS:
        text = f"{len(shown) - MAX_RESULTS} more results are not listed here"
        notes.append({"level": "warning", "message": {"text": text}})
    if notes:
        invocation["toolExecutionNotifications"] = notes
    driver: dict[str, JsonValue] = {
        "name": TOOL_NAME,
        "version": version,
        "rules": [_rule(rule) for rule in used.values()],
    }
    run: dict[str, JsonValue] = {
        "tool": {"driver": driver},
        "invocations": [invocation],
        "columnKind": "unicodeCodePoints",
        "results": [_result(one, order) for one in shown[:MAX_RESULTS]],
    }
    log: dict[str, JsonValue] = {"$schema": SARIF_SCHEMA, "version": SARIF_VERSION, "runs": [run]}
    return json.dumps(log, ensure_ascii=False, indent=1).encode("utf-8", "replace") + b"\n"


def _rule(rule: SarifRule) -> JsonValue:
    told: dict[str, JsonValue] = {"id": rule.id, "shortDescription": {"text": rule.says}}
    if rule.help:
        told["help"] = {"text": rule.help}
    return told


def _result(result: SarifResult, order: dict[str, int]) -> JsonValue:
    found: dict[str, JsonValue] = {
        "ruleId": result.rule,
        "ruleIndex": order[result.rule],
        "level": result.level.value,
        "message": {"text": plain_text(result.message) or result.rule},
        # Of rule and place, never of a value: a code host keeps what it is given.
        "partialFingerprints": {_FINGERPRINT: _place_hash(result)},
    }
    if result.path:
        found["locations"] = [_location(result)]
    if result.accepted:
        found["suppressions"] = [{"kind": "external", "justification": result.accepted}]
    return found


def _location(result: SarifResult) -> JsonValue:
    region: dict[str, JsonValue] = {}
    if result.line is not None:
        region["startLine"] = result.line
    elif result.offset is not None:
        region |= {"byteOffset": result.offset, "byteLength": 0}
    artifact: dict[str, JsonValue] = {"uri": path_uri(result.path)}
    if not result.inside:
        artifact["uriBaseId"] = _CHECKOUT
    physical: dict[str, JsonValue] = {"artifactLocation": artifact}
    if region:
        physical["region"] = region
    location: dict[str, JsonValue] = {"physicalLocation": physical}
    if result.inside:
        location["logicalLocations"] = [{"fullyQualifiedName": result.inside}]
    return location


def plain_text(text: str) -> str:
    """Text from anywhere as a message: redacted, bounded, on one line, without links."""
    shown = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in redact(text))
    return _LINK.sub(lambda found: "\\" + found[0], shown[:MAX_MESSAGE])


def path_uri(path: str) -> str:
    """A path as a relative reference: whatever bytes it has, no reader takes it for another address."""
    text = quote(path.encode("utf-8", "surrogatepass"), safe="/!$&'()*+,;=@-._~").lstrip("/")
    return text or "."


def _place_hash(result: SarifResult) -> str:
    at = () if result.same_as else (str(result.line), str(result.offset))
    place = "\0".join((result.rule, result.path, result.inside, *at, result.same_as))
    return hashlib.sha256(place.encode("utf-8", "surrogatepass")).hexdigest()[:32]
