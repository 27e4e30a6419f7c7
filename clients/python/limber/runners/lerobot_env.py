"""A client of LeRobot's environment server: the benchmark runs in another process or on another machine (`lerobot-env-server`), with its own Python.

Sources, in huggingface/lerobot: `src/lerobot/env_server/client.py` and `contracts.py` at a8401e9, `protocol.py` and `server.py` at c7e5ff8,
`src/lerobot/transport/wire/protocol.py` at a8401e9:
- keys `lerobot/env/v1/deployments/D/describe`, `…/instances/I/open`, `…/sessions/S/{reset,step,control}`; envelopes as in remote inference; replies
  `accepted` before a session and `ack` in one, with the request's id, generation, instance and session;
- `open` creates worlds and resets them; `reset` returns the next generation; `step` needs the clock `lockstep`; a request is never repeated, because the
  world may have executed it; the server closes a session without the client's token (`client_alive`) after 10 s;
- results are batched arrays: `obs`, `reward` (float32), `terminated`, `truncated`, `is_success`, `step`, and `task`, a description of each world;
- the descriptor declares features, the action with the names of its values, the control (`position`, `delta`, `eef_pose`, `velocity`), the grippers'
  indexes, frames per second and the step limit. It declares no bounds, no rotation form and no gripper polarity; those are not compared.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from limber.errors import BadInput, LimberError
from limber.lerobot import SEGMENT, CarrierFault, Token, header_of, needed, open_transport
from limber.lerobot_server import Feature, Malformed, body_of, tensor
from limber.runners.base import Moved
from limber.runners.mapping import Camera, Mapping

_IMAGES = "observation.images."
_REFERENCE = {"position": "absolute", "eef_pose": "absolute", "delta": "relative", "velocity": "velocity"}
#: The catalog's scenario of each simulator that the server knows.
_SCENARIOS = {"libero": "lifelong-robot-learning/libero", "metaworld": "farama-foundation/meta-world", "libero_plus": "sylvestf/libero-plus"}


#: Simulators whose images the server rotates by 180 degrees, unlike the gateway's own names for them (`libero`).
_TURNED = {"libero": {"image": "agentview", "image2": "wrist"}, "libero_plus": {"image": "agentview", "image2": "wrist"}}


class EnvFault(LimberError):
    """The environment server refused a request, or its answer is invalid."""


class Transport(Protocol):
    """The methods of LeRobot's transport that the client uses."""

    def query(self, key: str, payload: bytes, timeout: float) -> list[bytes]:
        """Returns every reply to a query. Raises `TimeoutError` if there is none."""

    def declare_token(self, key: str) -> Token:
        """Declares presence."""


class EnvClient:
    """One session with one world. Not thread-safe, and failed after the first fault."""

    def __init__(self, transport: Transport, deployment: str, *, timeout_s: float = 120.0) -> None:
        if not SEGMENT.fullmatch(deployment):
            raise BadInput(f"the deployment must consist of letters, digits, '_', '.' and '-', got {deployment!r}")
        self._transport = transport
        self._root = f"lerobot/env/v1/deployments/{deployment}"
        self._timeout_s = timeout_s
        self._instance = self._session = ""
        self._generation = 0
        self._token: Token | None = None
        self._failed = False
        self.descriptor: dict[str, Any] = {}

    def describe(self) -> dict[str, Any]:
        """Returns the server's descriptor."""
        body = self._query("describe", "describe", {})
        self._instance, self.descriptor = str(body.get("instance", "")), body.get("descriptor") or {}
        if not SEGMENT.fullmatch(self._instance) or not isinstance(self.descriptor.get("features"), list):
            raise EnvFault("the server's description has no instance or no features")
        return self.descriptor

    def open(self, group: str, number: int) -> None:
        """Opens a session with one world of a task, in lockstep."""
        if "lockstep" not in self.descriptor.get("clocks", []):
            raise EnvFault("the server has no lockstep clock, which an evaluation needs")
        body = self._query(
            f"instances/{self._instance}/open", "open", {"num_envs": 1, "clock": "lockstep", "task_group": group, "task_id": number, "seeds": [0]}
        )
        described, session = body.get("descriptor"), str(body.get("session", ""))
        if not SEGMENT.fullmatch(session):
            raise EnvFault("the server opened no session")
        self._session, self._generation = session, int(body.get("generation", 0))
        if not isinstance(described, dict):
            raise EnvFault("the session has no descriptor")
        self.descriptor = described
        self._token = self._transport.declare_token(f"{self._root}/instances/{self._instance}/sessions/{self._session}/client_alive")

    def request(self, operation: str, **body: Any) -> dict[str, Any]:
        """Makes one request of the session. After a fault the world is in an unknown state, so further requests are refused."""
        if self._failed:
            raise EnvFault("the session failed; open another one")
        if operation not in ("reset", "step"):
            body["operation"] = operation
        try:
            key = operation if operation in ("reset", "step") else "control"
            answer = self._query(f"instances/{self._instance}/sessions/{self._session}/{key}", "control", body)
            self._generation = int(answer.get("generation", self._generation))
            return answer
        except Exception:
            self._failed = True
            raise

    def close(self) -> None:
        """Closes the session."""
        try:
            if self._session and not self._failed:
                self.request("close")
        finally:
            self._session = ""
            if self._token is not None:
                self._token.undeclare()
                self._token = None

    def _query(self, path: str, kind: str, body: dict[str, Any]) -> dict[str, Any]:
        msgpack = needed("msgpack", "lerobot")
        sent = (self._instance, self._session, self._generation, uuid.uuid4().hex)
        envelope = dict(zip(("instance_id", "session_id", "generation", "request_id"), sent, strict=True))
        payload = msgpack.packb({"version": 1, "message_type": kind, **envelope, "body": body}, use_bin_type=True)
        try:
            replies = self._transport.query(f"{self._root}/{path}", payload, self._timeout_s)
        except TimeoutError:
            replies = []
        if len(replies) != 1:
            raise EnvFault(f"{path.rpartition('/')[2]}: {len(replies)} servers answered within {self._timeout_s:g} s; exactly one must")
        try:
            header, answer = header_of(replies[0]), body_of(replies[0])
        except (CarrierFault, Malformed) as fault:
            raise EnvFault(f"the server's answer is invalid: {fault}") from None
        if (header.instance_id, header.session_id, header.generation, header.request_id) != sent:
            raise EnvFault("the server answered another request")
        if header.message_type == "error":
            raise EnvFault(f"the server refused: {answer.get('code')}: {str(answer.get('message'))[:300]}")
        if header.message_type != ("ack" if self._session else "accepted"):
            raise EnvFault(f"the server answered with the type {header.message_type[:32]}")
        return answer


