"""The page about exports says what the program says: fields, reasons, bounds, schema, example."""

from __future__ import annotations

import json
import re

import jsonschema

from backend.workspace.export_manifest import (
    ExportManifest,
    NotExported,
    PackFacts,
    json_schema,
    read_manifest,
)
from backend.workspace.git import CANDIDATE_LIMITS, MIB
from backend.workspace.importing import ExportLimits
from backend.workspace.objects import ObjectFormat
from backend.workspace.refusals import CandidateReason, SourceReason
from backend.workspace.trees import TreeLimits
from backend.workspace.unseen import UnseenKind
from tests.docs.documents import ROOT, examples
from tests.docs.export_manifest import SCHEMA

PAGE = ROOT / "docs/reference/export-manifest.md"


def test_the_schema_is_the_models_own() -> None:
    assert json.loads(SCHEMA.read_text()) == json_schema(), "run: python -m tests.docs.export_manifest"


def test_the_example_is_a_manifest() -> None:
    found = [item for item in examples() if item.document.endswith(PAGE.name) and item.language == "json"]
    assert len(found) == 1
    jsonschema.validate(json.loads(found[0].text), json_schema())
    assert read_manifest(found[0].text.encode(), ObjectFormat.SHA1).branch == "work"


def test_every_reason_has_its_line() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \|", PAGE.read_text().partition("\n## Why")[2], re.MULTILINE)
    assert sorted(rows) == sorted(reason.value for reason in (*SourceReason, *CandidateReason))


def test_every_field_and_kind_is_documented() -> None:
    text = PAGE.read_text()
    names = [field.alias or name for name, field in ExportManifest.model_fields.items()]
    names += [f"pack.{name}" for name in PackFacts.model_fields]
    names += [f"notExported.{name}" for name in NotExported.model_fields]
    names += [kind.value for kind in UnseenKind]
    assert [name for name in names if not re.search(rf"`{re.escape(name)}[`.]", text)] == []


def test_the_bounds_are_those_of_the_program() -> None:
    text = PAGE.read_text()
    limits, tree = ExportLimits(), TreeLimits()
    for line in (
        f"| pack | {limits.pack_bytes // MIB} MiB |",
        f"| objects in it | {limits.objects:,} |",
        f"| one object, unpacked | {limits.object_bytes // MIB} MiB |",
        f"| all objects, unpacked | {limits.unpacked_bytes // (1024 * MIB)} GiB |",
        f"| {CANDIDATE_LIMITS.memory // MIB} MiB, {CANDIDATE_LIMITS.cpu_seconds} s, 2 GiB |",
        f"| {tree.entries:,}; {tree.depth}; {tree.path_bytes} |",
    ):
        assert line in text, line
