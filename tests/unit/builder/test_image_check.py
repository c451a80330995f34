"""The result is held against its plan: each single difference is named."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from builder.building.image_check import check_image
from images.digests import Digest
from images.errors import BuildFailed, ExitCode
from images.oci import MEDIA_LAYER_GZIP, MEDIA_LAYER_ZSTD, Descriptor, OciImage, Platform
from images.render import BuildContext, render
from provenance.layout import open_image
from tests.fakes.bases import base_facts, make_base
from tests.fakes.locks import AMD64
from tests.unit.images.test_render import TEMPLATE, lock_of_template


@dataclasses.dataclass(frozen=True)
class Built:
    base: OciImage
    context: BuildContext
    image: OciImage


@pytest.fixture
def built(tmp_path: Path) -> Built:
    """An image that is exactly as planned: the base's own value with our layers and settings on it."""
    base = make_base(tmp_path)
    context = dataclasses.replace(render(lock_of_template(), AMD64, TEMPLATE, base_facts()), base=base.digest)
    planned = context.image
    ours = tuple(
        Descriptor(MEDIA_LAYER_ZSTD, Digest.of(bytes([n])), n + 1) for n in range(planned.new_layers)
    )
    settings = dataclasses.replace(
        base.settings,
        user=planned.user,
        environment=tuple(f"{name}={value}" for name, value in planned.environment),
        labels=planned.labels,
        entrypoint=planned.entrypoint,
        command=planned.command,
        working_dir=planned.working_dir,
        diff_ids=(*base.settings.diff_ids, *(layer.digest for layer in ours)),
    )
    manifest = dataclasses.replace(base.manifest, layers=(*base.manifest.layers, *ours))
    return Built(base, context, dataclasses.replace(base, manifest=manifest, settings=settings))


def settings(**changes: object) -> Callable[[OciImage], OciImage]:
    return lambda image: dataclasses.replace(
        image,
        settings=dataclasses.replace(image.settings, **changes),  # type: ignore[arg-type]
    )


def layers(
    change: Callable[[tuple[Descriptor, ...]], tuple[Descriptor, ...]],
) -> Callable[[OciImage], OciImage]:
    return lambda image: dataclasses.replace(
        image, manifest=dataclasses.replace(image.manifest, layers=change(image.manifest.layers))
    )


def test_as_planned(built: Built) -> None:
    check_image(built.image, built.base, built.context)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (settings(platform=Platform("linux", "arm64")), "platform"),
        (settings(user="0"), "user"),
        (settings(environment=("PATH=/bin",)), "environment"),
        (settings(labels=()), "labels"),
        (settings(labels=(("a", "b"),)), "labels"),
        (settings(entrypoint=("/bin/sh",)), "entry point"),
        (settings(command=()), "command"),
        (settings(working_dir="/"), "working directory"),
        (settings(volumes=("/x",)), "volumes"),
        (settings(on_build=("RUN x",)), "ONBUILD"),
        (settings(health_check=True), "health check"),
        (settings(exposed_ports=("80/tcp",)), "exposed ports"),
        (settings(stop_signal="SIGINT"), "stop signal"),
        (settings(diff_ids=(Digest.of(b"x"),)), "diff ids"),
        (layers(lambda found: found[1:]), "not a prefix"),
        (layers(lambda found: found[:-1]), "4 layers on the base, planned 5"),
        (layers(lambda found: (*found, found[-1])), "6 layers on the base"),
        (
            layers(lambda found: (*found[:-1], dataclasses.replace(found[-1], media_type=MEDIA_LAYER_GZIP))),
            "planned zstd",
        ),
        (
            layers(lambda found: (*found[:-1], dataclasses.replace(found[-1], annotations=(("a", "b"),)))),
            "has annotations",
        ),
    ],
)
def test_each_difference_is_named(built: Built, change: Callable[[OciImage], OciImage], named: str) -> None:
    with pytest.raises(BuildFailed, match=named) as caught:
        check_image(change(built.image), built.base, built.context)
    assert caught.value.code is ExitCode.BUILD
    assert caught.value.reason == "not-as-planned"


def test_another_base_is_named(built: Built, tmp_path: Path) -> None:
    other = make_base(tmp_path / "other", config={"User": "x"})
    with pytest.raises(BuildFailed, match="is not the planned"):
        check_image(built.image, open_image(other.layout, other.digest), built.context)
