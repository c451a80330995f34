"""The steps of a verified image as in-toto links under a signed layout, for a verifier that others wrote.

The files of the steps lie beside them. A file's SHA-256 is what a link records, so the image's manifest
stands for the image: its SHA-256 is the image's digest.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from images.digests import Digest
from images.errors import HostError, KeyUnusable, UsageError
from images.lockfile import lock_bytes
from provenance.policy_model import Role
from provenance.signers import Identity, in_words
from provenance.signing import library_key, library_signer

if TYPE_CHECKING:
    from provenance.keys import PrivateKey
    from provenance.signing import Bundle
    from provenance.verify import VerifiedImage

LAYOUT_NAME: Final = "root.layout"
LOCK: Final = "builder.lock"
MANIFEST: Final = "manifest.json"
PROVENANCE: Final = "provenance.json"
SCAN: Final = "scan.json"
DETECTION: Final = "detection.json"
SUMMARY: Final = "summary.json"
INSPECTION: Final = "everything-is-here"
# What there is instead for an image that no key file proved.
OTHERWISE: Final = "check its bundles with cosign: docs/how-to/check-with-other-tools.md"


@dataclass(frozen=True, slots=True)
class _Step:
    """``materials``: each file with the step that made it."""

    name: str
    role: Role
    command: tuple[str, ...]
    materials: tuple[tuple[str, str], ...]
    products: tuple[str, ...]


_STEPS: Final = (
    _Step("resolve", Role.BUILDER, ("builder", "lock"), (), (LOCK,)),
    _Step("build", Role.BUILDER, ("builder", "build"), ((LOCK, "resolve"),), (MANIFEST, PROVENANCE)),
    _Step("scan", Role.BUILDER, ("builder", "build"), ((MANIFEST, "build"),), (SCAN,)),
    _Step("detect", Role.BUILDER, ("builder", "build"), ((MANIFEST, "build"),), (DETECTION,)),
    _Step(
        "verify",
        Role.VERIFIER,
        ("builder", "verify", "--attest"),
        (
            (LOCK, "resolve"),
            (MANIFEST, "build"),
            (PROVENANCE, "build"),
            (SCAN, "scan"),
            (DETECTION, "detect"),
        ),
        (SUMMARY,),
    ),
)


def export_in_toto(
    verified: VerifiedImage, folder: Path, *, builder: PrivateKey, verifier: PrivateKey
) -> tuple[str, ...]:
    """Write layout, links and files into an empty or new ``folder``; returns the names.

    The builder's key signs what it did, the verifier's its decision and the layout: each must be the key that
    the image was proved by. The layout ends with the policy. KeyUnusable for another key, UsageError for a
    folder with something in it, HostError without the library.
    """
    summary = verified.summary
    if summary is None:
        raise UsageError(
            "no verifier has signed a summary of it, so the last step is missing",
            where=str(verified.image.digest),
            hint=f"builder verify --attest {verified.image.digest}",
        )
    _require_key(builder, verified.provenance, Role.BUILDER)
    _require_key(verifier, summary, Role.VERIFIER)
    files = {
        LOCK: lock_bytes(verified.lock),
        MANIFEST: verified.image.manifest.raw,
        PROVENANCE: verified.provenance.statement.raw,
        SCAN: verified.scan.statement.raw,
        DETECTION: verified.detection.statement.raw,
        SUMMARY: summary.statement.raw,
    }
    hashes = {name: Digest.of(content).hex for name, content in files.items()}
    keys = {Role.BUILDER: builder, Role.VERIFIER: verifier}
    files |= _links(hashes, keys)
    files[LAYOUT_NAME] = _layout(keys, f"{verified.policy.valid_until:%Y-%m-%dT%H:%M:%SZ}")
    _write(folder, files)
    return tuple(sorted(files))


def require_made_by_keys(verified: VerifiedImage) -> None:
    """Asked before keys are read. KeyUnusable for an identity: its key was gone minutes after."""
    for bundle, role in ((verified.provenance, Role.BUILDER), (verified.summary, Role.VERIFIER)):
        if bundle is not None and isinstance(bundle.signer, Identity):
            raise KeyUnusable(
                f"the {role} that proved this image is an {in_words(bundle.signer)}, and links need a key",
                where=str(verified.image.digest),
                hint=OTHERWISE,
            )


def _require_key(given: PrivateKey, bundle: Bundle, role: Role) -> None:
    if given.public.fingerprint != bundle.signer:
        raise KeyUnusable(
            f"key {given.public.fingerprint} is not the {role} that proved this image: "
            f"{in_words(bundle.signer)}",
            hint=f"builder export in-toto, with the {role} key",
        )


def _links(hashes: dict[str, str], keys: dict[Role, PrivateKey]) -> dict[str, bytes]:
    library = _library()
    made = {}
    for step in _STEPS:
        link = library.Link(
            name=step.name,
            command=list(step.command),
            materials={name: {"sha256": hashes[name]} for name, _ in step.materials},
            products={name: {"sha256": hashes[name]} for name in step.products},
            byproducts={"return-value": 0},
            environment={},
        )
        signer = keys[step.role]
        made[f"{step.name}.{library_key(signer.public)['keyid'][:8]}.link"] = _signed(link, signer)
    return made


def _layout(keys: dict[Role, PrivateKey], expires: str) -> bytes:
    """Every file is required, is matched with the step that made it, and nothing else may be there.

    MATCH alone only takes from the list what is the same: what differs, or is missing, it lets pass.
    """
    library = _library()
    layout = library.Layout(expires=expires)
    public = {role: library_key(signer.public) for role, signer in keys.items()}
    for key in public.values():
        layout.add_functionary_key(key)
    layout.steps = [
        library.Step(
            name=step.name,
            expected_command=list(step.command),
            pubkeys=[public[step.role]["keyid"]],
            threshold=1,
            expected_materials=[*_from(step.materials), ["DISALLOW", "*"]],
            expected_products=[
                *([word, name] for name in step.products for word in ("REQUIRE", "CREATE")),
                ["DISALLOW", "*"],
            ],
        )
        for step in _STEPS
    ]
    final = [*_from(tuple((name, step.name) for step in _STEPS for name in step.products))]
    final += [["ALLOW", LAYOUT_NAME], ["DISALLOW", "*"]]
    # `true` changes nothing: an inspection is the only way to have the files themselves compared.
    layout.inspect = [
        library.Inspection(name=INSPECTION, run=["true"], expected_materials=final, expected_products=final)
    ]
    return _signed(layout, keys[Role.VERIFIER])


def _from(files: tuple[tuple[str, str], ...]) -> list[list[str]]:
    """Required, and the same as what the step made."""
    return [
        rule
        for name, step in files
        for rule in (["REQUIRE", name], ["MATCH", name, "WITH", "PRODUCTS", "FROM", step])
    ]


def _signed(signable: Any, signer: PrivateKey) -> bytes:
    block = _library().Metablock(signed=signable)
    block.create_signature(library_signer(signer))
    return (json.dumps(block.to_dict(), sort_keys=True, indent=1) + "\n").encode()


@dataclass(frozen=True, slots=True)
class _Library:
    Layout: Any
    Step: Any
    Inspection: Any
    Link: Any
    Metablock: Any


def _library() -> _Library:
    """in-toto, which only who exports needs."""
    try:
        from in_toto.models.layout import Inspection, Layout, Step  # noqa: PLC0415
        from in_toto.models.link import Link  # noqa: PLC0415
        from in_toto.models.metadata import Metablock  # noqa: PLC0415
    except ImportError:
        raise HostError(
            "in-toto is not installed, and links are written with it",
            hint="pip install 'agent-image-builder[in-toto]'",
        ) from None
    return _Library(Layout, Step, Inspection, Link, Metablock)


def _write(folder: Path, files: dict[str, bytes]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise UsageError("there is something in it already", where=str(folder), hint="name a new folder")
        for name, content in files.items():
            (folder / name).write_bytes(content)
    except OSError as broken:
        raise UsageError(
            f"cannot be written: {broken.strerror}", where=str(folder), hint="name a new folder"
        ) from None
