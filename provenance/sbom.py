"""A CycloneDX bill of materials of one image, made of its lock and of what its base has installed. Pure.

Equal inputs give equal bytes: it holds no time, and its serial number comes from what it describes.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from images.digests import Digest
from images.lock import Artifact, ArtifactKind, Lock
from images.lockfile import lock_digest
from images.pypi import normal_name
from images.toolchain import split_name
from provenance.predicates import SBOM_BUILDER, SBOM_KEY, SBOM_LOCK, SBOM_SPEC, URI_ROOT

if TYPE_CHECKING:
    from images.oci import Platform
    from images.strictjson import JsonValue

SCHEMA: Final = f"http://cyclonedx.org/schema/bom-{SBOM_SPEC}.schema.json"
BASE_REF: Final = "base"
IMAGE_REF: Final = "image"
BUNDLED: Final = "bundled:"
INSTALLED: Final = "base:"
_ALGORITHMS: Final = {"sha256": "SHA-256", "sha512": "SHA-512"}
_TYPES: Final = {
    ArtifactKind.NODE: "platform",
    ArtifactKind.SKILL: "data",
    ArtifactKind.ARCHIVE: "file",
}
MAX_LICENCE: Final = 200


@dataclass(frozen=True, slots=True, order=True)
class InstalledDeb:
    """A package that the base has, as its dpkg says."""

    name: str
    architecture: str
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SbomFacts:
    """``licences``: of artifacts by id, in their own words. ``distribution``, ``codename``: of the base."""

    image: Digest
    image_name: str
    platform: Platform
    lock: Lock
    key: Digest
    builder_id: str
    version: str
    distribution: str = "debian"
    codename: str = ""
    installed: tuple[InstalledDeb, ...] = ()
    licences: Mapping[str, str] = field(default_factory=dict)


def make_sbom(facts: SbomFacts) -> dict[str, JsonValue]:
    """The whole document: the image, its base, every artifact of the lock, and who needs what."""
    lock, platform = facts.lock, facts.platform
    artifacts = lock.artifacts_for(platform)
    replaced = {artifact.name for artifact in artifacts if artifact.kind is ArtifactKind.DEB}
    installed = [deb for deb in facts.installed if not {f"{deb.name}:{deb.architecture}"} & replaced]
    bundled = tuple(_bundled(lock, platform))
    components = [_base(facts)]
    components += [_installed(deb, facts) for deb in sorted(installed)]
    components += [_artifact(artifact, facts) for artifact in artifacts]
    components += [one.component() for one in bundled]
    needs: dict[str, set[str]] = {IMAGE_REF: {BASE_REF}, BASE_REF: set(map(_ref, installed))}
    known = {artifact.id for artifact in artifacts}
    for artifact in artifacts:
        for parent in artifact.parents:
            # What is no artifact is a place in builder.toml: the image itself asks for it.
            needs.setdefault(parent if parent in known else IMAGE_REF, set()).add(artifact.id)
    for one in bundled:
        needs.setdefault(one.carrier, set()).add(one.ref)
    identity = f"{URI_ROOT}sbom/{facts.image}/{lock_digest(lock)}/{facts.image_name}"
    refs = [IMAGE_REF, *(str(component["bom-ref"]) for component in components)]
    return {
        "$schema": SCHEMA,
        "bomFormat": "CycloneDX",
        "specVersion": SBOM_SPEC,
        "serialNumber": uuid.uuid5(uuid.NAMESPACE_URL, identity).urn,
        "version": 1,
        "metadata": _metadata(facts),
        "components": [*components],
        "dependencies": [{"ref": ref, "dependsOn": [*sorted(needs.get(ref, ()))]} for ref in refs],
    }


def locked_components(lock: Lock, platform: Platform) -> dict[str, dict[str, JsonValue]]:
    """What a bill must say of each artifact of a lock, by reference: name, version, purl, hashes."""
    found = {artifact.id: _identity(artifact, "") for artifact in lock.artifacts_for(platform)}
    return found | {one.ref: one.component() for one in _bundled(lock, platform)}


def _metadata(facts: SbomFacts) -> JsonValue:
    name = facts.image_name.rpartition("/")[2].lower()
    properties = {SBOM_BUILDER: facts.builder_id, SBOM_LOCK: lock_digest(facts.lock), SBOM_KEY: facts.key}
    return {
        "lifecycles": [{"phase": "build"}],
        "tools": {
            "components": [{"type": "application", "name": "agent-image-builder", "version": facts.version}]
        },
        "component": {
            "type": "container",
            "bom-ref": IMAGE_REF,
            "name": facts.image_name,
            "version": str(facts.image),
            "hashes": [{"alg": "SHA-256", "content": facts.image.hex}],
            "purl": purl("oci", name, str(facts.image), {"arch": facts.platform.architecture}),
        },
        "properties": [{"name": key, "value": str(value)} for key, value in sorted(properties.items())],
    }


def _base(facts: SbomFacts) -> dict[str, JsonValue]:
    base = facts.lock.base
    manifest = base.image(facts.platform).manifest
    return {
        "type": "container",
        "bom-ref": BASE_REF,
        "name": base.name,
        "version": str(manifest),
        "hashes": [{"alg": "SHA-256", "content": manifest.hex}],
        "purl": purl(
            "oci", base.name.rpartition("/")[2], str(manifest), {"arch": facts.platform.architecture}
        ),
    }


def _ref(deb: InstalledDeb) -> str:
    return f"{INSTALLED}{deb.name}:{deb.architecture}@{deb.version}"


def _installed(deb: InstalledDeb, facts: SbomFacts) -> dict[str, JsonValue]:
    return {
        "type": "library",
        "bom-ref": _ref(deb),
        "name": deb.name,
        "version": deb.version,
        "purl": _deb_purl(deb.name, deb.architecture, deb.version, facts.distribution, facts.codename),
    }


def _artifact(artifact: Artifact, facts: SbomFacts) -> dict[str, JsonValue]:
    found = _identity(artifact, facts.distribution, facts.codename)
    if licence := facts.licences.get(artifact.id, ""):
        found["licenses"] = [_licence(licence)]
    places = [parent for parent in artifact.parents if ":" not in parent]
    properties = {"authenticated": str(artifact.authenticated), "registry": artifact.registry}
    properties |= {"signer": artifact.signer} if artifact.signer else {}
    properties |= {"place": " ".join(places)} if places else {}
    found["properties"] = [
        {"name": f"agent-image-builder:{name}", "value": value} for name, value in sorted(properties.items())
    ]
    return found


def _identity(artifact: Artifact, distribution: str, codename: str = "") -> dict[str, JsonValue]:
    integrity = artifact.integrity
    found: dict[str, JsonValue] = {
        "type": _TYPES.get(artifact.kind, "library"),
        "bom-ref": artifact.id,
        "name": artifact.name,
        "hashes": [{"alg": _ALGORITHMS[integrity.algorithm], "content": integrity.hex}],
        "purl": _purl(artifact, distribution, codename),
    }
    if artifact.version:
        found["version"] = artifact.version
    return found


def _purl(artifact: Artifact, distribution: str, codename: str) -> str:
    match artifact.kind:
        case ArtifactKind.NPM | ArtifactKind.NODE:
            return purl("npm", artifact.name, artifact.version)
        case ArtifactKind.WHEEL:
            return purl(
                "pypi", normal_name(artifact.name), artifact.version, {"file_name": artifact.filename}
            )
        case ArtifactKind.DEB:
            name, architecture = split_name(artifact.name)
            return _deb_purl(name, architecture, artifact.version, distribution, codename)
        case _:
            checksum = f"{artifact.integrity.algorithm}:{artifact.integrity.hex}"
            return purl("generic", artifact.name, artifact.version, {"checksum": checksum})


def _deb_purl(name: str, architecture: str, version: str, distribution: str, codename: str) -> str:
    qualifiers = {"arch": architecture} | ({"distro": codename} if codename else {})
    return purl("deb", f"{distribution or 'debian'}/{name}", version, qualifiers)


def purl(kind: str, name: str, version: str, qualifiers: Mapping[str, str] | None = None) -> str:
    """A package URL; what stands before the last ``/`` of the name is its namespace."""
    from packageurl import PackageURL  # noqa: PLC0415  (only who makes or compares a bill needs it)

    namespace, _, last = name.rpartition("/")
    return PackageURL(kind, namespace or None, last, version or None, dict(qualifiers or {})).to_string()


def _licence(text: str) -> JsonValue:
    """An SPDX expression as such; anything else is a name, in the artifact's own words."""
    from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression  # noqa: PLC0415

    try:
        return {"expression": str(canonicalize_license_expression(text))}
    except (InvalidLicenseExpression, ValueError):
        return {"license": {"name": text[:MAX_LICENCE]}}


