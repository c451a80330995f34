"""What another user's tests start from: bootstrapped images, tarballs and a lock, each checked on its way.

``python -m tests.real.handing_over STATE PROJECT TARGET``. No key, no policy, no evidence goes along, and no
image of the project: that user builds it. ``TARGET/digest`` says what came out here.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from builder.bootstrap import LOCK_NAME, bootstrapped_images
from builder.state import open_state
from builder.storage.store import ContentStore
from images.key import content_key
from images.lockfile import parse_lock
from images.render import LABEL_KEY
from provenance.layout import list_images, open_image
from provenance.layout_writing import import_image
from tests.fakes.locks import AMD64


def hand_over(state: Path, project: Path, target: Path) -> None:
    """Copy into ``target``, which must not exist: ``state/`` and ``project/`` as the tests expect them."""
    old = open_state(state)
    target.mkdir(mode=0o700)
    (target / "state").mkdir(mode=0o700)
    new = open_state(target / "state/agent-image-builder")
    found = bootstrapped_images(old.layout, lock_copy=old.bootstrap / LOCK_NAME)
    if found is None:
        sys.exit(f"no bootstrapped images in {state}: run builder bootstrap")
    for digest in (found.base, found.build_container, found.resolver):
        import_image(old.layout, digest, new.layout)
    if (old.bootstrap / LOCK_NAME).exists():
        shutil.copy(old.bootstrap / LOCK_NAME, new.bootstrap / LOCK_NAME)
    raw = (project / "builder.lock").read_bytes()
    lock = parse_lock(raw)
    for artifact in lock.artifacts:
        with ContentStore(old.store).open(artifact.integrity, artifact.id) as file:
            ContentStore(new.store).put(
                file, artifact.integrity, what=artifact.id, limit=max(artifact.size, 1)
            )
    (target / "project").mkdir(mode=0o700)
    for name in ("builder.toml", "builder.lock"):
        shutil.copy(project / name, target / "project" / name)
    key = content_key(lock, AMD64)
    images = [open_image(old.layout, entry.digest) for entry in list_images(old.layout)]
    built = [image.digest for image in images if dict(image.settings.labels).get(LABEL_KEY) == key]
    if len(built) != 1:
        sys.exit(f"{len(built)} images of this lock in {state}: run tools/first-image")
    (target / "digest").write_text(f"{built[0]}\n")


if __name__ == "__main__":
    hand_over(*(Path(word).resolve() for word in sys.argv[1:4]))
