"""The one module that spawns git on the host and writes its argv: repositories of ours, and one fetch.

Nothing here runs in a repository of somebody else. ``git upload-pack``, which ``fetch`` and ``ls-remote``
start over ``file://``, is the one program that opens the operator's repository, and it only reads.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final
from urllib.parse import quote

from backend.commands import ChildLimits, Input, OnChunk
from backend.engines.client import complaint
from backend.runner import Command, Ending, Outcome, run
from backend.workspace.objects import BatchReader, ObjectFormat, Receiver, Wanted
from images.digests import Digest
from images.errors import HostError, StateError
from provenance.writing import replace_file

MIB: Final = 1024 * 1024
GIB: Final = 1024 * MIB
# For what the operator owns: a large history needs memory to be packed.
READ_LIMITS: Final = ChildLimits(memory=4 * GIB, cpu_seconds=3600, file_bytes=64 * GIB)
# For what an agent made: a pack of 389 kB has taken 395 MB.
CANDIDATE_LIMITS: Final = ChildLimits(memory=512 * MIB, cpu_seconds=300, file_bytes=2 * GIB)
# HEAD of a repository of ours: so that a directory can be compared with what was fetched.
SOURCE_BRANCH: Final = "source"
DEADLINE: Final = 900.0  # seconds
_ANSWER: Final = 4 * MIB
_OLDEST: Final = (2, 39)

# What holds for every git of ours and for the upload-pack that it starts. GIT_CONFIG_COUNT would not reach
# that one: git removes it from the environment of a program that it starts in another repository.
_SETTINGS: Final = """\
[core]
\thooksPath = /dev/null
\tfsmonitor = false
\tuntrackedCache = false
\tattributesFile = /dev/null
\taskPass = false
\tsshCommand = false
\talternateRefsCommand = true
\tquotePath = true
\tpackedGitWindowSize = 32m
\tpackedGitLimit = 256m
\tbigFileThreshold = 16m
[protocol]
\tallow = never
\tversion = 2
[protocol "file"]
\tallow = always
[credential]
\thelper =
[gc]
\tauto = 0
[maintenance]
\tauto = false
[fetch]
\tunpackLimit = 1
\trecurseSubmodules = false
\twriteCommitGraph = false
[submodule]
\trecurse = false
[pack]
\tthreads = 1
\twindowMemory = 256m
[index]
\tthreads = 1
"""
# git's own findings that mean trouble elsewhere too; --strict makes errors of its warnings.
_CHECKS: Final = ("gitignoreSymlink", "gitattributesSymlink", "badFilemode")


@dataclass(frozen=True, slots=True, kw_only=True)
class Repository:
    """A bare repository of ours: made by :meth:`Git.init`, never by anybody else."""

    path: Path
    form: ObjectFormat


@dataclass(frozen=True, slots=True, kw_only=True)
class Incoming:
    """Objects that are not taken yet: a directory beside a repository, whose objects it borrows."""

    repository: Repository
    objects: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Git:
    """A git program and the folder with the only configuration that it reads. Made by :func:`open_git`."""

    program: str
    folder: Path
    search_path: str
    environment: Mapping[str, str] = field(repr=False)

    # -- repositories of ours --------------------------------------------------------------------------------

    def init(self, path: Path, form: ObjectFormat) -> Repository:
        """A new, empty, bare repository at a path that does not exist yet."""
        if path.exists():
            raise StateError("already there", where=str(path))
        outcome = self._run(
            (
                "init",
                "--quiet",
                "--bare",
                "--template=",
                f"--initial-branch={SOURCE_BRANCH}",
                f"--object-format={form.value}",
                str(path),
            ),
            limits=READ_LIMITS,
        )
        _need(outcome, "make a repository", path)
        return Repository(path=path, form=form)

    def batch(
        self, repository: Repository, wanted: Sequence[Wanted], receiver: Receiver, *, limits: ChildLimits
    ) -> Outcome:
        """Give the content of these objects to ``receiver``, hashed again. Raises CandidateRefused."""
        return self._batch(self._in(repository), wanted, repository.form, receiver, limits)

    def batch_incoming(
        self, incoming: Incoming, wanted: Sequence[Wanted], receiver: Receiver, *, limits: ChildLimits
    ) -> Outcome:
        """As :meth:`batch`, from objects that are not taken yet and those that they borrow."""
        form = incoming.repository.form
        return self._batch(self._among(incoming), wanted, form, receiver, limits)

    def kinds(self, repository: Repository, names: Sequence[str]) -> Outcome:
        """One line ``NAME KIND SIZE`` for each name, or ``NAME missing``."""
        return self._in(repository)._run(
            ("cat-file", "--batch-check"), stdin=_lines(names), capture=_room(names)
        )

    def has(self, repository: Repository, reference: str) -> Outcome:
        """Exit code 0: there is such a reference."""
        return self._in(repository)._run(("show-ref", "--verify", "--quiet", reference))

    def point(self, repository: Repository, reference: str, name: str) -> Outcome:
        """Make a reference that must not exist yet."""
        null = "0" * repository.form.digits
        argv = ("update-ref", "--no-deref", reference, name, null)
        return self._in(repository)._run(argv)

    # -- the operator's repository ---------------------------------------------------------------------------

    def fetch(self, repository: Repository, git_dir: Path, name: str, reference: str) -> Outcome:
        """Copy one commit with its history out of the repository at ``git_dir``, which alone is trusted."""
        argv = (
            *("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance"),
            *("--no-recurse-submodules", "--update-shallow", "--end-of-options"),
            *(_url(git_dir), f"{name}:{reference}"),
        )
        return self._trusting(git_dir)._in(repository)._run(argv, limits=READ_LIMITS, deadline=3600.0)

    def references_of(self, repository: Repository, git_dir: Path, names: Sequence[str]) -> Outcome:
        """What these names are in the repository at ``git_dir``; the answer is ``ls-remote --symref``'s."""
        argv = ("ls-remote", "--quiet", "--symref", "--end-of-options", _url(git_dir), *names)
        return self._trusting(git_dir)._in(repository)._run(argv, limits=READ_LIMITS)

    def settings_in(self, file: Path) -> Outcome:
        """The keys and values of a configuration file: parsed, not obeyed, and nothing is included."""
        return self._run(("config", "--file", str(file), "--no-includes", "--null", "--list"))

    def compare(
        self, repository: Repository, commit: str, worktree: Path, index: Path, excludes: Path
    ) -> Outcome:
        """How a directory differs from a commit; the answer is ``status``'s.

        Repository and index are ours, so neither the configuration, the filters, the hooks nor the index of
        the directory's own repository is read; and no git runs in its submodules.
        """
        git = self._in(repository)
        git = replace(git, environment={**git.environment, "GIT_INDEX_FILE": str(index)})
        outcome = git._run(("read-tree", "--end-of-options", commit), limits=READ_LIMITS)
        if not outcome.ok:
            return outcome
        status = ("status", "--porcelain=v2", "--untracked-files=all", "--ignore-submodules=dirty")
        argv = ("-c", f"core.excludesFile={excludes}", f"--work-tree={worktree}", *status, "--no-renames")
        # In the directory itself: what status prints would otherwise be relative to another one.
        return git._run(argv, limits=READ_LIMITS, working_dir=worktree)

    # -- what an agent exported ------------------------------------------------------------------------------

    def index_pack(self, incoming: Incoming, pack: Iterator[bytes], max_bytes: int) -> Outcome:
        """Take a pack apart strictly into ``incoming``; a thin one is refused, since nothing completes it."""
        checks = ",".join(f"{check}=error" for check in _CHECKS)
        argv = ("index-pack", f"--strict={checks}", "--threads=1", f"--max-input-size={max_bytes}", "--stdin")
        return self._among(incoming)._run(argv, stdin=pack, limits=CANDIDATE_LIMITS)

    def own_objects(self, incoming: Incoming, on_line: OnChunk) -> Outcome:
        """One line ``NAME KIND SIZE`` for each object of ``incoming`` itself, without the borrowed ones."""
        argv = ("cat-file", "--batch-all-objects", "--batch-check", "--unordered")
        return self._among(incoming, borrowing=False)._run(
            argv, on_stdout=on_line, capture=0, limits=CANDIDATE_LIMITS
        )

    def is_ancestor(self, incoming: Incoming, older: str, newer: str) -> Outcome:
        """Exit code 0: yes; 1: no."""
        argv = ("merge-base", "--is-ancestor", older, newer)
        return self._among(incoming)._run(argv, limits=CANDIDATE_LIMITS)

    def reached(self, incoming: Incoming, tip: str, base: str, on_line: OnChunk) -> Outcome:
        """Each object that ``tip`` reaches and ``base`` does not, one name a line; all must be there."""
        argv = ("rev-list", "--objects", "--no-object-names", "--end-of-options", tip, f"^{base}")
        return self._among(incoming)._run(argv, on_stdout=on_line, capture=0, limits=CANDIDATE_LIMITS)

    # -- how it runs -----------------------------------------------------------------------------------------

    def _batch(
        self,
        git: Git,
        wanted: Sequence[Wanted],
        form: ObjectFormat,
        receiver: Receiver,
        limits: ChildLimits,
    ) -> Outcome:
        reader = BatchReader(wanted, form, receiver)
        names = _lines([item.name for item in wanted])
        argv = ("cat-file", "--batch", "--buffer")
        outcome = git._run(argv, stdin=names, on_stdout=reader.take, capture=0, limits=limits)
        if outcome.ok:
            reader.close()
        return outcome

    def _in(self, repository: Repository) -> Git:
        return replace(self, environment={**self.environment, "GIT_DIR": str(repository.path)})

    def _among(self, incoming: Incoming, *, borrowing: bool = True) -> Git:
        git = self._in(incoming.repository)
        own = {"GIT_OBJECT_DIRECTORY": str(incoming.objects)}
        if borrowing:
            lender = _quoted(str(incoming.repository.path / "objects"))
            own["GIT_ALTERNATE_OBJECT_DIRECTORIES"] = lender
        return replace(git, environment={**git.environment, **own})

    def _trusting(self, git_dir: Path) -> Git:
        """The same, which takes this exact directory as safe, whoever owns it, for this process alone."""
        data = str(git_dir).encode("utf-8", "surrogateescape")
        file = self.folder / f"config-{Digest.of(data).hex[:16]}"
        text = f"{_SETTINGS}[safe]\n\tdirectory = {_quoted(str(git_dir))}\n"
        replace_file(file, text.encode("utf-8", "surrogateescape"), 0o600)
        return replace(self, environment={**self.environment, "GIT_CONFIG_GLOBAL": str(file)})

    def _run(
        self,
        arguments: tuple[str, ...],
        *,
        limits: ChildLimits = CANDIDATE_LIMITS,
        stdin: Input = None,
        on_stdout: Callable[[bytes], None] | None = None,
        capture: int = _ANSWER,
        deadline: float = DEADLINE,
        working_dir: Path = Path("/"),
    ) -> Outcome:
        command = Command(
            argv=(self.program, "--no-pager", "--no-replace-objects", *arguments),
            environment=self.environment,
            deadline=deadline,
            working_dir=working_dir,
            stdin=stdin,
            capture=capture,
            limits=limits,
        )
        outcome = run(command, on_stdout=on_stdout)
        if outcome.ending in (Ending.NOT_FOUND, Ending.NOT_STARTED):
            raise HostError(
                f"git cannot be started: {outcome.detail}",
                where=self.program,
                hint="apt-get install git util-linux",
                reason="git",
            )
        return outcome


