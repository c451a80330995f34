"""Skills: plain files only, no credential, and nothing of the checkout in archive, lock or key."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builder.skills import read_skills, store_skills
from builder.storage.store import ContentStore
from images.additions import SkillPin
from images.digests import Digest
from images.errors import BuilderError, CredentialFound, UsageError
from images.lock import SkillFile
from images.skills import MAX_FILE_BYTES, MAX_FILES, collision, pack_skill
from provenance.audit.members import index_artifact
from tests.fakes.credentials import token
from tests.fakes.locks import AMD64

PIN = (SkillPin("review", "skills/review"),)


def write(root: Path, mask: int = 0o022) -> Path:
    """A Skill's checkout below ``root``, under a umask."""
    before = os.umask(mask)
    try:
        skill = root / "skills/review"
        (skill / "bin").mkdir(parents=True)
        (skill / "SKILL.md").write_text("# Review\n")
        (skill / "naïve notes.md").write_text("read them\n")
        script = skill / "bin/look.sh"
        script.write_text("#!/bin/sh\n")
        script.chmod(0o777 & ~mask)
        (skill / "empty").mkdir()
    finally:
        os.umask(before)
    return skill


def refused(root: Path) -> BuilderError:
    with pytest.raises((UsageError, CredentialFound)) as found:
        read_skills(PIN, root)
    assert "skills.review" in found.value.where
    assert "builder lock" in found.value.hint
    return found.value


def test_a_skill(tmp_path: Path) -> None:
    write(tmp_path)
    (skill,) = read_skills(PIN, tmp_path)
    assert [(file.path, file.executable, file.size) for file in skill.lock.files] == [
        ("SKILL.md", False, 9),
        ("bin/look.sh", True, 10),
        ("naïve notes.md", False, 10),
    ]
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(skill.archive))) as archive:
        members = archive.getmembers()
    assert [member.name for member in members] == [
        "skill/SKILL.md",
        "skill/bin/look.sh",
        "skill/naïve notes.md",
    ]
    assert {(m.uid, m.gid, m.uname, m.gname, m.mtime) for m in members} == {(0, 0, "", "", 0)}
    assert [member.mode for member in members] == [0o644, 0o755, 0o644]


def test_the_audit_reads_the_archive_as_every_other_artifact(tmp_path: Path) -> None:
    write(tmp_path)
    (skill,) = read_skills(PIN, tmp_path)
    store = ContentStore(tmp_path / "store")
    store_skills((skill,), store)
    found = index_artifact(
        skill.artifact((AMD64,)), lambda artifact: store.open(artifact.integrity, artifact.id)
    )
    assert [(member.path, member.executable, member.content.hex()) for member in found] == [
        (file.path, file.executable, file.content.hex) for file in skill.lock.files
    ]


@pytest.mark.parametrize("mask", [0o000, 0o002, 0o022, 0o077])
def test_umask_owner_and_time_of_the_checkout_never_matter(tmp_path: Path, mask: int) -> None:
    """CFG-11: only the executable bit of the source counts."""
    write(tmp_path / "one")
    skill = write(tmp_path / "two", mask)
    for path in (skill, *skill.rglob("*")):
        os.utime(path, (1, 1))
        if os.geteuid() == 0:
            os.chown(path, 1234, 4321)
    assert read_skills(PIN, tmp_path / "one") == read_skills(PIN, tmp_path / "two")


def test_only_the_owner_s_bit_counts(tmp_path: Path) -> None:
    skill = write(tmp_path)
    before = read_skills(PIN, tmp_path)
    (skill / "SKILL.md").chmod(0o655)  # what an odd umask or an access list can make of 0644
    (skill / "bin/look.sh").chmod(0o744)
    assert read_skills(PIN, tmp_path) == before


def test_the_executable_bit_and_every_byte_matter(tmp_path: Path) -> None:
    skill = write(tmp_path)
    found = {read_skills(PIN, tmp_path)[0].integrity}
    (skill / "SKILL.md").chmod(0o744)
    found.add(read_skills(PIN, tmp_path)[0].integrity)
    (skill / "SKILL.md").write_text("# Review.\n")
    found.add(read_skills(PIN, tmp_path)[0].integrity)
    (skill / "bin/look.sh").rename(skill / "bin/see.sh")
    found.add(read_skills(PIN, tmp_path)[0].integrity)
    assert len(found) == 4


@given(
    st.dictionaries(
        st.from_regex(r"[a-z]{1,8}(/[a-z]{1,120}){0,1}", fullmatch=True),
        st.tuples(st.binary(max_size=200_000), st.booleans()),
        min_size=1,
        max_size=4,
    )
)
def test_the_archive_is_gzip_that_every_reader_reads(files: dict[str, tuple[bytes, bool]]) -> None:
    packed = pack_skill(
        [(SkillFile(path, bit, len(raw), Digest.of(raw)), raw) for path, (raw, bit) in files.items()]
    )
    found = {}
    with tarfile.open(fileobj=io.BytesIO(packed), mode="r:gz") as archive:
        for member in archive:
            content = archive.extractfile(member)
            assert content is not None
            found[member.name.removeprefix("skill/")] = (content.read(), member.mode == 0o755)
    assert found == files


def test_links_are_refused(tmp_path: Path) -> None:
    skill = write(tmp_path)
    (skill / "more").symlink_to("/etc")
    assert "skills/review/more is a link" in refused(tmp_path).what


