"""Write a planned image into the OCI layout and compare it with what the lock expects."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from builder.bootstrap.contents import Plan
from builder.bootstrap.files import describe, digest_of
from builder.bootstrap.layer import write_layer
from builder.bootstrap.lock import REFRESH, BootstrapLock, ImagePins
from builder.roles import Role
from images.digests import Digest, canonical_json
from images.errors import PinError
from images.oci import MEDIA_CONFIG, MEDIA_LAYER_ZSTD, MEDIA_MANIFEST, Descriptor, Platform
from images.strictjson import JsonValue
from provenance.layout import open_image
from provenance.layout_writing import add_manifest, write_blob


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """An image that was made and not stored yet: a layer on disk, the bytes of configuration and manifest."""

    role: Role
    pins: ImagePins
    layer: Path
    config: bytes
    manifest: bytes
    platform: Platform


def make_image(role: Role, plan: Plan, asked: tuple[str, ...], lock: BootstrapLock, staging: Path) -> Made:
    """One layer in ``staging``, no labels, every time stamp the lock's epoch."""
    written = write_layer(plan.files(), lock.epoch, staging / f"{role}.layer")
    with written.path.open("rb") as stream:
        digest = Digest.from_hex(hashlib.file_digest(stream, "sha256").hexdigest())
    layer = Descriptor(MEDIA_LAYER_ZSTD, digest, written.path.stat().st_size)
    config = _config(role, plan, written.diff_id, lock.platform, lock.epoch)
    manifest = _manifest(Descriptor(MEDIA_CONFIG, Digest.of(config), len(config)), layer)
    files = tuple((name, digest_of(part)) for name, part in sorted(plan.parts.items()))
    return Made(
        role=role,
        pins=ImagePins(asked, Digest.of(manifest), written.diff_id, files),
        layer=written.path,
        config=config,
        manifest=manifest,
        platform=lock.platform,
    )


def publish(made: Made, layout: Path) -> Digest:
    """Store the image and name it in the layout, then re-hash it; returns its platform manifest digest."""
    with made.layer.open("rb") as stream:
        write_blob(layout, stream, MEDIA_LAYER_ZSTD)
    write_blob(layout, made.config, MEDIA_CONFIG)
    add_manifest(layout, made.manifest, media_type=MEDIA_MANIFEST, platform=made.platform)
    return open_image(layout, made.pins.manifest).digest


def check_expected(made: Made, expected: ImagePins, plan: Plan, report: Path) -> None:
    """The image is the one that the lock expects, else PinError naming the parts that differ.

    ``report``: where the list of all files is written then, to compare with another machine's.
    """
    if made.pins.manifest == expected.manifest:
        return
    wanted = dict(expected.files)
    different = [name for name, digest in made.pins.files if wanted.get(name) != digest]
    report.mkdir(parents=True, exist_ok=True)
    for name, files in plan.parts.items():
        listing = "\n".join(describe(files)) + "\n"
        (report / f"{made.role}-{name}.txt").write_bytes(listing.encode("utf-8", "surrogateescape"))
    if different:
        why = f"these files differ: {', '.join(different)} (listed in {report})"
    elif made.pins.diff_id != expected.diff_id:
        why = "the files are the same and the tar around them differs"
    else:
        why = "the files are the same and their compression or the image's settings differ"
    raise PinError(
        f"the {made.role} image came out as {made.pins.manifest}, not as {expected.manifest}: {why}",
        where="bootstrap.lock",
        hint=REFRESH,
    )


def _config(role: Role, plan: Plan, diff_id: Digest, platform: Platform, epoch: int) -> bytes:
    created = datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    run: dict[str, JsonValue] = {"Env": list(plan.environment), "WorkingDir": plan.working_dir}
    if plan.user:
        run["User"] = plan.user
    if plan.entrypoint:
        run["Entrypoint"] = list(plan.entrypoint)
    if plan.command:
        run["Cmd"] = list(plan.command)
    if plan.volumes:
        run["Volumes"] = {path: {} for path in plan.volumes}
    return canonical_json(
        {
            "architecture": platform.architecture,
            "os": platform.os,
            "created": created,
            "config": run,
            "rootfs": {"type": "layers", "diff_ids": [str(diff_id)]},
            "history": [{"created": created, "created_by": f"builder bootstrap: {role}"}],
        }
    )


def _manifest(config: Descriptor, layer: Descriptor) -> bytes:
    return canonical_json(
        {
            "schemaVersion": 2,
            "mediaType": MEDIA_MANIFEST,
            "config": config.to_json(),
            "layers": [layer.to_json()],
        }
    )