def open_git(folder: Path, environment: Mapping[str, str]) -> Git:
    """The git of this host, with ``folder`` (0700, ours) as its home and only configuration.

    Of ``environment`` only PATH is used. Raises HostError when there is no git, or one that is too old.
    """
    search_path = environment.get("PATH", "")
    program = shutil.which("git", path=search_path)
    if program is None:
        raise HostError("there is no git on the PATH", hint="apt-get install git", reason="git")
    settings = folder / "config"
    replace_file(settings, _SETTINGS.encode(), 0o600)
    own = {
        "PATH": search_path,
        "HOME": str(folder),
        "XDG_CONFIG_HOME": str(folder),
        "LC_ALL": "C",
        "TZ": "UTC",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": str(settings),
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_ALLOW_PROTOCOL": "file",
        "GIT_PROTOCOL_FROM_USER": "0",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_CEILING_DIRECTORIES": "/",
    }
    git = Git(program=program, folder=folder, search_path=search_path, environment=own)
    outcome = git._run(("version",))
    found = re.match(rb"git version (\d+)\.(\d+)", outcome.stdout)
    if not outcome.ok or not found or (int(found[1]), int(found[2])) < _OLDEST:
        said = explain(outcome) if not outcome.ok else complaint(outcome.stdout)
        raise HostError(
            f"git {_OLDEST[0]}.{_OLDEST[1]} or newer is needed: {said}",
            where=program,
            hint="apt-get install git",
            reason="git",
        )
    return git


