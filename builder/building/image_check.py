"""Compare a built image with its plan: nothing more, nothing less, nothing else."""

from __future__ import annotations

from collections.abc import Iterator

from images.errors import BuildFailed
from images.oci import MEDIA_CONFIG, MEDIA_LAYER_GZIP, MEDIA_LAYER_ZSTD, MEDIA_MANIFEST, OciImage
from images.redaction import redact
from images.render import BuildContext

_LAYER_TYPES = {"zstd": MEDIA_LAYER_ZSTD, "gzip": MEDIA_LAYER_GZIP}


def check_image(image: OciImage, base: OciImage, context: BuildContext) -> None:
    """Raise BuildFailed naming every setting and layer of ``image`` that differs from the plan.

    Blobs and configuration were re-hashed when the two images were opened; here their meaning is compared.
    """
    differences = [*_settings(image, base, context), *_layers(image, base, context)]
    if differences:
        raise BuildFailed(
            "the image is not what was planned: " + "; ".join(differences),
            where=str(image.digest),
            hint="builder build",
            reason="not-as-planned",
        )


def _settings(image: OciImage, base: OciImage, context: BuildContext) -> Iterator[str]:
    found, planned = image.settings, context.image
    pairs = (
        ("platform", found.platform, planned.platform),
        ("user", found.user, planned.user),
        ("environment", tuple(sorted(found.environment)), _lines(planned.environment)),
        ("labels", tuple(sorted(found.labels)), planned.labels),
        ("entry point", found.entrypoint, planned.entrypoint),
        ("command", found.command, planned.command),
        ("working directory", found.working_dir, planned.working_dir),
        ("volumes", found.volumes, ()),
        ("ONBUILD triggers", found.on_build, ()),
        ("health check", found.health_check, False),
        ("exposed ports", found.exposed_ports, base.settings.exposed_ports),
        ("stop signal", found.stop_signal, base.settings.stop_signal),
        ("annotations", image.manifest.annotations, ()),
        ("manifest type", image.manifest.media_type, MEDIA_MANIFEST),
        ("configuration type", image.manifest.config.media_type, MEDIA_CONFIG),
        ("subject", image.manifest.subject, None),
    )
    for name, is_so, should_be in pairs:
        if is_so != should_be:
            # Redacted before it is cut: a half of a credential has no shape any more.
            yield f"{name} is {redact(str(is_so))[:300]!r}, planned {str(should_be)[:300]!r}"


def _layers(image: OciImage, base: OciImage, context: BuildContext) -> Iterator[str]:
    count = len(base.manifest.layers)
    below = tuple((layer.digest, layer.size) for layer in image.manifest.layers[:count])
    if base.digest != context.base:
        yield f"base {base.digest} is not the planned {context.base}"
    if below != tuple((layer.digest, layer.size) for layer in base.manifest.layers):
        yield "the base's layers are not a prefix of the image's"
    if image.settings.diff_ids[:count] != base.settings.diff_ids:
        yield "the base's diff ids are not a prefix of the image's"
    ours = image.manifest.layers[count:]
    if len(ours) != context.image.new_layers:
        yield f"{len(ours)} layers on the base, planned {context.image.new_layers}"
    for layer in ours:
        if layer.media_type != _LAYER_TYPES[context.compression]:
            yield f"layer {layer.digest} is {layer.media_type[:100]!r}, planned {context.compression}"
        if layer.annotations:
            yield f"layer {layer.digest} has annotations"


def _lines(pairs: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    return tuple(sorted(f"{name}={value}" for name, value in pairs))
