"""`builder diff`: what differs between two locks, projects or images, for review. Nothing is judged."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from builder.cli.documents.difference import (
    ArtifactDocument,
    BytesDocument,
    DiffDocument,
    DifferenceDocument,
    FieldDocument,
    ImageDocument,
    LayerDocument,
    LayersDocument,
    LockDocument,
    PackageDocument,
    ScriptDocument,
)
from builder.cli.invocation import Invocation, Result
from builder.cli.platform import host_platform
from builder.cli.session import state_of
from builder.daily.comparing import Side, file_differences, open_side
from images.difference import (
    FieldChange,
    ImageDifference,
    LockDifference,
    PackageChange,
    image_difference,
    lock_difference,
)
from images.errors import UsageError
from images.lock import Artifact
from images.oci import Descriptor
from images.redaction import redact

_REF = "@refs/"  # in a publisher's URI: before the tag or branch that was built
_SIGNS = {"added": "+", "removed": "-", "changed": "~"}


def run(invocation: Invocation) -> Result[DiffDocument]:
    """The differences, one a line: ``+`` added, ``-`` removed, ``~`` changed. Nothing when there are none."""

    def layout() -> Path:
        return state_of(invocation).layout

    before, after = (
        open_side(words, layout, host_platform())
        for words in (invocation.options.before, invocation.options.after)
    )
    for note in (*before.notes, *after.notes):
        invocation.reporter.warn(note)
    lock = lock_difference(before.lock, after.lock) if before.lock and after.lock else None
    image = image_difference(before.image, after.image) if before.image and after.image else None
    if lock is None and image is None:
        raise UsageError(
            "there is nothing that both sides have",
            where=f"{before.words}, {after.words}",
            hint="compare two locks, two projects or two images",
        )
    files = _files(invocation, before, after) if image is not None else ()
    lines = [
        *(_lock_lines(lock) if lock else ()),
        *(_image_lines(image) if image else ()),
        *_file_lines(files),
    ]
    if not lines:
        invocation.reporter.say("no difference")
    document = DiffDocument(
        diff=DifferenceDocument(
            same=not lines,
            lock=_lock_document(lock) if lock else None,
            image=_image_document(image, files) if image else None,
            notes=(*before.notes, *after.notes),
        )
    )
    return Result(line="\n".join(_shown(line) for line in lines), document=document)


def _files(invocation: Invocation, before: Side, after: Side) -> tuple[FieldChange, ...]:
    if before.image is None or after.image is None:
        return ()
    with invocation.reporter.step("compare the files of the layers that differ"):
        return file_differences(before.image, after.image)


def _shown(line: str) -> str:
    """Names and values are of packages and images: no credential and no terminal code of theirs gets out."""
    return redact("".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in line))


def _lock_lines(difference: LockDifference) -> Iterable[str]:
    yield from _field_lines(difference.fields)
    for package in difference.packages:
        versions = " -> ".join(
            ", ".join(artifact.version for artifact in side)
            for side in (package.before, package.after)
            if side
        )
        yield f"{_SIGNS[package.change]} {package.kind} {package.name} {versions}"
        yield from (f"    - {artifact.version} {artifact.integrity}" for artifact in package.before)
        yield from (f"    + {artifact.version} {artifact.integrity}" for artifact in package.after)
        was, now = (_vouched(side) for side in (package.before, package.after))
        if was and now and was != now:
            yield f"    ! authenticated: {was} -> {now}"
        for version in package.other_bytes:
            yield f"    ! {package.name}@{version} is the same version with other bytes"
    for script in difference.scripts:
        yield f"~ {script.event} script of {script.package}"
        yield from (f"    - {_run(script.ran)}: {command}" for command in script.before)
        yield from (f"    + {_run(script.runs)}: {command}" for command in script.after)
    if difference.bytes_before != difference.bytes_after:
        yield f"~ bytes of all artifacts: {difference.bytes_before} -> {difference.bytes_after}"


def _vouched(artifacts: Iterable[Artifact]) -> str:
    """Who vouched: a new version that nobody signs any more is what a hijack looks like."""
    return ", ".join(sorted({_word(one) for one in artifacts}))


def _word(artifact: Artifact) -> str:
    """Without the ref of a publisher, which is another one for each release."""
    said = f"{artifact.authenticated} {artifact.signer.partition(_REF)[0]}".rstrip()
    found = artifact.attestation
    if found is None or found.bundle:
        return said
    return f"{said} (published by {found.publisher.partition(_REF)[0]}, unexpected)"


def _run(runs: bool) -> str:
    return "runs in the build" if runs else "does not run"


def _image_lines(difference: ImageDifference) -> Iterable[str]:
    yield from _field_lines(difference.fields)
    yield from _field_lines(difference.environment, "environment ")
    yield from _field_lines(difference.labels, "label ")
    for sign, layers in (("-", difference.removed), ("+", difference.added)):
        yield from (f"{sign} layer {layer.digest} {layer.size} bytes" for layer in layers)
    if difference.removed or difference.added:
        kept, gone, come = (_size(one) for one in (difference.kept, difference.removed, difference.added))
        yield f"~ bytes of layers: {kept} kept, {gone} removed, {come} added"


def _file_lines(files: Sequence[FieldChange]) -> Iterable[str]:
    return _field_lines(files, "file ")


def _field_lines(changes: Iterable[FieldChange], what: str = "") -> Iterable[str]:
    for change in changes:
        if change.before is None:
            yield f"+ {what}{change.field}: {change.after}"
        elif change.after is None:
            yield f"- {what}{change.field}: {change.before}"
        else:
            yield f"~ {what}{change.field}: {change.before} -> {change.after}"


def _size(layers: Iterable[Descriptor]) -> int:
    return sum(layer.size for layer in layers)


def _lock_document(difference: LockDifference) -> LockDocument:
    return LockDocument(
        fields=_changes(difference.fields),
        packages=tuple(_package(package) for package in difference.packages),
        scripts=tuple(
            ScriptDocument(
                package=script.package,
                event=script.event,
                before=tuple(redact(command) for command in script.before),
                after=tuple(redact(command) for command in script.after),
                ran=script.ran,
                runs=script.runs,
            )
            for script in difference.scripts
        ),
        bytes=BytesDocument(before=difference.bytes_before, after=difference.bytes_after),
    )


def _package(package: PackageChange) -> PackageDocument:
    return PackageDocument(
        kind=package.kind,
        name=package.name,
        change=package.change,
        before=tuple(_artifact(artifact) for artifact in package.before),
        after=tuple(_artifact(artifact) for artifact in package.after),
        other_bytes=package.other_bytes,
    )


def _artifact(artifact: Artifact) -> ArtifactDocument:
    return ArtifactDocument(
        version=artifact.version,
        integrity=str(artifact.integrity),
        bytes=artifact.size,
        platforms=tuple(str(platform) for platform in artifact.platforms),
        registry=artifact.registry,
        authenticated=artifact.authenticated,
        signer=artifact.signer,
    )


def _image_document(difference: ImageDifference, files: Iterable[FieldChange]) -> ImageDocument:
    def listed(layers: Iterable[Descriptor]) -> tuple[LayerDocument, ...]:
        return tuple(LayerDocument(digest=str(layer.digest), bytes=layer.size) for layer in layers)

    return ImageDocument(
        fields=_changes(difference.fields),
        environment=_changes(difference.environment),
        labels=_changes(difference.labels),
        layers=LayersDocument(
            kept=listed(difference.kept), removed=listed(difference.removed), added=listed(difference.added)
        ),
        files=_changes(files),
    )


def _changes(changes: Iterable[FieldChange]) -> tuple[FieldDocument, ...]:
    return tuple(
        FieldDocument(
            field=change.field,
            before=None if change.before is None else redact(change.before),
            after=None if change.after is None else redact(change.after),
        )
        for change in changes
    )
