"""A model's provider by its real name, in a network of its own: it has each agent run one command.

    python -m tests.real.scripted_model FOLDER              in a network of its own that is there already
    … python -m tests.real.scripted_model --trusted FOLDER  in that of tests.real.private_network

Says ``ready`` when it is there, and stays. FOLDER gets ``ca.pem``, the authority of its certificate; with
``--trusted`` that counts, with all others, wherever this process's mounts are seen. The name leads to it by
the resolver of a private network, or by a line in /etc/hosts.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.real.private_network import add_addresses, is_private
from tests.real.scripted_internet import internet

NAME: Final = "api.anthropic.com"
BUNDLE: Final = Path("/etc/ssl/certs/ca-certificates.crt")
# What the tutorial asks the agent for.
TASK: Final = "echo 'A program that says hello.' >NOTES.md && git add NOTES.md && git commit -qm 'Add notes'"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--trusted", action="store_true")
    options = parser.parse_args()
    if not is_private():
        add_addresses()
    with internet(options.folder, model=NAME, task=TASK) as made:
        if options.trusted:
            both = options.folder / "bundle.pem"
            both.write_bytes(BUNDLE.read_bytes() + made.ca.read_bytes())
            subprocess.run(["mount", "--bind", str(both), str(BUNDLE)], check=True)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        signal.sigwait({signal.SIGTERM, signal.SIGINT})


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    main()
