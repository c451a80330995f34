"""The layer audit: an honest image passes; any one change in any kind of entry is found and named."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from images.errors import StateError
from images.lock import ArtifactKind
from provenance.audit.members import index_artifact
from provenance.audit.report import MAX_LISTED, AuditReport, DifferenceKind, Origin, shown
from provenance.audit.run import audit_image
from tests.attacks import Position, attack
from tests.fakes.audited import CLAUDE, NATIVE, PLACED, Change, Honest, Layers, Made, honest, layer_bytes
from tests.fakes.locks import AMD64, make_added_lock, make_full_lock
from tests.fakes.tarballs import packages

PI = "opt/agents/pi/node_modules"
# One entry of each kind that our layers hold.
FILES = {
    "node's binary": "opt/node/bin/node",
    "a file of an agent": f"{CLAUDE}/package.json",
    "a command of an agent": f"{PI}/@mariozechner/pi-coding-agent/dist/cli.js",
    "a file below another package": f"{PI}/chalk/node_modules/ansi/index.js",
    "what an install script placed": PLACED,
    "a launcher": "usr/local/bin/pi",
    "the accounts": "etc/passwd",
    "the groups": "etc/group",
    "the versions": "etc/agent-image.json",
}
LINKS = {"a command link": f"{PI}/.bin/pi", "node on the PATH": "usr/local/bin/node"}
FOLDERS = {
    "the working directory": "workspace",
    "a directory of an agent": f"{CLAUDE}/bin",
    "a directory above": "opt/agents",
    "the user's home": "home/agent",
    "the place of the relay": "opt/builder",
}
HARD_LINKS = {"the file that a script linked": NATIVE}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Honest:
    return honest(tmp_path_factory.mktemp("audit"))


def cases(*groups: dict[str, str]) -> pytest.MarkDecorator:
    named = [(name, path) for group in groups for name, path in group.items()]
    return pytest.mark.parametrize("path", [path for _, path in named], ids=[name for name, _ in named])


def edit(path: str, change: Callable[[Made], Made]) -> Change:
    """Change the entry at ``path``, in each layer that has it."""

    def apply(layers: Layers) -> None:
        found = [(layer, n) for layer in layers for n, made in enumerate(layer) if made.path == path]
        assert found
        for layer, n in found:
            layer[n] = change(layer[n])

    return apply


def add(made: Made, layer: int = 2) -> Change:
    return lambda layers: layers[layer].append(replace(made, mtime=layers[layer][0].mtime))


def drop(path: str) -> Change:
    def apply(layers: Layers) -> None:
        for layer in layers:
            layer[:] = [made for made in layer if made.path != path]

    return apply


def found(report: AuditReport, kind: DifferenceKind, path: str, *words: str) -> None:
    """Exactly this path is listed, as this, for this reason."""
    assert not report.ok
    assert {(one.kind, one.path) for one in report.differences} == {(kind, path)}
    assert report.difference_count == len(report.differences)
    for word in words:
        assert word in report.differences[0].what


# --- an honest image


def test_every_entry_of_an_honest_image_has_an_origin(tiny: Honest) -> None:
    report = tiny.audit(tiny.image())
    assert report.ok
    assert report.differences == ()
    assert report.entries == sum(count for _, count in report.origins) == sum(map(len, tiny.layers))
    assert report.bytes == sum(len(made.content) for layer in tiny.layers for made in layer)
    assert dict(report.origins).keys() == set(Origin) - {Origin.REPLAYED}
    assert (report.image, report.key) == (tiny.image().digest, tiny.context.key)


def test_what_a_script_placed_is_named_with_its_source(tiny: Honest) -> None:
    (placed,) = tiny.audit(tiny.image()).scripts
    assert placed.path == PLACED
    assert placed.script == "npm:@anthropic-ai/claude-code@2.1.328"
    assert (placed.artifact, placed.member) == ("npm:@anthropic-ai/claude-code-linux-x64@2.1.328", "claude")


def test_what_is_not_audited_is_said(tiny: Honest) -> None:
    (line,) = tiny.audit(tiny.image()).unaudited
    assert str(tiny.base.digest) in line


def test_the_report_says_the_same_again_however_many_threads(tiny: Honest) -> None:
    image, base = tiny.image(), tiny.tiny.lock.base.image(AMD64)
    reports = [
        audit_image(image, base, tiny.context, tiny.open_artifact, workers=workers) for workers in (1, 2, 5)
    ]
    assert len({report.digest for report in reports}) == 1
    changed = tiny.audit(tiny.changed(drop(FILES["a launcher"])))
    assert changed.digest != reports[0].digest


def test_a_script_may_copy_instead_of_link(tmp_path: Path) -> None:
    made = honest(tmp_path, placed_as_copy=True)
    report = made.audit(made.image())
    assert report.ok
    assert [placed.path for placed in report.scripts] == [PLACED]


def test_long_and_foreign_names_are_read_as_go_writes_them(tmp_path: Path) -> None:
    long = "/".join(["a-rather-long-directory-name"] * 8)
    changes = {
        "npm:chalk@5.6.2": {
            f"package/{long}/index.js": (b"long\n", 0o644),
            "package/grüße/日本語.txt": (b"foreign\n", 0o644),
            "package/empty": (b"", 0o644),
        }
    }
    made = honest(tmp_path, changes)
    assert made.audit(made.image()).ok


def test_the_later_of_two_packages_at_one_path_counts(tmp_path: Path) -> None:
    files = packages()
    changes = {
        "npm:chalk@5.6.2": {
            **files["npm:chalk@5.6.2"],
            "package/node_modules/ansi/index.js": (b"hidden below\n", 0o644),
        }
    }
    made = honest(tmp_path, changes)
    assert made.audit(made.image()).ok


# --- one change in each kind of entry


@attack(by=Position.BUILD_CONTAINER)
@cases(FILES)
@pytest.mark.parametrize("place", [0, -1])
def test_one_byte(tiny: Honest, path: str, place: int) -> None:
    def flip(made: Made) -> Made:
        content = bytearray(made.content)
        content[place] ^= 1
        return replace(made, content=bytes(content))

    report = tiny.audit(tiny.changed(edit(path, flip)))
    named = {(one.kind, one.path) for one in report.differences}
    # A hard link shares the bytes of the file that it leads to.
    assert named == {(DifferenceKind.CHANGED, one) for one in {path, *([NATIVE] * (path == PLACED))}}


@cases(FILES)
def test_one_byte_more_or_less(tiny: Honest, path: str) -> None:
    for change in (lambda made: made.content + b"\0", lambda made: made.content[:-1]):
        report = tiny.audit(tiny.changed(edit(path, lambda made, to=change: replace(made, content=to(made)))))
        assert path in {one.path for one in report.differences}


@cases(FILES, FOLDERS)
@pytest.mark.parametrize("mode", [0o777, 0o4755, 0o2755, 0o1755])
def test_mode(tiny: Honest, path: str, mode: int) -> None:
    report = tiny.audit(tiny.changed(edit(path, lambda made: replace(made, mode=mode))))
    assert path in {one.path for one in report.differences}
    assert all(f"mode {mode:04o}" in one.what for one in report.differences if one.path == path)


@cases(FILES, LINKS, FOLDERS, HARD_LINKS)
@pytest.mark.parametrize("change", [{"uid": 1001}, {"gid": 1001}])
def test_owner(tiny: Honest, path: str, change: dict[str, int]) -> None:
    report = tiny.audit(tiny.changed(edit(path, lambda made: replace(made, **change))))  # type: ignore[arg-type]
    found(report, DifferenceKind.CHANGED, path, "owner")


@cases(FILES, LINKS, FOLDERS, HARD_LINKS)
@pytest.mark.parametrize("step", [1, -1])
def test_time(tiny: Honest, path: str, step: int) -> None:
    report = tiny.audit(tiny.changed(edit(path, lambda made: replace(made, mtime=made.mtime + step))))
    found(report, DifferenceKind.CHANGED, path, "time")


@cases(LINKS)
@pytest.mark.parametrize("to", ["/tmp/x", "../../../../../../home/agent/node", ""])
def test_link_target(tiny: Honest, path: str, to: str) -> None:
    report = tiny.audit(tiny.changed(edit(path, lambda made: replace(made, link=to))))
    found(report, DifferenceKind.CHANGED, path, "leads to")


@cases(FILES, LINKS, FOLDERS, HARD_LINKS)
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("SCHILY.xattr.security.capability", "\x01"),
        ("SCHILY.xattr.user.note", "x"),
        ("comment", "hello"),
        ("mtime", "1767225600.5"),
        ("uid", "0"),
        ("atime", "1"),
    ],
)
def test_extended_attributes_and_other_records(tiny: Honest, path: str, key: str, value: str) -> None:
    report = tiny.audit(tiny.changed(edit(path, lambda made: replace(made, records={key: value}))))
    found(report, DifferenceKind.CHANGED, path, key)


@cases(FILES, LINKS, FOLDERS, HARD_LINKS)
def test_an_owners_name(tiny: Honest, path: str) -> None:
    report = tiny.audit(tiny.changed(edit(path, lambda made: replace(made, owner=b"agent"))))
    found(report, DifferenceKind.CHANGED, path, "owner's name")


@attack(by=Position.BUILD_CONTAINER)
@cases(FILES, LINKS, HARD_LINKS)
def test_missing(tiny: Honest, path: str) -> None:
    report = tiny.audit(tiny.changed(drop(path)))
    assert (DifferenceKind.MISSING, path) in {(one.kind, one.path) for one in report.differences}


@cases(FOLDERS)
def test_a_missing_directory(tiny: Honest, path: str) -> None:
    report = tiny.audit(tiny.changed(drop(path)))
    assert {one.kind for one in report.differences} == {DifferenceKind.MISSING}


@cases(FILES, LINKS, FOLDERS, HARD_LINKS)
def test_twice_in_a_layer(tiny: Honest, path: str) -> None:
    """Even as the same entry again: what counts is then the reader's choice."""

    def twice(layers: Layers) -> None:
        for layer in layers:
            layer += [made for made in layer if made.path == path]

    found(tiny.audit(tiny.changed(twice)), DifferenceKind.DUPLICATE, path)


