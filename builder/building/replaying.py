"""Replay the toolchain layer for an audit: the same step, the same packages, a fresh build container."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from builder.building.bench import build_context, open_bench
from builder.workshop import Workshop
from images.lock import Lock
from images.oci import OciImage
from images.render import BuildContext
from images.toolchain_plan import FOLDER
from provenance.audit.layertar import Entry, read_entries
from provenance.audit.toolchain import by_path
from provenance.layout import layer_tar


def replay_toolchain(
    workshop: Workshop, lock: Lock, base: OciImage, context: BuildContext
) -> Mapping[str, Entry]:
    """What its layer holds, by path. Nothing of it enters the state's layout.

    Raises what a build raises: HostError without an engine, BuildFailed.
    """
    # Of what the whole image needs, only the packages are handed over.
    own = replace(context, artifacts=tuple(one for one in context.artifacts if one.folder == FOLDER))
    with open_bench(workshop, workshop.now) as bench, workshop.state.staging("replay") as staging:
        again = build_context(bench, own, base, lock.recipe.buildkit, staging, target=FOLDER)
        return by_path(read_entries(layer_tar(again, len(base.manifest.layers))))
