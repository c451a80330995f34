"""Writes the JSON Schema of the export manifest: ``python -m tests.docs.export_manifest``."""

from __future__ import annotations

from backend.workspace.export_manifest import json_schema_text
from tests.docs.documents import ROOT

SCHEMA = ROOT / "docs/reference/schemas/export-manifest.schema.json"

if __name__ == "__main__":
    SCHEMA.write_text(json_schema_text())