@pytest.mark.parametrize("linked", ["skills", "skills/review"])
def test_a_link_on_the_way_is_refused(tmp_path: Path, linked: str) -> None:
    write(tmp_path / "elsewhere")
    project = tmp_path / "project"
    project.mkdir()
    (project / linked).parent.mkdir(exist_ok=True)
    (project / linked).symlink_to(tmp_path / "elsewhere" / linked)
    assert "cannot be read" in refused(project).what


def test_special_files_are_refused(tmp_path: Path) -> None:
    skill = write(tmp_path)
    os.mkfifo(skill / "pipe")
    assert "neither a file nor a directory" in refused(tmp_path).what


def test_names_that_are_not_utf8_are_refused(tmp_path: Path) -> None:
    skill = write(tmp_path)
    (Path(os.fsdecode(os.fsencode(skill) + b"/caf\xe9"))).write_text("x")
    assert "is not UTF-8" in refused(tmp_path).what


def test_control_characters_are_refused(tmp_path: Path) -> None:
    skill = write(tmp_path)
    (skill / "a\nb").write_text("x")
    assert "not plain text" in refused(tmp_path).what


@pytest.mark.parametrize("name", ["skill.MD", "BIN", "Bin/other"])
def test_names_that_collide_are_refused(tmp_path: Path, name: str) -> None:
    skill = write(tmp_path)
    (skill / name).parent.mkdir(exist_ok=True)
    (skill / name).write_text("x")
    assert "letter case alone" in refused(tmp_path).what


def test_accents_collide_too() -> None:
    name = "é.md"
    assert collision([name, unicodedata.normalize("NFD", name)]) is not None
    assert collision(["a/b", "a/c", "ab"]) is None


@pytest.mark.parametrize(
    "name",
    [
        ".git/config",
        ".gitignore",
        "SKILL.md~",
        ".SKILL.md.swp",
        "#SKILL.md#",
        "notes.orig",
        ".env",
        ".env.local",
        ".npmrc",
        ".netrc",
        "settings.local.json",
        "sub/.claude/settings.json",
        ".claude/settings.local.json",
        ".mcp.json",
        ".ssh/config",
        "__pycache__/x.pyc",
        "node_modules/x/index.js",
        ".DS_Store",
    ],
)
def test_what_lies_about_in_a_checkout_is_refused_by_name(tmp_path: Path, name: str) -> None:
    """CRD-04: only what is meant is sent, and nothing is left out silently."""
    skill = write(tmp_path)
    (skill / name).parent.mkdir(parents=True, exist_ok=True)
    (skill / name).write_text("harmless\n")
    found = refused(tmp_path)
    assert isinstance(found, UsageError)
    assert any(part in found.what for part in name.split("/"))


@pytest.mark.parametrize("name", ["SKILL.md", "bin/look.sh", ".env", "id_rsa"])
def test_a_credential_is_refused_with_its_rule_and_never_shown(tmp_path: Path, name: str) -> None:
    """CRD-04: wherever it stands, before anything is copied into the store."""
    skill, canary = write(tmp_path), token()
    (skill / name).write_bytes(b"use " + canary + b" for it\n")
    found = refused(tmp_path)
    assert isinstance(found, CredentialFound)
    assert "rule anthropic-oauth" in found.what
    assert name in found.where
    assert canary.decode() not in f"{found} {found.hint}"


def test_a_configuration_with_an_inline_key_is_refused(tmp_path: Path) -> None:
    skill = write(tmp_path)
    (skill / ".mcp.json").write_text('{"mcpServers": {"a": {"env": {"API_KEY": "0123456789abcdef"}}}}')
    assert "0123456789abcdef" not in str(refused(tmp_path))


def test_documentation_of_credentials_is_none(tmp_path: Path) -> None:
    skill = write(tmp_path)
    (skill / "SKILL.md").write_text("set GITHUB_TOKEN=ghp_xxxxxxxxxxxx, Authorization: Bearer $TOKEN\n")
    assert len(read_skills(PIN, tmp_path)) == 1


def test_too_large_and_too_many(tmp_path: Path) -> None:
    skill = write(tmp_path)
    (skill / "large").write_bytes(bytes(MAX_FILE_BYTES + 1))
    assert "larger than" in refused(tmp_path).what
    (skill / "large").unlink()
    for number in range(MAX_FILES):
        (skill / f"f{number}").touch()
    assert "one too many" in refused(tmp_path).what


def test_too_deep(tmp_path: Path) -> None:
    skill = write(tmp_path)
    deep = skill.joinpath(*["d"] * 20)
    deep.mkdir(parents=True)
    assert "deeper than" in refused(tmp_path).what


def test_a_directory_that_is_no_skill(tmp_path: Path) -> None:
    skill = write(tmp_path)
    (skill / "SKILL.md").unlink()
    assert "is no Skill: it has no SKILL.md" in refused(tmp_path).what


def test_a_missing_directory(tmp_path: Path) -> None:
    assert "skills/review cannot be read" in refused(tmp_path).what


def test_a_missing_directory_is_no_file_to_move_away(tmp_path: Path) -> None:
    assert refused(tmp_path).hint == "name the Skill's directory in builder.toml, then: builder lock"


def test_the_store_takes_it_once(tmp_path: Path) -> None:
    write(tmp_path)
    skills, store = read_skills(PIN, tmp_path), ContentStore(tmp_path / "store")
    store_skills(skills, store)
    store_skills(skills, store)
    assert store.intact(skills[0].integrity)
