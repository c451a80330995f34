"""Materialising writes exactly the blobs, whatever the tree says about itself, and refuses trick names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.workspace import materialise as module
from backend.workspace.git import Git, Repository
from backend.workspace.links import Steps, stays_inside
from backend.workspace.materialise import materialise
from backend.workspace.names import name_fault
from backend.workspace.origin import find_origin
from backend.workspace.reading import fetch_commit
from backend.workspace.refusals import CandidateReason, CandidateRefused
from backend.workspace.trees import TreeLimits
from images.errors import ExitCode, StateError
from tests.fakes.repositories import Repo, tree_bytes


def fetched(git: Git, repo: Repo, commit: str, tmp_path: Path) -> Repository:
    return fetch_commit(git, find_origin(git, repo.path), commit, tmp_path / "ours.git").repository


def adopted(git: Git, repo: Repo, tmp_path: Path) -> Repository:
    """The objects of ``repo`` as if they had been ours: a fetch would refuse some of them by itself."""
    ours = git.init(tmp_path / "ours.git", find_origin(git, repo.path).form)
    (ours.path / "objects/info").mkdir(exist_ok=True)
    (ours.path / "objects/info/alternates").write_text(f"{repo.path}/.git/objects\n")
    return ours


def blobs(repo: Repo, commit: str) -> dict[str, bytes]:
    listed = repo.raw("ls-tree", "-r", "-z", "--name-only", commit).split(b"\0")[:-1]
    return {
        os.fsdecode(name): repo.raw("cat-file", "blob", f"{commit}:{os.fsdecode(name)}") for name in listed
    }


ATTRIBUTES = """\
*.txt text eol=crlf
*.enc working-tree-encoding=UTF-16
*.id ident
*.sub export-subst
*.secret export-ignore
*.drv filter=canary diff=canary merge=canary
"""


def test_exactly_the_blobs_whatever_the_attributes_say(git: Git, operator: Repo, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    operator.git("config", "filter.canary.smudge", f"touch {canary}; cat")
    operator.git("config", "filter.canary.process", f"touch {canary}")
    operator.git("config", "core.autocrlf", "true")
    files: dict[str, str | bytes] = {
        "a.txt": b"one\r\ntwo\n",
        "b.enc": "grüße\n".encode(),
        "c.id": b"$Id$ $Id: old $\n",
        "d.sub": b"$Format:%H$\n",
        "e.secret": b"not left out\n",
        "f.drv": b"\x00\xff\r\n" * 100,
        'odd "name"\n\t\\': b"quoted",
        "empty": b"",
    }
    entries = [
        ("100644", os.fsencode(name), operator.object("blob", body if isinstance(body, bytes) else b""))
        for name, body in files.items()
    ]
    entries.append(("100644", b".gitattributes", operator.object("blob", ATTRIBUTES.encode())))
    tree = operator.tree(*sorted(entries, key=lambda entry: entry[1]))
    commit = operator.commit_tree(tree, operator.head)
    done = materialise(git, fetched(git, operator, commit, tmp_path), commit, tmp_path / "source")
    written = {str(place.relative_to(done.folder)): place.read_bytes() for place in done.folder.iterdir()}
    assert written == {**files, ".gitattributes": ATTRIBUTES.encode()}
    assert (done.tree, done.files) == (tree, 9)
    assert not canary.exists()


def test_modes_do_not_depend_on_the_umask(git: Git, operator: Repo, tmp_path: Path) -> None:
    (operator.path / "run").write_text("#!/bin/sh\n")
    (operator.path / "run").chmod(0o700)
    operator.git("update-index", "--add", "--chmod=+x", "run")
    operator.git("commit", "--quiet", "-m", "x")
    repository = fetched(git, operator, operator.head, tmp_path)
    for mask in (0o077, 0o000):
        old = os.umask(mask)
        try:
            done = materialise(git, repository, operator.head, tmp_path / f"source-{mask}")
        finally:
            os.umask(old)
        modes = {str(p.relative_to(done.folder)): p.stat().st_mode & 0o7777 for p in done.folder.rglob("*")}
        assert modes == {
            "readme": 0o644,
            "run": 0o755,
            "src": 0o755,
            "src/a.txt": 0o644,
            "src/b.txt": 0o644,
        }
        assert done.folder.stat().st_mode & 0o7777 == 0o755


def test_links_stay_links_only_where_they_stay_inside(git: Git, operator: Repo, tmp_path: Path) -> None:
    links = {
        "inside": "src/a.txt",
        "src/up": "../readme",
        "dangling": "no/such",
        "src/here": "..",
        "out": "../elsewhere",
        "absolute": "/etc/passwd",
        "by-another": "src/here/..",
        "loop": "loop",
        "src/far": "a/b/../../../../x",
    }
    for name, target in links.items():
        (operator.path / name).symlink_to(target)
    operator.git("add", "--all")
    operator.git("commit", "--quiet", "-m", "links")
    done = materialise(
        git, fetched(git, operator, operator.head, tmp_path), operator.head, tmp_path / "source"
    )
    left = {b"out", b"absolute", b"by-another", b"loop", b"src/far"}
    assert set(done.links_as_files) == left
    for name, target in links.items():
        place = done.folder / name
        if name.encode() in left:
            assert not place.is_symlink()
            assert place.read_text() == target
        else:
            assert os.readlink(place) == target  # noqa: PTH115
    assert done.tree == operator.git("rev-parse", "HEAD^{tree}")


PARTS = st.sampled_from([b"a", b"b", b"c", b"..", b".", b""])


@given(st.dictionaries(st.sampled_from([b"a", b"b", b"d/a", b"d/b", b"d/e/c"]), st.lists(PARTS, max_size=6)))
def test_a_link_that_stays_inside_is_never_resolved_outside(raw: dict[bytes, list[bytes]]) -> None:
    links = {path: b"/".join(parts) for path, parts in raw.items()}
    for path in links:
        if stays_inside(path, links):
            assert resolved(path, links, 0) is not None


def resolved(path: bytes, links: dict[bytes, bytes], hops: int) -> list[bytes] | None:
    """A second, recursive way to follow a path; None = it left the root or did not end."""
    place: list[bytes] = []
    if hops > 60 or path.startswith(b"/"):
        return None
    for part in path.split(b"/"):
        if part in (b"", b"."):
            continue
        if part == b"..":
            if not place:
                return None
            place.pop()
            continue
        whole = b"/".join((*place, part))
        if whole in links:
            target = links[whole]
            if target.startswith(b"/"):
                return None
            found = resolved(b"/".join((*place, target)), links, hops + 1)
            if found is None:
                return None
            place = found
        else:
            place.append(part)
    return place


def test_a_submodule_is_an_empty_directory_and_is_reported(git: Git, operator: Repo, tmp_path: Path) -> None:
    inner = Repo.new(tmp_path / "inner")
    inner.commit({"x": "1"})
    operator.git("submodule", "--quiet", "add", str(inner.path), "lib/sub")
    operator.commit({})
    done = materialise(
        git, fetched(git, operator, operator.head, tmp_path), operator.head, tmp_path / "source"
    )
    assert done.submodules == ((b"lib/sub", inner.head),)
    assert list((done.folder / "lib/sub").iterdir()) == []
    assert done.tree == operator.git("rev-parse", "HEAD^{tree}")


def test_pointers_to_large_files_are_reported(git: Git, operator: Repo, tmp_path: Path) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 9\n"
    commit = operator.commit({"big.bin": pointer, "about.txt": f"this is no pointer: {pointer}"})
    done = materialise(git, fetched(git, operator, commit, tmp_path), commit, tmp_path / "source")
    assert done.lfs_pointers == (b"big.bin",)
    assert (done.folder / "big.bin").read_text() == pointer


def test_names_that_differ_in_case_are_both_written_and_reported(
    git: Git, operator: Repo, tmp_path: Path
) -> None:
    commit = operator.commit({"Readme": "other\n", "SRC/a.txt": "x"})
    done = materialise(git, fetched(git, operator, commit, tmp_path), commit, tmp_path / "source")
    assert (done.folder / "Readme").read_text() == "other\n"
    assert (done.folder / "readme").read_text() == "one\n"
    assert set(done.same_but_for_case) == {b"readme", b"src", b"src/a.txt"}


def test_two_paths_that_the_file_system_makes_one_are_refused(
    git: Git, operator: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = operator.commit({"Readme": "other\n"})
    repository = fetched(git, operator, commit, tmp_path)
    new_file = module._Writer.new_file
    monkeypatch.setattr(
        module._Writer, "new_file", lambda self, path, mode: new_file(self, path.lower(), mode)
    )
    with pytest.raises(CandidateRefused, match="two paths are one") as refused:
        materialise(git, repository, commit, tmp_path / "source")
    assert refused.value.reason == CandidateReason.NAME
    assert not (tmp_path / "source").exists()


TRICKS = [
    b".git",
    b".GIT",
    b".Git ",
    b".git.",
    b".git . .",
    b"git~1",
    b"GIT~1",
    b".git::$INDEX_ALLOCATION",
    b".git\\config",
    b"a\\.git",
    ".g\u200cit".encode(),
    ".\u2060git\ufeff".encode().replace("\u2060".encode(), "\u206a".encode()),
    b".",
    b"..",
    b"",
    b"a/b",
    b"x" * 256,
]


@pytest.mark.parametrize("name", TRICKS)
@pytest.mark.parametrize("below", [False, True])
def test_trick_names_are_refused(git: Git, operator: Repo, tmp_path: Path, name: bytes, below: bool) -> None:
    blob = operator.object("blob", b"[core]\n\tfsmonitor = touch /tmp/canary\n")
    tree = operator.tree(("100644", name, blob))
    if below:
        tree = operator.tree(("40000", b"dir", tree))
    commit = operator.commit_tree(tree)
    with pytest.raises(CandidateRefused) as refused:
        materialise(git, adopted(git, operator, tmp_path), commit, tmp_path / "source")
    assert (refused.value.reason, refused.value.code) == (CandidateReason.NAME, ExitCode.VERIFY)
    assert not (tmp_path / "source").exists()


@pytest.mark.parametrize(
    "name",
    [
        b".gitignore",
        b"git",
        b"a.git",
        b".gitx",
        b"git~2",
        b'"',
        b"a\nb",
        b"\xff\xfe",
        b"-rf",
        b"~",
        b"a\\b",
        b":",
    ],
)
def test_ordinary_names_may_stay(name: bytes) -> None:
    assert name_fault(name) == ""


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        ([("100644", b"a", "b"), ("100644", b"a", "b")], CandidateReason.TREE),
        ([("100644", b"a", "b"), ("40000", b"a", "t")], CandidateReason.TREE),
        ([("120000", b"a", "b"), ("40000", b"a", "t")], CandidateReason.TREE),
        ([("100644", b"b", "b"), ("100644", b"a", "b")], CandidateReason.TREE),
        ([("100664", b"a", "b")], CandidateReason.MODE),
        ([("104755", b"a", "b")], CandidateReason.MODE),
        ([("040000", b"a", "t")], CandidateReason.MODE),
        ([("100644", b"a", "t")], CandidateReason.OBJECT_KIND),
        ([("40000", b"a", "b")], CandidateReason.OBJECT_KIND),
        ([("100644", b"a", "missing")], CandidateReason.TREE),
    ],
)
def test_unsound_trees_are_refused(
    git: Git,
    operator: Repo,
    tmp_path: Path,
    entries: list[tuple[str, bytes, str]],
    reason: CandidateReason,
) -> None:
    blob = operator.object("blob", b"x")
    targets = {"b": blob, "t": operator.tree(("100644", b"f", blob)), "missing": "1" * 40}
    tree = operator.tree(*((mode, name, targets[target]) for mode, name, target in entries))
    with pytest.raises(CandidateRefused) as refused:
        materialise(git, adopted(git, operator, tmp_path), operator.commit_tree(tree), tmp_path / "source")
    assert refused.value.reason == reason
    assert not (tmp_path / "source").exists()


@pytest.mark.parametrize("content", [b"100644 a\0short", b"garbage", b"100644 a", tree_bytes()[:0] + b"\0"])
def test_what_is_no_tree_is_refused(git: Git, operator: Repo, tmp_path: Path, content: bytes) -> None:
    commit = operator.commit_tree(operator.object("tree", content))
    with pytest.raises(CandidateRefused) as refused:
        materialise(git, adopted(git, operator, tmp_path), commit, tmp_path / "source")
    assert refused.value.reason == CandidateReason.TREE


def test_a_tree_that_unfolds_without_end_is_refused_soon(git: Git, operator: Repo, tmp_path: Path) -> None:
    tree = operator.tree(("100644", b"f", operator.object("blob", b"x")))
    for _ in range(12):
        tree = operator.tree(*(("40000", b"%d" % number, tree) for number in range(10)))
    limits = TreeLimits(entries=5000)
    with pytest.raises(CandidateRefused, match="more than 5000") as refused:
        materialise(git, adopted(git, operator, tmp_path), operator.commit_tree(tree), tmp_path / "s", limits)
    assert refused.value.reason == CandidateReason.TOO_LARGE


def test_a_deep_tree_is_refused(git: Git, operator: Repo, tmp_path: Path) -> None:
    tree = operator.tree(("100644", b"f", operator.object("blob", b"x")))
    for _ in range(20):
        tree = operator.tree(("40000", b"d", tree))
    ours, commit = adopted(git, operator, tmp_path), operator.commit_tree(tree)
    with pytest.raises(CandidateRefused, match="deeper than 20"):
        materialise(git, ours, commit, tmp_path / "s", TreeLimits(depth=20))
    assert materialise(git, ours, commit, tmp_path / "s", TreeLimits(depth=21)).files == 1


def test_one_link_named_many_times_is_read_once(git: Git, operator: Repo, tmp_path: Path) -> None:
    """A commit of some kilobytes may have half a million links to one large object."""
    far = operator.object("blob", b"/" + b"x" * 60_000)
    tree = operator.tree(*(("120000", b"%03d" % number, far) for number in range(100)))
    ours, commit = adopted(git, operator, tmp_path), operator.commit_tree(tree)
    done = materialise(git, ours, commit, tmp_path / "s", TreeLimits(tree_bytes=100_000))
    assert len(done.links_as_files) == 100
    assert done.size == 100 * 60_001
    with pytest.raises(CandidateRefused, match="the files have more than"):
        materialise(git, ours, commit, tmp_path / "t", TreeLimits(total_bytes=5_000_000))
    with pytest.raises(CandidateRefused, match="links of this commit are too large"):
        materialise(git, ours, commit, tmp_path / "u", TreeLimits(tree_bytes=50_000))
    assert not (tmp_path / "t").exists()


def test_links_that_take_hours_to_follow_are_refused_soon() -> None:
    links = {b"0": b"a/../" * 800 + b"a"}
    links |= {b"%d" % number: b"a/../" * 800 + b"%d" % (number - 1) for number in range(1, 40)}
    assert stays_inside(b"39", links)
    steps = Steps(left=100_000)
    assert stays_inside(b"39", links, steps)
    with pytest.raises(CandidateRefused, match="sensible time") as refused:
        stays_inside(b"39", links, steps)  # what is left is for all of them together
    assert refused.value.reason == CandidateReason.TOO_LARGE
    shallow, deep = Steps(left=100_000), Steps(left=100_000)
    stays_inside(b"k", {b"k": b"x/../" * 400}, shallow)
    stays_inside(b"k", {b"k": b"x/" * 800}, deep)
    assert deep.left < shallow.left


def test_paths_that_unfold_are_bounded_together(git: Git, operator: Repo, tmp_path: Path) -> None:
    tree = operator.tree(("100644", b"f" * 200, operator.object("blob", b"x")))
    for _ in range(3):
        tree = operator.tree(*(("40000", b"d" * 200 + b"%d" % number, tree) for number in range(10)))
    commit = operator.commit_tree(tree)
    with pytest.raises(CandidateRefused, match="paths of this commit have more than 500000"):
        materialise(
            git, adopted(git, operator, tmp_path), commit, tmp_path / "s", TreeLimits(tree_bytes=500_000)
        )


@pytest.mark.parametrize(
    "limits",
    [
        TreeLimits(file_bytes=9),
        TreeLimits(total_bytes=9),
        TreeLimits(tree_bytes=30),
        TreeLimits(path_bytes=5),
    ],
)
def test_each_bound_holds(git: Git, operator: Repo, tmp_path: Path, limits: TreeLimits) -> None:
    commit = operator.commit({"large.bin": "x" * 10})
    with pytest.raises(CandidateRefused) as refused:
        materialise(git, fetched(git, operator, commit, tmp_path), commit, tmp_path / "s", limits)
    assert refused.value.reason == CandidateReason.TOO_LARGE
    assert not (tmp_path / "s").exists()


def test_what_is_on_the_disk_is_what_counts(
    git: Git, operator: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = fetched(git, operator, operator.head, tmp_path)
    written = module._Writer.data
    monkeypatch.setattr(
        module._Writer, "data", lambda self, chunk: written(self, chunk.replace(b"one", b"two"))
    )
    with pytest.raises(CandidateRefused) as refused:
        materialise(git, repository, operator.head, tmp_path / "source")
    assert refused.value.reason == CandidateReason.DIFFERENT_TREE
    assert not (tmp_path / "source").exists()


def test_an_existing_directory_is_left_alone(git: Git, operator: Repo, tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source/mine").write_text("x")
    with pytest.raises(StateError):
        materialise(git, fetched(git, operator, operator.head, tmp_path), operator.head, tmp_path / "source")
    assert (tmp_path / "source/mine").read_text() == "x"


def test_many_and_large_files_arrive_whole(git: Git, operator: Repo, tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {f"many/{number:04}": f"{number}\n" * number for number in range(300)}
    files["large"] = os.urandom(3_000_000) + b"\n" * 17_000_000
    commit = operator.commit(files)
    done = materialise(git, fetched(git, operator, commit, tmp_path), commit, tmp_path / "source")
    assert all(
        (done.folder / name).read_bytes() == (body if isinstance(body, bytes) else body.encode())
        for name, body in files.items()
    )
    assert done.size == sum(len(body) for body in blobs(operator, commit).values())
