"""An agent with the package `mcp`, the reference MCP client: it closes `base-nav` with ground and act through an armed robot.

The robot is the scenario's base in the gateway's own physics, a program of its own (`test/story/armed-base.ts`).
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import limber
from limber import _calls as calls
from limber._gen.limber.v1 import account_service_pb2 as account

mcp = pytest.importorskip("mcp")

NAV = "reference/potential-nav"
CREATE_KEY = calls.Call("AccountService", "CreateKey", account.CreateKeyRequest, account.CreateKeyResponse)
PATIENCE_S = 60.0


@contextmanager
def base(url: str, key: str, name: str) -> Iterator[subprocess.Popen[str]]:
    """Starts the robot program; its first line reports that it is ready."""
    node, folder = shutil.which("node"), os.environ.get("LIMBER_GATEWAY")
    if node is None or not folder:
        pytest.skip("LIMBER_GATEWAY names no folder, or there is no Node.js; check.sh has both")
    program = Path(folder) / "test" / "story" / "armed-base.ts"
    running = subprocess.Popen(
        [node, str(program), url, name], env={**os.environ, "LIMBER_KEY": key}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield running
    finally:
        running.kill()
        running.communicate()


def said(running: subprocess.Popen[str]) -> Any:
    assert running.stdout is not None
    return json.loads(running.stdout.readline())


def rest(url: str, key: str, path: str, body: dict[str, Any]) -> int:
    request = urllib.request.Request(
        url + path, json.dumps(body).encode(), {"authorization": f"Bearer {key}", "content-type": "application/json"}, method="POST"
    )
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code


class Agent:
    """A session of the MCP package whose tools answer with JSON."""

    def __init__(self, session: Any) -> None:
        self.session = session

    async def use(self, tool: str, **given: Any) -> tuple[bool, Any]:
        result = await self.session.call_tool(tool, given)
        return bool(result.is_error), json.loads(result.content[0].text)


@pytest.fixture
def keys(real: limber.Limber) -> dict[str, Any]:
    """The keys of a robot, an agent and an operator."""
    org = real.call(calls.GET_KEY, account.GetKeyRequest()).key.org_id
    roles = {"robot": "", "agent": "developer", "operator": "operator"}
    made = {}
    for name, role in roles.items():
        fields = {"role": role} if role else {}
        made[name] = real.call(CREATE_KEY, account.CreateKeyRequest(org_id=org, name=f"py-{name}", **fields)).key
    return made


def test_an_agent_closes_base_nav_through_a_robot_that_a_person_armed(real: limber.Limber, keys: dict[str, Any]) -> None:
    url, robot = real.addresses[0].url, f"py-base-{uuid.uuid4().hex[:8]}"
    with base(url, keys["robot"].key, robot) as running:
        first = said(running)
        assert first["attends"] == robot
        asyncio.run(_closes(url, keys, robot, first["picture"], running))


async def _closes(url: str, keys: dict[str, Any], robot: str, picture: str, running: subprocess.Popen[str]) -> None:
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    goal = {"model": NAV, "max_seconds": 120, "wait_s": 0, "robot_id": robot}
    headers = {"authorization": f"Bearer {keys['agent'].key}"}
    async with httpx2.AsyncClient(headers=headers, timeout=PATIENCE_S) as http:
        async with streamable_http_client(f"{url}/mcp", http_client=http) as streams:
            async with mcp.ClientSession(streams[0], streams[1]) as session:
                await session.initialize()
                agent = Agent(session)
                tools = {tool.name for tool in (await session.list_tools()).tools}
                assert {"ground", "run_policy", "get_run", "cancel_run", "stop_robots"} <= tools

                failed, refused = await agent.use("run_policy", **goal)
                assert (failed, refused["error"]["code"]) == (True, "robot_not_armed")
                arm = {
                    "robot_id": robot,
                    "key_id": keys["agent"].id,
                    "models": [NAV],
                    "max_seconds": 300,
                    "expires_in": 600,
                    "bounds": {"lowest": [-1, -3], "highest": [1, 3]},
                }
                assert rest(url, keys["agent"].key, "/v1/robots/arm", arm) == 403
                assert rest(url, keys["operator"].key, "/v1/robots/arm", arm) == 201

                looked = {"instruction": "the red square", "observations": [{"frames": [{"camera": "overhead", "url": picture}]}]}
                failed, seen = await agent.use("ground", **looked)
                assert not failed and abs(seen["points"][0]["x"] - 0.7) < 0.05
                failed, begun = await agent.use("run_policy", **goal, instruction=f"drive to {seen['points'][0]['x']} of the width")
                assert not failed, begun
                record = await asyncio.to_thread(said, running)
                assert (record["success"], record["termination"]) == (True, "success")

                run = {"run_id": begun["run"]["id"]}
                assert (await agent.use("cancel_run", **run))[1]["run"]["why"] == "cancelled"
                over = time.monotonic() + PATIENCE_S
                while (done := (await agent.use("get_run", **run))[1]["run"]).get("chunks", 0) < record["policyCalls"]:
                    assert time.monotonic() < over, done
                assert done["cost_usd"] > 0