@dataclass(frozen=True, slots=True)
class _Bundled:
    """A package inside another one's tarball; its carrier's hash covers it."""

    path: str
    version: str
    carrier: str

    @property
    def name(self) -> str:
        return self.path.rpartition("node_modules/")[2]

    @property
    def ref(self) -> str:
        return f"{BUNDLED}{self.carrier}:{self.path}"

    def component(self) -> dict[str, JsonValue]:
        return {
            "type": "library",
            "bom-ref": self.ref,
            "name": self.name,
            "version": self.version,
            "purl": purl("npm", self.name, self.version),
        }


def _bundled(lock: Lock, platform: Platform) -> Iterator[_Bundled]:
    """Each once, below the nearest package around it that is an artifact."""
    seen: set[str] = set()
    for installed in lock.installed:
        tree = installed.tree(platform)
        carriers = {entry.path: entry.artifact for entry in tree.entries}
        for one in tree.bundled:
            above = one.path
            while above not in carriers and "/node_modules/" in above:
                above = above.rpartition("/node_modules/")[0]
            carrier = carriers.get(above, installed.root)
            inner = one.path.removeprefix(f"{above}/") if above in carriers else one.path
            found = _Bundled(inner, one.version, carrier)
            if found.ref not in seen:
                seen.add(found.ref)
                yield found


def installed_debs(status: bytes) -> tuple[InstalledDeb, ...]:
    """What dpkg's record says is installed; a paragraph that is no package's is left out."""
    found = set()
    for paragraph in status.decode("utf-8", "replace").split("\n\n"):
        fields = dict(_fields(paragraph.splitlines()))
        if fields.get("Status", "").split()[-1:] != ["installed"]:
            continue
        one = InstalledDeb(*(fields.get(name, "")[:120] for name in ("Package", "Architecture", "Version")))
        if all((one.name, one.architecture, one.version)):
            found.add(one)
    return tuple(sorted(found))


def _fields(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    for line in lines:
        name, colon, value = line.partition(":")
        if colon and not line[:1].isspace():
            yield name, value.strip()
