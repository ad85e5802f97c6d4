"""The browser client, run by Node (which has the browsers' WebSocket), against a real gateway."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.gateway.stage import Stage, run

CLIENT = Path(__file__).resolve().parents[2] / "src/kafkaesque/edge/web/client.js"
FLAG = "--experimental-websocket"

STORY = """
import {EdgeClient, backoffMs} from %(client)s;
const client = new EdgeClient(["ws://%(address)s/"],
                              {name: "alice", password: "pw", register: true});
const events = [], states = [];
client.on("event", event => events.push(event));
client.on("state", state => states.push(state));
await client.start();
const id = await client.send("echo", {n: 1});
const until = async condition => {
  while (!condition()) await new Promise(done => setTimeout(done, 5));
};
await until(() => events.length === 1);
const answer = await client.ask("who", {x: 1});
let refused = null;
await client.ask("fail").catch(failure => { refused = failure.code; });
await client.subscribe("lobby");
client._socket.close(1000);
const second = client.send("echo", {n: 2});
await client.send("room.post", {room: "lobby", text: "hi"});
await second;
await until(() => events.length === 3);
const taken = new EdgeClient(["ws://%(address)s/"],
                             {name: "alice", password: "another", register: true});
const twice = await taken.start().then(() => "", failure => failure.code);
console.log(JSON.stringify({
  user: client.welcome.user, re: events[0].re === id, answer, refused, twice,
  disconnects: client.counts.disconnects, rooms: events.filter(event => event.room).length,
  bodies: events.filter(event => !event.room).map(event => event.body.n),
  resumes: client.position !== null, states: states.slice(0, 3),
  slow: backoffMs(100, 1),
}));
client.close();
taken.close();
process.exit(0);
"""


def has_websocket() -> bool:
    node = shutil.which("node")
    if node is None:
        return False
    asked = subprocess.run([node, FLAG, "-e", "process.exit(typeof WebSocket === 'undefined' ? 1 : 0)"],
                           capture_output=True, check=False)  # fmt: skip
    return asked.returncode == 0


@pytest.mark.skipif(
    not has_websocket(), reason="a Node with WebSocket is missing: install Node 20 or newer"
)
def test_browser_client_sends_resumes_and_repeats() -> None:
    async def story(on: Stage) -> None:
        gateway = await on.gateway()
        script = STORY % {"client": json.dumps(CLIENT.as_uri()), "address": gateway.address}
        node = await asyncio.create_subprocess_exec(
            "node", FLAG, "--no-warnings", "--input-type=module", "-e", script,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, error = await node.communicate()
        assert node.returncode == 0, error.decode()
        assert json.loads(out) == {
            "user": "alice",
            "re": True,
            "answer": {"user": "alice", "said": {"x": 1}},
            "refused": "no-such-thing",
            "twice": "name-taken",
            "disconnects": 1,
            "rooms": 1,
            "bodies": [1, 2],
            "resumes": True,
            "states": ["connecting", "connected", "disconnected"],
            "slow": 10000,
        }

    run(story)
