"""The relay inside an image: what it is, where it lies, and where it finds the controller's socket."""

from __future__ import annotations

from typing import Final

from images.launchers import NODE

RELAY_PATH: Final = "/opt/builder/relay"
# An empty directory of the image, where a launch with a network has one of the controller's, read-only.
NETWORK_PLACE: Final = "/opt/builder/network"
RELAY_PORT: Final = 3128
RELAY_SINCE: Final = 5  # the first renderer that puts the relay into images
READY: Final = "relay: ready"

_SCRIPT: Final = f"""\
#!{NODE}
// Carries each connection to 127.0.0.1:{RELAY_PORT} to the controller's socket, byte for byte, and decides
// nothing: whom a run may reach is decided outside. Runs as the agent, and only where a run has a network.
'use strict'
const net = require('node:net')

const path = process.argv[2] ?? '{NETWORK_PLACE}/socket'
const port = Number(process.argv[3] ?? {RELAY_PORT})
const server = net.createServer({{ allowHalfOpen: true }}, (near) => {{
  const far = net.connect({{ path, allowHalfOpen: true }})
  for (const [one, other] of [[near, far], [far, near]]) {{
    one.on('error', () => other.destroy())
    one.on('close', (broken) => broken && other.destroy())
    one.pipe(other)
  }}
}})
server.on('error', (error) => {{
  console.error(`relay: ${{error.code}}`)
  process.exit(1)
}})
server.listen(port, '127.0.0.1', () => console.log(`{READY} ${{server.address().port}}`))
"""


def relay_script() -> bytes:
    """The text of ``/opt/builder/relay``. Arguments: the socket, the port; both have defaults."""
    return _SCRIPT.encode()
