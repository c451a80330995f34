"""What the help of each command teaches: examples that can be typed, and the page that shows more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, init=False)
class Lesson:
    """``examples``: whole command lines, each with what it does. ``page``: in the repository."""

    page: str
    examples: tuple[tuple[str, str], ...]

    def __init__(self, page: str, *examples: tuple[str, str]) -> None:
        object.__setattr__(self, "page", page)
        object.__setattr__(self, "examples", examples)

    @property
    def epilog(self) -> str:
        """The end of a help text."""
        shown = "".join(f"  {line}\n      {what}\n" for line, what in self.examples)
        return f"examples:\n{shown}\nhow-to: {self.page}"


_REPOSITORY: Final = "docs/how-to/an-agent-on-my-repository.md"
_LOGIN: Final = "docs/how-to/log-in.md"
_RUNNING: Final = "docs/how-to/what-is-running.md"
_AGENT: Final = "docs/tutorial/first-agent.md"
_FIRST: Final = "docs/tutorial/first-image.md"
_UPDATES: Final = "docs/how-to/update-versions.md"
_SHARING: Final = "docs/how-to/share-through-a-registry.md"
_OFFLINE: Final = "docs/how-to/work-offline.md"

# By command; a command of a command by both words.
LESSONS: Final[Mapping[str, Lesson]] = {
    "init": Lesson(
        _AGENT,
        (
            "builder init --passphrase-file ~/.builder-passphrase",
            "first files; keys with a passphrase",
        ),
        (
            "builder init --unencrypted-keys --allow api.anthropic.com:443",
            "to try it with one provider",
        ),
    ),
    "lock": Lesson(
        _UPDATES,
        ("builder lock", "after a change of builder.toml"),
        ("builder lock --check", "in CI: exit 2 names what changed"),
        ("builder lock --upgrade claude-code", "move one pin to its newest version"),
    ),
    "build": Lesson(
        _FIRST,
        ("builder build", "prints the digest; an image with the same key is found again"),
        ("builder build --no-cache --verbose", "from nothing, and every line of it"),
        ("builder build --cache registry.example/team/agents", "what others built, if it verifies"),
    ),
    "verify": Lesson(
        "docs/reference/verify-checks.md",
        ("builder verify", "every check of the image of the builder.toml here"),
        ("builder verify --attest", "and sign the decision: a launch needs it"),
        ("builder verify --ci", "in CI: lock, policy and image in one command"),
        ("builder verify --rebuild", "build it again and compare the digests"),
    ),
    "run": Lesson(
        _REPOSITORY,
        ('builder run --agent claude-code -- -p "make the tests pass"', "on the repository that you are in"),
        ("builder run --agent pi", "its own screen, at a terminal"),
        ("builder run --session parser --agent pi -- --continue", "where its last run of that name ended"),
        ("builder run -- sh -c 'claude --version'", "a command, without files of yours"),
        ("builder run --review 3f1c5a7be9d02468 --agent claude-code", "what that launch committed"),
        ("builder run --dry-run -- true", "the plan, and nothing is launched"),
    ),
    "show": Lesson(
        _RUNNING,
        ("builder show", "the image of the builder.toml here"),
        ("builder show 3f1c5a7be9d02468", "the signed record of a launch"),
        ("builder show --as compose", "the same plan for Docker Compose"),
    ),
    "doctor": Lesson(
        "docs/how-to/rootless-engines.md",
        ("builder doctor", "what is held here, and the remedy for what is not"),
        ("builder doctor --engine podman --fresh", "another engine, probed again"),
    ),
    "bootstrap": Lesson(
        "docs/how-to/bootstrap-images.md", ("builder bootstrap", "once per machine; minutes the first time")
    ),
    "policy": Lesson(
        "docs/how-to/change-the-policy.md",
        ("builder policy check", "what it decides, line by line"),
        ("builder policy pin", "after you changed it"),
    ),
    "scan": Lesson(
        "docs/how-to/scan-any-image.md",
        ("builder scan image.tar", "what docker save or a build wrote"),
        ("builder scan image.tar --strict", "fail on what could not be opened, too"),
    ),
    "sbom": Lesson(
        "docs/how-to/list-what-is-inside.md",
        ("builder sbom >bill.json", "of the image of the builder.toml here"),
        ("builder sbom -o bill.cdx.json", "as it was signed"),
    ),
    "export": Lesson(
        "docs/how-to/check-with-other-tools.md",
        ("builder export in-toto steps", "links and a layout for in-toto-verify"),
    ),
    "outdated": Lesson(_UPDATES, ("builder outdated", "asks the registries; changes nothing")),
    "diff": Lesson(
        _UPDATES, ("builder diff before.lock builder.lock", "every package that came, went or moved")
    ),
    "push": Lesson(
        _SHARING,
        ("builder push builder.toml registry.example/team/agents:1", "the image here, with its evidence"),
    ),
    "pull": Lesson(
        _SHARING,
        ("builder pull registry.example/team/agents:1", "every byte hashed; builder verify says its worth"),
    ),
    "store": Lesson(_OFFLINE, ("builder store export team.tar", "the image here, and all it needs")),
    "store add": Lesson(
        "docs/how-to/add-tools-and-archives.md",
        ("builder store add tool-1.2.tar.gz", "prints the line for [archives] in builder.toml"),
    ),
    "store export": Lesson(_OFFLINE, ("builder store export team.tar", "prints the SHA-256, to compare")),
    "store import": Lesson(_OFFLINE, ("builder store import team.tar", "every byte hashed; no trust")),
    "gc": Lesson(
        "docs/reference/gc.md",
        ("builder gc --older-than 30d --dry-run", "what would go, and why"),
        ("builder gc --keep 3", "all but the three newest images of each name"),
        ("builder gc --sessions 90d --dry-run", "sessions that nobody used for so long; none without this"),
    ),
    "ps": Lesson(_RUNNING, ("builder ps", "what exists on the engine now")),
    "runs": Lesson(_RUNNING, ("builder runs", "newest last, a line each")),
    "logs": Lesson(_RUNNING, ("builder logs 3f1c5a7be9d02468", "after builder run --keep-log")),
    "reap": Lesson(_RUNNING, ("builder reap --dry-run", "what dead processes left; nothing is removed")),
    "login": Lesson(
        _LOGIN,
        ("builder login claude-code", "its own login, at this terminal; later runs have it"),
        ("builder login claude-code --as work", "another one, for builder run --login work"),
        ("builder login --list", "what is kept, and whether a launch has it"),
    ),
    "logout": Lesson(_LOGIN, ("builder logout claude-code", "forgets it here")),
    "sessions": Lesson(
        "docs/how-to/keep-a-session.md",
        ("builder sessions", "what is kept, its size, when it was last used"),
        ("builder sessions --remove parser", "forgets all that every agent remembers in it"),
    ),
    "completion": Lesson(
        "docs/how-to/complete-in-your-shell.md",
        (
            "builder completion bash >~/.local/share/bash-completion/completions/builder",
            "a new shell finds it there",
        ),
    ),
}