@cases(FILES, LINKS, FOLDERS, HARD_LINKS)
@pytest.mark.parametrize("kind", [b"2", b"3", b"6", b"5", b"0"])
def test_another_kind(tiny: Honest, path: str, kind: bytes) -> None:
    if (path in FOLDERS.values()) is (kind == b"5"):
        kind = b"4"

    def change(made: Made) -> Made:
        return replace(made, kind=kind, content=b"x" if kind == b"0" else b"", link="/x" * (kind == b"2"))

    report = tiny.audit(tiny.changed(edit(path, change)))
    assert path in {one.path for one in report.differences}


@cases(FILES)
def test_another_members_bytes(tiny: Honest, path: str) -> None:
    """Bytes of a locked artifact, but not this path's: only an install script's place may have them."""
    other = packages()["npm:@anthropic-ai/claude-code@2.1.328"]["package/package.json"][0]
    report = tiny.audit(tiny.changed(edit(path, lambda made: replace(made, content=other))))
    if path == PLACED:
        assert report.scripts[0].member == "package.json"
        found(report, DifferenceKind.CHANGED, NATIVE, "other bytes")
    elif path == FILES["a file of an agent"]:
        assert report.ok
    else:
        found(report, DifferenceKind.CHANGED, path, "other bytes")


# --- what does not belong


