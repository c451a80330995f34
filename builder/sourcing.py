"""`builder run --source`: the operator's repository found, its commit made ready, and the way home told."""

from __future__ import annotations

import secrets
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from backend.engines.select import private_directory
from backend.records import LaunchRecord
from backend.requests import LaunchSource, SourceRoute
from backend.room import ExportStatus, SpaceSeen
from backend.workspace.git import Git, line_to_fetch, open_git
from backend.workspace.names import quoted
from backend.workspace.origin import Origin, find_origin
from backend.workspace.prepared import PreparedSource, prepare_source
from backend.workspace.reading import read_revision
from backend.workspace.unseen import UnseenReport
from builder.report import Reporter
from builder.workshop import Workshop

MOST_NAMED: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRequest:
    """What the command line says: a directory, a commit of it (id, branch, tag, HEAD), and how it gets in."""

    directory: Path
    revision: str
    route: SourceRoute
    workspace_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundSource:
    """A repository that can be read, and the exact commit of it."""

    asked: SourceRequest
    git: Git
    origin: Origin
    commit: str


def find_source(workshop: Workshop, asked: SourceRequest, staging: Path) -> FoundSource:
    """Cheap: what is refused about a repository is refused before an image is looked at."""
    git = controllers_git(workshop)
    origin = find_origin(git, asked.directory)
    commit = read_revision(git, origin, staging / f"asked-{secrets.token_hex(4)}.git", asked.revision)
    return FoundSource(asked=asked, git=git, origin=origin, commit=commit)


def repository_here(directory: Path) -> Path | None:
    """The top of the work tree that a folder is in; whether it can be a source is judged later."""
    return next((top for top in (directory, *directory.parents) if (top / ".git").exists()), None)


def controllers_git(workshop: Workshop) -> Git:
    """Git with a home of this state's own, and nothing of the operator's configuration."""
    return open_git(private_directory(workshop.state.client_home / "sources"), workshop.environment)


def ready_source(workshop: Workshop, found: FoundSource, staging: Path) -> LaunchSource:
    """The files of the commit below ``staging``; what is not in it is told."""
    reporter = workshop.reporter
    with reporter.step("fetch and write the source"):
        prepared = prepare_source(found.git, found.origin, found.commit, staging)
    _tell_source(reporter, found, prepared)
    return LaunchSource(
        prepared=prepared, route=found.asked.route, workspace_bytes=found.asked.workspace_bytes
    )


def tell_export(reporter: Reporter, directory: Path | None, record: LaunchRecord) -> None:
    """What came out, what did not, and the line to type that brings the commits home.

    ``directory``: the operator's repository; None when nobody named it, and the line is for inside of it.
    """
    seen = record.observed.space
    if seen is None:
        return
    if seen.unseen is not None:
        _tell_unseen(reporter, "not exported, since it was not committed", seen.unseen)
    if seen.status is ExportStatus.NOTHING_NEW:
        reporter.say("nothing to export: the agent made no commit")
    if seen.imported is not None:
        reporter.say(
            f"exported: commit {seen.imported.commit.name}, {seen.imported.objects} objects, checked"
        )
    line = fetch_line(seen, directory, record.launch_id)
    if line:
        reporter.note("bring it home" if directory else "in your repository, bring it home", line)
        reporter.say(f"or go on from it: builder run --review, --check or --fix {record.launch_id}")


def fetch_line(seen: SpaceSeen, directory: Path | None, launch_id: str) -> str:
    """The command of the operator's own git; empty when nothing was exported."""
    if seen.fetch is None:
        return ""
    repository, reference = seen.fetch
    return line_to_fetch(directory, repository, reference, f"refs/heads/agent/{launch_id}")


def _tell_source(reporter: Reporter, found: FoundSource, prepared: PreparedSource) -> None:
    reporter.say(f"source: commit {prepared.commit} of {found.origin.worktree or found.origin.git_dir}")
    tell_tree(reporter, prepared)
    _tell_unseen(reporter, "not seen by the agent, since it is not in the commit", prepared.unseen)


def tell_tree(reporter: Reporter, prepared: PreparedSource) -> None:
    """What of the commit is in /source, and what of it is not what a checkout of yours would have."""
    tree = prepared.tree
    reporter.say(f"source: {tree.files} files, {tree.size} bytes, tree {tree.tree}")
    if prepared.fetched.shallow:
        reporter.say("source: its history ends where your shallow clone ends")
    for what, paths in (
        ("links that leave, written as files", tree.links_as_files),
        ("submodules, empty in the source", tuple(path for path, _ in tree.submodules)),
        ("Git LFS pointers, without their content", tree.lfs_pointers),
        ("names that differ in case only", tree.same_but_for_case),
    ):
        if paths:
            reporter.warn(f"{len(paths)} {what}: {', '.join(map(quoted, paths[:MOST_NAMED]))}")


def _tell_unseen(reporter: Reporter, what: str, unseen: UnseenReport) -> None:
    if unseen.nothing:
        return
    kinds = Counter(entry.kind.value for entry in unseen.entries)
    counted = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())) or "unnamed"
    more = "" if unseen.complete else ", and perhaps more"
    reporter.warn(f"{what}: {unseen.total} ({counted}){more}")
    for entry in unseen.entries[:MOST_NAMED]:
        reporter.say(f"  {entry.kind.value} {entry.path}")
    if unseen.total > MOST_NAMED:
        reporter.say(f"  and {unseen.total - MOST_NAMED} more")
