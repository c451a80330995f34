"""Writes the JSON Schemas of what commands print with --json, and their page.

``python -m tests.docs.result_schemas``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from pydantic import TypeAdapter

from builder.cli.documents import RESULT_SCHEMA, Answer, Document
from tests.docs.documents import ROOT
from tests.results import SCHEMAS, kinds, page, possible

TABLE = ROOT / "docs/reference/results.md"
_ROWS = re.compile(
    r"(?<=^\| command \| schema \| what it says \|\n\|---\|---\|---\|\n)(?:\|.*\n)*", re.MULTILINE
)


def render(name: str) -> str:
    """The whole object that is printed with this result."""
    document = kinds()[name]
    kind = document.KIND
    made = TypeAdapter(document).json_schema()
    definitions = made.pop("$defs", {})
    for one in (made, *definitions.values()):
        if one.get("type") == "object":
            one["additionalProperties"] = False
            one["properties"] = {key.rstrip("_"): value for key, value in one["properties"].items()}
            one["required"] = [key.rstrip("_") for key in one["required"]]
        one.pop("title", None)
        for field in one.get("properties", {}).values():
            field.pop("title", None)
    always: dict[str, Any] = {
        "schema": {"const": RESULT_SCHEMA},
        "command": {"const": kind.command},
        "ok": {"const": True},
        "result": {"const": kind.identity},
    }
    found = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": kind.identity,
        "title": f"What `builder {kind.typed} --json` prints when it succeeds",
        **made,
        "properties": always | made["properties"],
        "required": [*always, *made["required"]],
    }
    if kind.answer is Answer.VERDICT:
        found["title"] = f"What `builder {kind.typed} --json` prints when it has its answer, a bad one too"
        error = json.loads(page("result").read_text())["properties"]["error"]
        found["properties"] |= {"ok": {"type": "boolean"}, "error": error}
        found |= {
            "if": {"properties": {"ok": {"const": True}}},
            "then": {"properties": {"error": False}},
            "else": {"required": ["error"]},
        }
    found["$defs"] = definitions | _embedded(found)
    return json.dumps(found, indent=2, ensure_ascii=False).replace("``", "`") + "\n"


def _embedded(schema: dict[str, Any]) -> dict[str, Any]:
    """The schemas of other pages that this one names: nobody has to fetch them."""
    pages = (json.loads(one.read_text()) for one in sorted(SCHEMAS.iterdir()))
    named = set(_references(schema))
    return {one["$id"].rsplit("/", 2)[-2]: one for one in pages if one.get("$id") in named}


def _references(schema: object) -> Iterator[str]:
    if isinstance(schema, dict):
        if isinstance(target := schema.get("$ref"), str):
            yield target
        for one in schema.values():
            yield from _references(one)
    elif isinstance(schema, list):
        for one in schema:
            yield from _references(one)


def render_page() -> str:
    """The page with its table as it should be: each command, as it is typed, with its schema."""
    listed = [
        one
        for documents in possible().values()
        for one in sorted(documents, key=lambda document: document.KIND.typed)
    ]
    return _ROWS.sub(lambda _: "".join(map(_row, listed)), TABLE.read_text())


def _row(document: type[Document]) -> str:
    what = " ".join((document.__doc__ or "").replace("``", "`").split())
    typed, name = document.KIND.typed.replace("|", "\\|"), document.KIND.name
    return f"| `builder {typed}` | [{name}](schemas/{name}.schema.json) | {what} |\n"


if __name__ == "__main__":
    for name in kinds():
        page(name).write_text(render(name))
    TABLE.write_text(render_page())
