"""Writes the JSON Schemas of what `outdated` and `diff` print: ``python -m tests.docs.result_schemas``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from builder.cli import RESULT_SCHEMA
from builder.cli.documents import DIFF, OUTDATED, DiffDocument, OutdatedDocument
from builder.cli.run_documents import (
    PS,
    REAP,
    RUNS,
    SHOW_RUN,
    PsDocument,
    ReapDocument,
    RunsDocument,
    ShowRunDocument,
)
from tests.docs.documents import ROOT

FOLDER = ROOT / "docs/reference/schemas"
RESULTS: dict[str, tuple[str, type]] = {
    "outdated": (OUTDATED, OutdatedDocument),
    "diff": (DIFF, DiffDocument),
    "ps": (PS, PsDocument),
    "reap": (REAP, ReapDocument),
    "runs": (RUNS, RunsDocument),
    "show-run": (SHOW_RUN, ShowRunDocument),
}


def page(command: str) -> Path:
    """Where the schema of one command lies."""
    return FOLDER / f"{command}.schema.json"


def render(command: str) -> str:
    """The whole object that the command prints when it succeeds; a failure is result.schema.json's."""
    identity, document = RESULTS[command]
    made = TypeAdapter(document).json_schema()
    definitions = made.pop("$defs", {})
    for one in (made, *definitions.values()):
        if one.get("type") == "object":
            one["additionalProperties"] = False
        one.pop("title", None)
        for field in one.get("properties", {}).values():
            field.pop("title", None)
    envelope: dict[str, Any] = {
        "schema": {"const": RESULT_SCHEMA},
        "command": {"const": command.partition("-")[0]},
        "ok": {"const": True},
        "result": {"const": identity},
    }
    found = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": identity,
        "title": f"What `builder {command} --json` prints when it succeeds",
        **made,
        "properties": envelope | made["properties"],
        "required": [*envelope, *made["required"]],
        "$defs": definitions,
    }
    return json.dumps(found, indent=2, ensure_ascii=False).replace("``", "`") + "\n"


if __name__ == "__main__":
    for command in RESULTS:
        page(command).write_text(render(command))