@attack(by=Position.BUILD_CONTAINER)
@pytest.mark.parametrize(
    "made",
    [
        Made("opt/agents/claude-code/extra", content=b"x"),
        Made("opt/agents/claude-code/extra", b"5", 0o755),
        Made("opt/agents/claude-code/extra", b"2", 0o777, link="/bin/sh"),
        Made("opt/agents/claude-code/extra", b"1", 0o755, link=PLACED),
        Made("opt/agents/claude-code/extra", b"3", 0o666),
        Made(f"{CLAUDE}/bin/empty"),
        Made("etc/ld.so.preload", content=b"/x.so\n"),
        Made("usr/bin/git", mode=0o4755, content=b"x"),
        Made("workspace/.git/config", content=b"x"),
    ],
    ids=lambda made: f"{made.path} {made.kind!r}",
)
@pytest.mark.parametrize("layer", [0, 2, 4])
def test_something_extra(tiny: Honest, made: Made, layer: int) -> None:
    found(tiny.audit(tiny.changed(add(made, layer))), DifferenceKind.EXTRA, made.path)


@pytest.mark.parametrize("path", [".wh.bin", "usr/bin/.wh.git", "etc/.wh..wh..opq", f"{CLAUDE}/.wh.bin"])
@pytest.mark.parametrize("layer", [0, 2, 4])
def test_a_whiteout(tiny: Honest, path: str, layer: int) -> None:
    found(tiny.audit(tiny.changed(add(Made(path), layer))), DifferenceKind.WHITEOUT, path)


