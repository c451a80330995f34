"""The bill of materials of a build: licences from the artifacts themselves, packages from the base's dpkg."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from builder.building.base_check import read_base
from builder.resolve.tarball import declared_licence
from builder.resolve.wheel import read_wheel
from builder.storage.store import ContentStore
from images.errors import CredentialFound
from images.lock import Artifact, ArtifactKind, Lock, LockSummary
from images.oci import OciImage
from images.planted import find_by_shape
from images.strictjson import JsonValue
from provenance.layout import Rehash, open_image
from provenance.sbom import SbomFacts, installed_debs, make_sbom
from provenance.scan.documents import judge_document
from provenance.statements import BuildFacts


def bill_of(
    image: OciImage, lock: Lock, summary: LockSummary, facts: BuildFacts, store: ContentStore
) -> dict[str, JsonValue]:
    """The document that is signed. CredentialFound when one of its words is a credential."""
    # Its layers are read to their ends, and so hashed, for what the base holds.
    base = read_base(open_image(image.layout, summary.base.manifest, image.platform, rehash=Rehash.LATER))
    debian = base.debian
    bill = make_sbom(
        SbomFacts(
            image=image.digest,
            image_name=facts.image_name,
            platform=image.platform,
            lock=lock,
            key=summary.key,
            builder_id=facts.builder_id,
            version=facts.builder_version,
            distribution=debian.distribution if debian else "",
            codename=debian.codename if debian else "",
            installed=installed_debs(debian.status) if debian else (),
            licences=dict(_licences(summary.artifacts, store)),
        )
    )
    require_no_credential(bill)
    return bill


def require_no_credential(bill: dict[str, JsonValue]) -> None:
    """By the scanner's own tables: what licences and names say is anybody's."""
    planted = find_by_shape(bill)
    rule = planted.rule if planted else None
    named = next(judge_document(json.dumps(bill).encode(), "bill of materials"), None)
    if rule is None and named is None:
        return
    where = named[0] if named else ".".join(map(str, planted.path)) if planted else ""
    rule = rule or (named[1].rule if named else "")
    raise CredentialFound(
        f"the bill of materials holds what rule {rule} says is a credential",
        where=f"bill of materials: {where[:200]}",
        hint="take out of builder.toml what brought it in, then: builder lock",
    )


# A package with a program of its own has it before its package.json, and takes seconds to unpack that far.
MAX_READ: Final = 16 << 20


def _licences(artifacts: tuple[Artifact, ...], store: ContentStore) -> Iterator[tuple[str, str]]:
    """Of packages of npm and wheels, whose own metadata has a field for it; others say it in prose."""
    for artifact in artifacts:
        if artifact.size > MAX_READ:
            continue
        if artifact.kind in (ArtifactKind.NPM, ArtifactKind.NODE):
            with store.open(artifact.integrity, artifact.label) as file:
                yield artifact.id, declared_licence(file, artifact.label)
        elif artifact.kind is ArtifactKind.WHEEL:
            with store.open(artifact.integrity, artifact.filename) as file:
                yield artifact.id, read_wheel(file, artifact.filename).licence