class Suite:
    """An environment server as a suite. Tasks are `group/number` of its descriptor; `group` names all of it."""

    def __init__(
        self, tasks: Sequence[str], *, images: bool = True, connect: str = "tcp/127.0.0.1:7448", deployment: str = "default", transport: Transport | None = None
    ) -> None:
        with contextlib.ExitStack() as undo:
            if transport is None:
                transport = undo.enter_context(contextlib.closing(open_transport(connect)))
            self._transport = transport
            self._deployment = deployment
            self._read(EnvClient(transport, deployment).describe(), tasks)
            undo.pop_all()

    def _read(self, descriptor: dict[str, Any], tasks: Sequence[str]) -> None:
        groups: dict[str, list[str]] = descriptor.get("tasks") or {}
        self.tasks = []
        for named in tasks or list(groups):
            group, _, number = named.rpartition("/") if named not in groups else (named, "", "")
            if group not in groups or (number and number not in groups[group]):
                raise BadInput(f"the server has no task {named}; its groups are {', '.join(groups)}")
            self.tasks += [named] if number else [f"{group}/{each}" for each in groups[group]]
        kind = str(descriptor.get("sim_type"))
        self.scenarios = tuple(slug for name, slug in _SCENARIOS.items() if name == kind)
        build = ", ".join(f"{name} {version}" for name, version in (descriptor.get("sim_build") or {}).items())
        self.harness = f"lerobot env server {kind} ({build})"

    def open(self, task: str, scenario: str) -> World:
        group, _, number = task.rpartition("/")
        client = EnvClient(self._transport, self._deployment)
        client.describe()
        try:
            client.open(group, int(number))
            return World(client)
        except BaseException:
            # The server keeps an open session as long as its client is alive.
            with contextlib.suppress(LimberError):
                client.close()
            raise


def mapping_of(descriptor: dict[str, Any]) -> Mapping:
    """Returns the mapping that a descriptor declares. Raises EnvFault if it is invalid."""
    try:
        features = [Feature.of(each) for each in descriptor["features"]]
        action = Feature.of(descriptor["action_feature"])
        rate = float(descriptor["fps"])
    except (BadInput, KeyError, TypeError, ValueError) as error:
        raise EnvFault(f"the server's descriptor is invalid: {error}") from None
    if len(action.names) != action.shape[0] or not rate > 0:
        raise EnvFault("the server's descriptor has no names for the action's values, or no rate")
    size = len(action.names)
    return Mapping(
        action=action.names,
        low=(-float("inf"),) * size,
        high=(float("inf"),) * size,
        reference=_REFERENCE.get(str(descriptor.get("control")), ""),
        cameras=tuple(Camera(_camera(each.name, descriptor), each.shape[1], each.shape[0]) for each in features if each.kind == "rgb"),
        state=next((each.names for each in features if each.name == "observation.state"), ()),
        dt_s=1 / rate,
    )


def _camera(feature: str, descriptor: dict[str, Any]) -> str:
    name = feature.removeprefix(_IMAGES).removeprefix("observation.")
    return _TURNED.get(str(descriptor.get("sim_type")), {}).get(name, name)


class World:
    """One world of a session."""

    success_ends = True

    def __init__(self, client: EnvClient) -> None:
        self._client = client
        self.mapping: Mapping = mapping_of(client.descriptor)
        self.max_steps = int(client.descriptor.get("max_episode_steps", 500))
        self._turn = -1 if client.descriptor.get("sim_type") in _TURNED else 1
        self._images = [str(each["name"]) for each in client.descriptor["features"] if each.get("kind") == "rgb"]

    def _seen(self, result: dict[str, Any]) -> dict[str, Any]:
        obs = result["obs"]
        state = obs.get("observation.state")
        images = {_camera(name, self._client.descriptor): np.ascontiguousarray(obs[name][0, :: self._turn, :: self._turn]) for name in self._images}
        return {"images": images, "state": None if state is None else state[0], "state_names": self.mapping.state if state is not None else ()}

    def reset(self, trial: int) -> tuple[Any, str | None]:
        result = self._client.request("reset", seeds=[trial])["result"]
        return self._seen(result), (str(result["task"][0]) or None) if result.get("task") else None

    def step(self, action: NDArray[np.float64]) -> Moved:
        result = self._client.request("step", actions=tensor(action.astype(np.float32)[None]), n_ticks=1)["result"]
        success, over = bool(result["is_success"][0]), bool(result["terminated"][0])
        ended = "max_steps" if bool(result["truncated"][0]) else "fell" if over and not success else ""
        return Moved(self._seen(result), float(result["reward"][0]), success, ended)

    def fingerprint(self) -> bytes | None:
        return None

    def close(self) -> None:
        self._client.close()