def test_a_whiteout_that_an_artifact_brings(tmp_path: Path) -> None:
    """Its bytes are locked, but as a layer's entry it would hide a file."""
    files = packages()["npm:chalk@5.6.2"]
    made = honest(tmp_path, {"npm:chalk@5.6.2": {**files, "package/.wh.index.js": (b"", 0o644)}})
    report = made.audit(made.image())
    assert {one.kind for one in report.differences} == {DifferenceKind.WHITEOUT, DifferenceKind.MISSING}


def test_an_entry_of_another_layer(tiny: Honest) -> None:
    """Right in itself, but above: it would win over what is below it."""

    def move(layers: Layers) -> None:
        layers[-1].append(next(made for made in layers[2] if made.path == FILES["a file of an agent"]))

    found(tiny.audit(tiny.changed(move)), DifferenceKind.EXTRA, FILES["a file of an agent"])


@pytest.mark.parametrize(
    "path", ["/etc/shadow", "../etc/shadow", "opt/../etc/shadow", "./etc/shadow", "etc//x"]
)
def test_a_path_that_readers_take_for_another(tiny: Honest, path: str) -> None:
    report = tiny.audit(tiny.changed(add(Made(path, content=b"x"))))
    found(report, DifferenceKind.EXTRA, path)


@pytest.mark.parametrize(
    ("path", "to", "word"),
    [
        (f"{CLAUDE}/package.json", f"{CLAUDE}/install.sh", "no install script"),
        (f"{CLAUDE}/install.sh", f"{CLAUDE}/package.json", "no file before it"),
        (NATIVE, "usr/bin/git", "no file before it"),
        (NATIVE, f"{CLAUDE}/bin", "no file before it"),
        (NATIVE, NATIVE, "no file before it"),
        (NATIVE, f"{CLAUDE}/package.json", "other bytes"),
    ],
)
def test_a_hard_link_elsewhere(tiny: Honest, path: str, to: str, word: str) -> None:
    def link(made: Made) -> Made:
        return replace(made, kind=b"1", link=to, content=b"")

    found(tiny.audit(tiny.changed(edit(path, link))), DifferenceKind.CHANGED, path, word)


def test_a_hard_link_between_equal_files_that_no_script_made(tmp_path: Path) -> None:
    files = {"package/a": (b"same\n", 0o644), "package/b": (b"same\n", 0o644)}
    made = honest(tmp_path, {"npm:chalk@5.6.2": files})
    path = f"{PI}/chalk/b"
    report = made.audit(
        made.changed(
            edit(path, lambda one: replace(one, kind=b"1", link=path.replace("/b", "/a"), content=b""))
        )
    )
    found(report, DifferenceKind.CHANGED, path, "no install script")


@attack(by=Position.NPM_PACKAGE)
def test_a_script_places_what_is_locked_for_its_own_agent_only(tiny: Honest) -> None:
    other = packages()["npm:chalk@5.6.2"]["package/index.js"][0]
    report = tiny.audit(tiny.changed(edit(PLACED, lambda made: replace(made, content=other))))
    assert {one.path for one in report.differences} == {PLACED, NATIVE}


@pytest.mark.parametrize("mode", [0o644, 0o4755, 0o777])
def test_the_mode_of_what_a_script_placed(tiny: Honest, mode: int) -> None:
    report = tiny.audit(tiny.changed(edit(PLACED, lambda made: replace(made, mode=mode))))
    assert PLACED in {one.path for one in report.differences}


# --- layers


def test_a_layer_too_many_or_too_few(tiny: Honest) -> None:
    tars = [layer_bytes(entries) for entries in tiny.layers]
    for wrong in (tars[:-1], [*tars, layer_bytes([])], []):
        report = tiny.audit(tiny.image(wrong))
        assert [one.kind for one in report.differences] == [DifferenceKind.LAYERS]


def test_layers_in_another_order(tiny: Honest) -> None:
    tars = [layer_bytes(entries) for entries in tiny.layers]
    assert not tiny.audit(tiny.image([*tars[:2], tars[3], tars[2], tars[4]])).ok


