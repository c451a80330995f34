"""A terminal of a person's, by tmux: a shell in it, what it shows, keys, sizes, and its sudden end."""

from __future__ import annotations

import re
import shlex
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

COLUMNS: Final = 100
ROWS: Final = 30
_PATIENCE: Final = 240.0  # seconds until what was waited for does not come any more


@dataclass
class Window:
    """One tmux server with one window of its own, in which a shell waits."""

    socket: Path
    folder: Path
    typed: int = 0

    def tmux(self, *words: str) -> str:
        return subprocess.run(
            ["tmux", "-S", str(self.socket), "-f", "/dev/null", *words],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout

    def type(self, text: str) -> None:
        """As it stands, and Enter."""
        self.tmux("send-keys", "-l", text)
        self.press("Enter")

    def press(self, *keys: str) -> None:
        """By tmux's names: C-c, Enter, Escape."""
        self.tmux("send-keys", *keys)

    def resize(self, columns: int, rows: int) -> None:
        self.tmux("resize-window", "-x", str(columns), "-y", str(rows))

    def screen(self) -> str:
        """What is shown, and the last lines that went off the top."""
        return self.tmux("capture-pane", "-p", "-J", "-S", "-300")

    def told(self, name: str) -> str:
        """A variable of tmux's, such as ``alternate_on``."""
        return self.tmux("display-message", "-p", f"#{{{name}}}").strip()

    def wait(self, wanted: str, seconds: float = _PATIENCE) -> str:
        """The first group of a pattern (else all of it), once the screen shows it."""
        until = time.monotonic() + seconds
        while (found := re.search(wanted, screen := self.screen())) is None:
            assert time.monotonic() < until, f"{wanted!r} does not come:\n{screen}"
            time.sleep(0.1)
        return found[1] if found.groups() else found[0]

    def run(self, argv: list[str]) -> None:
        """Type a command that is too long to be typed; at its end ``code N`` is shown, and Enter waited for.

        Neither shell touches the terminal's settings: the interactive one waits, the other never does.
        """
        self.typed += 1
        file = self.folder / f"typed-{self.typed}"
        file.write_text(
            f"stty -g >{file}.before\n{shlex.join(argv)}\n"
            f'code=$?\necho $code >{file}.code\necho "code $code"\nread -r line\n'
        )
        self.tmux("clear-history")
        self.type(f"clear; sh {file}")

    def ended_with(self, code: int) -> bool:
        """Whether the last command has, also where what the shell said of it went with another screen."""
        file = self.folder / f"typed-{self.typed}.code"
        return file.exists() and file.read_text() == f"{code}\n"

    def is_as_before(self) -> bool:
        """Whether the settings are those that the last command found."""
        return self.settings() == (self.folder / f"typed-{self.typed}.before").read_text().strip()

    def leave(self) -> None:
        """Enter, and the prompt."""
        self.press("Enter")
        self.wait(r"ready\$ \s*\Z")

    def job(self) -> int:
        """The process of the command that was typed."""
        (shell,) = _children(int(self.told("pane_pid")))
        (child,) = _children(shell)
        return child

    def settings(self) -> str:
        """The terminal's settings, as ``stty`` writes them down."""
        return subprocess.run(
            ["stty", "-g", "-F", self.told("pane_tty")], capture_output=True, text=True, check=True
        ).stdout.strip()

    def holders(self) -> set[int]:
        """The processes that have this terminal open."""
        name, found = self.told("pane_tty"), set()
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if any(str(item.readlink()) == name for item in (process / "fd").iterdir()):
                    found.add(int(process.name))
            except OSError:  # it has ended, or is somebody else's
                continue
        return found

    def hang_up(self) -> None:
        """The window is closed while everything in it runs."""
        self.tmux("kill-server")


@contextmanager
def window(cwd: Path) -> Iterator[Window]:
    """A window with an interactive shell in a directory; whatever is left in it hears the hang-up."""
    with tempfile.TemporaryDirectory(prefix="window-") as name:  # short: it is a socket's path
        made = Window(Path(name) / "tmux", Path(name))
        shell = ["exec", "env", "PS1=ready$ ", "bash", "--norc", "--noprofile", "-i"]
        size = ["-x", str(COLUMNS), "-y", str(ROWS)]
        made.tmux("new-session", "-d", *size, "-c", str(cwd), shlex.join(shell))
        try:
            made.wait(r"ready\$ ")
            yield made
        finally:
            # Not there any more where the test itself closed it.
            subprocess.run(
                ["tmux", "-S", str(made.socket), "kill-server"], capture_output=True, check=False, timeout=60
            )


def _children(process: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
