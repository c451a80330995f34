"""A provider beside the real CLIs in one container: the Messages interface, with a stream and no model."""

from __future__ import annotations

import shlex
from typing import Final

ADDRESS: Final = "http://127.0.0.1:8787"
_PROVIDER: Final = r"""
REQUIREDrequire("node:http").createServer((asked, answer) => {
  let body = "";
  asked.on("data", (part) => { body += part; });
  asked.on("end", () => {
    if (!/\/messages(\?|$)/.test(asked.url)) { answer.writeHead(404); return answer.end("{}"); }
LOOK    const message = {id: "msg_1", type: "message", role: "assistant", model: "scripted", content: [],
      stop_reason: null, stop_sequence: null, usage: {input_tokens: 1, output_tokens: 1}};
    answer.writeHead(200, {"content-type": "text/event-stream"});
    const say = (type, more) => answer.write(`event: ${type}\ndata: ${JSON.stringify({type, ...more})}\n\n`);
    say("message_start", {message});
ANSWER    say("message_stop", {});
    answer.end();
  });
}).listen(8787, "127.0.0.1", () => console.log("provider is there"));
"""
# One text, always the same.
_TEXT: Final = """\
    say("content_block_start", {index: 0, content_block: {type: "text", text: ""}});
    say("content_block_delta", {index: 0, delta: {type: "text_delta", text: "scripted answer"}});
    say("content_block_stop", {index: 0});
    say("message_delta", {delta: {stop_reason: "end_turn", stop_sequence: null}, usage: {output_tokens: 2}});
"""
# Shell: one agent asks once; what its provider said to itself is told under the agent's name.
ASK: Final = """\
ask() {
    name=$1; shift
    : >/tmp/provider
    said=$(timeout 120 "$@" </dev/null 2>/tmp/error) || {
        echo "$name failed: $said"; tail -c 2000 /tmp/error; exit 1
    }
    case $said in *"scripted answer"*) echo "$name answered" ;; *) echo "$name said: $said" ;; esac
    sort -u /tmp/provider | sed "s/^/$name /"
}
"""


def start_provider(look: str, *, required: str = "", answer: str = _TEXT) -> str:
    """Shell that starts it and waits until it is there.

    JavaScript: ``look`` runs for each request, over ``asked`` and its ``body``; ``required`` before all;
    ``answer`` says the parts between the start of a message and its end.
    """
    script = _PROVIDER.replace("REQUIRED", required).replace("LOOK", look).replace("ANSWER", answer)
    return (
        f"/opt/node/bin/node -e {shlex.quote(script)} >>/tmp/provider 2>&1 &\n"
        "until grep -q 'is there' /tmp/provider; do sleep 0.05; done\n"
    )
