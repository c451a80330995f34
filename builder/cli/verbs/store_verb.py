"""`builder store add`, `export` and `import`: files of the operator's, and one archive for a team."""

from __future__ import annotations

from pathlib import Path

from builder.cli.documents.storage import (
    AddedDocument,
    AddedFileDocument,
    ArchiveDocument,
    BroughtDocument,
    ExportedDocument,
    ImportedDocument,
    NewDocument,
)
from builder.cli.invocation import Invocation, Result
from builder.cli.session import open_workshop
from builder.report import visible
from builder.storage.adding import add_files
from builder.storage.archive_format import Part
from builder.storage.exporting import export
from builder.storage.importing import import_archive
from images.digests import Digest


def run(invocation: Invocation) -> Result[AddedDocument | ExportedDocument | ImportedDocument]:
    """What each act prints is said at it."""
    match invocation.options.act:
        case "add":
            return _add(invocation)
        case "export":
            return _export(invocation)
        case _:
            return _import(invocation)


def _add(invocation: Invocation) -> Result[AddedDocument]:
    """One line a file, for ``[archives]`` in builder.toml."""
    workshop = open_workshop(invocation)
    with workshop.at_work():
        added = add_files(workshop.state, invocation.options.files)
    document = AddedDocument(
        added=tuple(
            AddedFileDocument(file=str(one.path), sha256=one.integrity.hex, size=one.size, line=one.line)
            for one in added
        )
    )
    return Result(line="\n".join(one.line for one in added), document=document)


def _export(invocation: Invocation) -> Result[ExportedDocument]:
    """One line: the archive's digest, to compare on the other side."""
    options = invocation.options
    done = export(
        open_workshop(invocation),
        options.out,
        lock_path=options.lock or Path("builder.lock"),
        image=Digest(options.image) if options.image else None,
    )
    manifest = done.manifest
    invocation.reporter.say(
        f"exported: {visible(str(options.out))}, {done.size} bytes, {len(manifest.artifacts)} artifacts, "
        f"{len(manifest.of(Part.REFERRER))} pieces of evidence"
    )
    document = ArchiveDocument(
        archive=str(done.digest),
        file=str(options.out),
        size=done.size,
        lock=str(manifest.lock),
        image=manifest.image,
        artifacts=len(manifest.artifacts),
        evidence=len(manifest.of(Part.REFERRER)),
    )
    return Result(line=str(done.digest), document=ExportedDocument(exported=document))


def _import(invocation: Invocation) -> Result[ImportedDocument]:
    """One line: the digest of the image, or of the lock when no image came."""
    done = import_archive(open_workshop(invocation), invocation.options.file)
    say = invocation.reporter.say
    say(
        f"imported: {done.new_artifacts} of {done.artifacts} artifacts, {done.new_blobs} blobs and "
        f"{done.new_manifests} manifests were new"
    )
    for line in done.settings:
        invocation.reporter.note("settings.toml", f"to build with what came, write: {line}")
    say("nothing of it is trusted yet: builder verify")
    document = BroughtDocument(
        lock=str(done.lock),
        image=done.image,
        artifacts=done.artifacts,
        evidence=done.referrers,
        new=NewDocument(artifacts=done.new_artifacts, blobs=done.new_blobs, manifests=done.new_manifests),
        changed=done.changed,
        settings=done.settings,
    )
    return Result(line=str(done.image or done.lock), document=ImportedDocument(imported=document))