def test_another_base(tiny: Honest) -> None:
    base = tiny.tiny.lock.base.image(AMD64)
    other = replace(base, layers=(replace(base.layers[0], size=1),))
    report = audit_image(tiny.image(), other, tiny.context, tiny.open_artifact)
    assert [one.kind for one in report.differences] == [DifferenceKind.LAYERS]


def test_differences_are_bounded_and_counted(tiny: Honest) -> None:
    def many(layers: Layers) -> None:
        layers[2] += [Made(f"opt/x{n}", mtime=layers[2][0].mtime) for n in range(3 * MAX_LISTED)]

    report = tiny.audit(tiny.changed(many))
    assert len(report.differences) == MAX_LISTED
    assert report.difference_count == 3 * MAX_LISTED


def test_paths_are_shown_without_harm() -> None:
    assert shown("a\x1b[2Jb\n") == "a\\x1b[2Jb\\n"
    assert shown("\udcff") == "\\udcff"
    assert len(shown("x" * 5000)) < 400


# --- artifacts


def test_a_missing_or_damaged_artifact_is_no_answer(tmp_path: Path) -> None:
    made = honest(tmp_path)
    image = made.image()
    path = made.tiny.store.path_of(made.tiny.lock.artifacts[0].integrity)
    path.chmod(0o644)
    path.write_bytes(b"damaged")
    with pytest.raises(StateError, match="damaged"):
        made.audit(image)
    path.unlink()
    with pytest.raises(StateError, match="not in the store"):
        made.audit(image)


# --- whatever is changed


MUTATIONS: dict[str, Callable[[Made, int], Made]] = {
    "content": lambda made, n: replace(made, kind=b"0", content=made.content + bytes([n % 256])),
    "mode": lambda made, n: replace(made, mode=made.mode ^ (1 << n % 12)),
    "uid": lambda made, n: replace(made, uid=made.uid + 1 + n),
    "gid": lambda made, n: replace(made, gid=made.gid + 1 + n),
    "time": lambda made, n: replace(made, mtime=made.mtime + 1 + n),
    "path": lambda made, n: replace(made, path=f"{made.path}{n}"),
    "link": lambda made, n: replace(made, kind=b"2", link=f"{made.link}{n}", content=b""),
    "record": lambda made, n: replace(made, records={f"x.{n}": "y"}),
    "owner": lambda made, n: replace(made, owner=b"o%d" % n),
}


@settings(deadline=None)  # each example writes an image
@given(
    layer=st.integers(0, 4),
    place=st.integers(0, 1000),
    what=st.sampled_from(sorted(MUTATIONS)),
    number=st.integers(0, 100_000),
)
def test_any_change_of_any_entry_is_found(
    tiny: Honest, layer: int, place: int, what: str, number: int
) -> None:
    def change(layers: Layers) -> None:
        entries = layers[layer]
        entries[place % len(entries)] = MUTATIONS[what](entries[place % len(entries)], number)

    assert not tiny.audit(tiny.changed(change)).ok


FULL = {
    "a file of a server": "opt/mcp/files/node_modules/chalk/index.js",
    "a server's command": "opt/mcp/files/node_modules/@example/server-files/dist/index.js",
    "a server's starter": "opt/mcp/files/run",
    "a file of a Skill": "opt/skills/review/SKILL.md",
    "a program of a Skill": "opt/skills/review/bin/look.sh",
}


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Honest:
    return honest(tmp_path_factory.mktemp("full"), lock=make_full_lock())


def test_servers_and_skills_are_accounted_for(full: Honest) -> None:
    report = full.audit(full.image())
    assert report.differences == ()


@cases(FULL)
def test_a_changed_or_missing_byte_of_a_server_or_skill_is_found(full: Honest, path: str) -> None:
    for change in (
        edit(path, lambda made: replace(made, content=made.content + b"x")),
        edit(path, lambda made: replace(made, mode=0o777)),
        edit(path, lambda made: replace(made, uid=1000)),
        edit(path, lambda made: replace(made, path=made.path + "x")),
    ):
        report = full.audit(full.changed(change))
        assert path in {difference.path for difference in report.differences}


# --- wheels and archives

