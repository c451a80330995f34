"""Skills of a fresh state come from beside builder.toml, if they are still the locked ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from builder.locking import Project, fetch_missing, keep_skills
from builder.storage.store import ContentStore
from builder.workshop import Workshop
from images.config import parse_config
from images.errors import StateError
from tests.fakes.locks import BUILDER_TOML, SKILL_FILES, make_full_lock, skill_integrity


def test_only_the_locked_skill_is_copied_into_a_fresh_store(tmp_path: Path) -> None:
    folder = tmp_path / "skills/review"
    for file, content in SKILL_FILES:
        path = folder / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        path.chmod(0o755 if file.executable else 0o644)
    lock = replace(make_full_lock(), mcp=(), artifacts=(make_full_lock().artifact("skill:review"),))
    text = BUILDER_TOML + '[skills]\nreview = "skills/review"\n'
    project = Project(tmp_path / "builder.toml", parse_config(text, where="builder.toml"))
    # Nothing but the store is asked: neither engine nor registry has a Skill.
    workshop = cast(Workshop, SimpleNamespace(store=ContentStore(tmp_path / "store")))
    with pytest.raises(StateError, match="not in this state's store") as refused:
        fetch_missing(workshop, lock)
    assert (refused.value.where, refused.value.hint) == ("skills.review", "builder lock")
    (folder / "SKILL.md").write_text("another one\n")
    keep_skills(workshop, project, lock)
    assert not workshop.store.intact(skill_integrity())
    (folder / "SKILL.md").write_bytes(SKILL_FILES[0][1])
    keep_skills(workshop, project, lock)
    fetch_missing(workshop, lock)
    assert workshop.store.intact(skill_integrity())