def line_to_fetch(directory: Path | None, repository: str, reference: str, branch: str) -> str:
    """What a person types, with a git of his own, to take a reference of ours as a branch of his.

    ``directory``: None when it is typed inside of his repository.
    """
    there = ("-C", str(directory)) if directory else ()
    return shlex.join(("git", *there, "fetch", repository, f"{reference}:{branch}"))


def explain(outcome: Outcome) -> str:
    """Why git failed: a limit or a signal, else the first and the last line that it wrote, made printable."""
    if outcome.ending is not Ending.EXITED:
        return outcome.detail or outcome.ending.value
    if outcome.exit_code is not None and outcome.exit_code < 0:
        return f"ended by signal {-outcome.exit_code}: it went beyond its memory, time or file size"
    lines = [line for line in outcome.stderr[:_ANSWER].splitlines() if line.strip()]
    said = [complaint(line) for line in dict.fromkeys((*lines[:1], *lines[-1:]))]
    return "; ".join(said) or f"exit code {outcome.exit_code}"


def _need(outcome: Outcome, what: str, where: Path) -> None:
    if not outcome.ok:
        raise StateError(
            f"git cannot {what}: {explain(outcome)}", where=str(where), hint=f"df -h {where.parent}"
        )


def _lines(names: Sequence[str]) -> bytes:
    return "".join(f"{name}\n" for name in names).encode()


def _room(names: Sequence[str]) -> int:
    return 128 * (len(names) + 1)


def _url(path: Path) -> str:
    return "file://" + quote(str(path).encode("utf-8", "surrogateescape"))


def _quoted(text: str) -> str:
    """A value as a configuration file of git writes it."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return f'"{escaped}"'