LOOK, QUICK, KIT = "opt/mcp/look", "opt/tools/quick", "opt/archives/kit"
SITE = "lib/python3.11/site-packages"
ADDED = {
    "a module of a server": f"{LOOK}/{SITE}/mcp_server_look/__init__.py",
    "a module that a server needs": f"{LOOK}/{SITE}/anyio/__init__.py",
    "the metadata of a wheel": f"{QUICK}/{SITE}/quick-0.9.dist-info/METADATA",
    "a program of a tool": f"{QUICK}/bin/quick",
    "the data of a tool": f"{QUICK}/share/quick/words",
    "a program of an archive": f"{KIT}/kit-1.2/bin/kit",
    "a file of an archive": f"{KIT}/kit-1.2/share/notes",
    "the settings of an environment": f"{QUICK}/pyvenv.cfg",
    "the starter of a server": f"{LOOK}/run",
    "the launcher of an entry point": "usr/local/bin/quick-show",
    "the launcher of a script": "usr/local/bin/quick.sh",
}
ADDED_LINKS = {
    "a program on the PATH": "usr/local/bin/quick",
    "an archive's command on the PATH": "usr/local/bin/kit",
    "the python of an environment": f"{LOOK}/bin/python3",
}


@pytest.fixture(scope="module")
def added(tmp_path_factory: pytest.TempPathFactory) -> Honest:
    return honest(tmp_path_factory.mktemp("added"), lock=make_added_lock())


def test_wheels_and_archives_have_an_origin_each(added: Honest) -> None:
    report = added.audit(added.image())
    assert report.ok, report.differences
    assert report.entries == sum(map(len, added.layers))


@cases(ADDED)
def test_a_planted_byte_in_each_kind_of_added_file_is_found(added: Honest, path: str) -> None:
    planted = added.changed(edit(path, lambda made: replace(made, content=made.content + b"#")))
    found(added.audit(planted), DifferenceKind.CHANGED, path, "other bytes")


@cases(ADDED)
def test_another_mode_of_each_kind_of_added_file_is_found(added: Honest, path: str) -> None:
    planted = added.changed(edit(path, lambda made: replace(made, mode=made.mode ^ 0o111)))
    found(added.audit(planted), DifferenceKind.CHANGED, path, "mode")


@cases(ADDED, ADDED_LINKS)
def test_a_missing_added_file_is_found(added: Honest, path: str) -> None:
    found(added.audit(added.changed(drop(path))), DifferenceKind.MISSING, path)


@cases(ADDED_LINKS)
def test_an_added_link_that_leads_elsewhere_is_found(added: Honest, path: str) -> None:
    planted = added.changed(edit(path, lambda made: replace(made, link="/tmp/evil")))
    found(added.audit(planted), DifferenceKind.CHANGED, path, "leads to")


@pytest.mark.parametrize(
    "path",
    [
        f"{LOOK}/{SITE}/evil.pth",
        f"{LOOK}/{SITE}/mcp_server_look/__pycache__/__init__.cpython-311.pyc",
        f"{QUICK}/{SITE}/quick-0.9.dist-info/INSTALLER",
        f"{QUICK}/bin/evil",
        f"{KIT}/kit-1.2/bin/evil",
        "usr/local/bin/evil",
    ],
)
def test_a_file_that_no_wheel_or_archive_has_is_found(added: Honest, path: str) -> None:
    layer = next(
        n
        for n, entries in enumerate(added.layers)
        if any(made.path == path.rpartition("/")[0].removesuffix("/__pycache__") for made in entries)
    )
    extra = Made(path, content=b"left out")
    parents = {made.path for made in added.layers[layer]}
    assert path not in parents
    planted = added.audit(added.changed(add(extra, layer)))
    assert not planted.ok
    assert (DifferenceKind.EXTRA, path) in {(one.kind, one.path) for one in planted.differences}


def test_a_wheel_or_archive_that_cannot_be_read_is_no_word_against_the_image(added: Honest) -> None:
    for artifact in added.tiny.lock.artifacts:
        if artifact.kind not in (ArtifactKind.WHEEL, ArtifactKind.ARCHIVE):
            continue
        broken = BytesIO(b"PK\x03\x04 no more of it than this")
        with pytest.raises(StateError) as refused:
            index_artifact(artifact, lambda _, raw=broken: nullcontext(raw))  # type: ignore[misc]
        assert refused.value.where == artifact.id
