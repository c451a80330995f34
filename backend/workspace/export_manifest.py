"""The manifest of an export: a closed model, its JSON Schema, and the strict reader of what an agent sent."""

from __future__ import annotations

import json
from typing import Annotated, Any, Final, Literal, NoReturn

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError
from pydantic.alias_generators import to_camel

from backend.workspace.objects import ObjectFormat
from backend.workspace.refusals import CandidateReason, CandidateRefused
from backend.workspace.unseen import MAX_UNSEEN, Unseen, UnseenKind, UnseenReport
from images.errors import VerifyFailed
from images.strictjson import read_object

FORMAT: Final = "agent-image-builder-export"
MAX_MANIFEST: Final = 1024 * 1024
SCHEMA_ID: Final = "https://agent-image-builder.example/export-manifest.schema.json"

ObjectName = Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{40}|[0-9a-f]{64})$")]
QuotedPath = Annotated[str, StringConstraints(pattern=r"^[ -~]+$", max_length=20_000)]
Branch = Annotated[str, StringConstraints(pattern=r"^[!#-\[\]-~]+$", max_length=250)]
Count = Annotated[int, Field(ge=0, le=2**53)]


class _Strict(BaseModel):
    """No unknown key, no conversion of one type into another."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, alias_generator=to_camel, populate_by_name=False
    )


class PackFacts(_Strict):
    """The pack that follows the manifest; empty, with the SHA-256 of nothing, where nothing is new."""

    size: Count = Field(description="bytes")
    sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
    objects: Count = Field(description="objects in it, as its own header says")


class NotExportedEntry(_Strict):
    """One thing in the workspace that is not in the commit."""

    kind: Literal["modified", "untracked", "nested-repository", "submodule", "reference"]
    path: QuotedPath = Field(description="as git quotes it, or the name of a reference")


class NotExported(_Strict):
    """What is in the workspace and not in the commit."""

    total: Count = Field(description="how many there are, named or not")
    complete: bool = Field(description="false where the looking was cut short or failed")
    entries: Annotated[list[NotExportedEntry], Field(max_length=MAX_UNSEEN)]


class ExportManifest(_Strict):
    """What one export says of itself. All of it comes from the container, so all of it is checked."""

    # Not Literal[1]: that takes true for 1.
    schema_version: int = Field(alias="schema", ge=1, le=1)
    format: Literal["agent-image-builder-export"]
    object_format: Literal["sha1", "sha256"]
    base: ObjectName = Field(description="the commit that the workspace started from; it must be known here")
    commit: ObjectName = Field(description="what is exported: the commit of HEAD")
    parents: Annotated[list[ObjectName], Field(max_length=64)] = Field(description="the parents of commit")
    branch: Branch | None = Field(description="the branch of HEAD, for people; null when detached")
    pack: PackFacts
    not_exported: NotExported

    @property
    def unseen(self) -> UnseenReport:
        """What was left behind, as far as the container tells."""
        return UnseenReport(
            entries=tuple(Unseen(UnseenKind(item.kind), item.path) for item in self.not_exported.entries),
            total=self.not_exported.total,
            complete=self.not_exported.complete,
        )


def read_manifest(data: bytes, form: ObjectFormat) -> ExportManifest:
    """The manifest in ``data``, for a repository of this format. Raises CandidateRefused."""
    try:
        document = read_object(
            data, "export manifest", max_bytes=MAX_MANIFEST, max_depth=8, error=VerifyFailed
        )
        manifest = ExportManifest.model_validate(document)
    except VerifyFailed as broken:
        _refuse(broken.what)
    except ValidationError as broken:
        first = broken.errors(include_url=False, include_input=False, include_context=False)[0]
        _refuse(str(first["msg"]), ".".join(map(str, first["loc"])))
    if manifest.object_format != form.value:
        _refuse(f"objects named by {manifest.object_format} for a {form.value} repository", "objectFormat")
    if not all(form.is_name(name) for name in (manifest.base, manifest.commit, *manifest.parents)):
        _refuse("a name that is not one of this repository's format", "base, commit, parents")
    if len(manifest.not_exported.entries) > manifest.not_exported.total:
        _refuse("more entries than its own total", "notExported.total")
    return manifest


def json_schema() -> dict[str, Any]:
    """The published JSON Schema of the manifest."""
    schema = ExportManifest.model_json_schema(by_alias=True)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": SCHEMA_ID,
        **schema,
        "title": "export manifest",
    }


def json_schema_text() -> str:
    """The same as the text of docs/reference/schemas/export-manifest.schema.json."""
    return json.dumps(json_schema(), indent=2, sort_keys=True) + "\n"


def _refuse(what: str, place: str = "") -> NoReturn:
    where = f"export manifest: {place}" if place else "export manifest"
    raise CandidateRefused(CandidateReason.MANIFEST, what, where=where)
