"""Serves a gateway model as a LeRobot remote-inference server on the robot's own computer (`limber lerobot-server`).

LeRobot's protocol has no keys. The server therefore runs beside the robot, holds the key, and accepts only LeRobot's client
(`lerobot-rollout --inference.type=remote`). A contract declares what the robot senses and does; LeRobot compares it before the robot moves. The
server has one client at a time. Each reset begins an episode and makes earlier requests stale. Each observation is an act call to the gateway.

Chunks are appended, or aligned by the cursors that the client sends. All generations of LeRobot's client with protocol version 1 are supported.

Source: huggingface/lerobot, src/lerobot/remote_inference/protocol.py, codec.py at 0c72316, server.py at 140f481, client.py at a8401e9, chunk_contract.py
at 0b20ce1 and 3583dfb.
"""

from __future__ import annotations

import json
import logging
import math
import queue
import threading
import time
import uuid
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from limber._frames import Observation
from limber.errors import BadInput, LimberError
from limber.lerobot import SEGMENT, Channel, Token, Transport, header_of, needed

_log = logging.getLogger(__name__)

_MARKER = "__lerobot_type__"
_DTYPES = ("bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "float32", "float64")
_MAX_SIDE, _MAX_RANK, _MAX_PIXELS, _MAX_DEPTH, _MAX_NODES = 16_384, 8, 4_096 * 4_096, 16, 32_768
_MAX_DECODED = 64 * 1024 * 1024
#: Seconds without a client after which its session ends.
_GRACE_S = 10.0
_IMAGES = "observation.images."
#: Maximum length of an observation's task.
_MAX_TASK = 4_096
#: Names of the alignment contracts and the fields of their settings. LeRobot's second contract leaves blending to the client.
_ALIGNMENTS: dict[str, frozenset[str]] = {
    "chunk_alignment_v2": frozenset({"chunk_merge"}),
    "chunk_alignment_v1": frozenset({"chunk_merge", "blend_steps", "blend_weight", "blend_components"}),
}
#: Actions the client had committed to when it observed and when it sent the request. An aligned answer repeats both.
_CURSORS = ("observation_cursor", "cursor")
#: Fields of an observation that its answer repeats.
_IDENTITY: dict[str, tuple[type, ...]] = {
    "sequence": (int,),
    "artifact_identity": (str,),
    "observation_id": (str,),
    "capture_time": (int, float),
    "task": (str,),
    "task_version": (int,),
}


class Malformed(LimberError):
    """A body that violates the protocol."""


class Pending(Protocol):
    """A pending query."""

    payload: bytes

    def reply(self, payload: bytes) -> bool:
        """Sends the reply."""

    def drop(self) -> None:
        """Drops the query without a reply."""


class Queryable(Protocol):
    """A source of queries."""

    def get(self, timeout: float | None = 0) -> Pending:
        """Returns the next query. Raises `queue.Empty` if none arrives in time."""

    def close(self) -> None:
        """Ends it."""


class ServerTransport(Transport, Protocol):
    """The methods of LeRobot's transport that the server uses in addition to the carrier's."""

    def declare_queryable(self, key: str, capacity: int = 8, reply_timeout: float = 30.0) -> Queryable:
        """Declares a handler of queries."""

    def subscribe_liveliness(self, key: str, capacity: int = 8) -> Any:
        """Subscribes to presence events, which have the field `alive`."""


@dataclass(frozen=True)
class Feature:
    """A feature of the robot's observation or action, as in LeRobot's `FeatureSpec`."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    kind: str = "tensor"
    names: tuple[str, ...] = ()
    semantics: str = ""

    @staticmethod
    def of(data: Any) -> Feature:
        """Parses a feature. Raises BadInput if it is invalid."""
        try:
            made = Feature(**{**data, "shape": tuple(data["shape"]), "names": tuple(data.get("names", ()))})
        except (TypeError, KeyError, AttributeError):
            raise BadInput(f"a feature must have name, shape, dtype, kind, names and semantics, got {data!r}") from None
        fits = made.name and made.semantics and made.kind in ("tensor", "rgb") and all(type(side) is int and side > 0 for side in made.shape)
        if not fits or (made.kind == "rgb" and (len(made.shape) != 3 or made.shape[2] != 3 or made.dtype != "uint8")):
            raise BadInput(f"the feature {made.name!r} needs a name, semantics and a shape; images must be uint8 of shape (height, width, 3)")
        return made

    def plain(self) -> dict[str, Any]:
        """Returns the wire format."""
        return {**vars(self), "shape": list(self.shape), "names": list(self.names)}


@dataclass(frozen=True)
class Contract:
    """The robot's features and action, and the model that controls it."""

    model: str
    features: tuple[Feature, ...]
    action: Feature
    semantics: str
    #: Seconds between two actions.
    interval_s: float
    #: Number of rows in an action chunk.
    steps: int
    action_space: str | None = None
    robot: str | None = None

    @staticmethod
    def read(file: Path | str) -> Contract:
        """Reads a JSON file: model, action_space, robot, features, action_feature, semantics, action_interval, execution_steps. Raises BadInput."""
        try:
            data = json.loads(Path(file).read_text())
            contract = Contract(
                str(data["model"]),
                tuple(Feature.of(each) for each in data["features"]),
                Feature.of(data["action_feature"]),
                str(data["semantics"]),
                float(data["action_interval"]),
                int(data["execution_steps"]),
                data.get("action_space"),
                data.get("robot"),
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            if isinstance(error, BadInput):
                raise
            raise BadInput(f"{file} is not a valid contract ({type(error).__name__}: {error})") from None
        if not contract.interval_s > 0 or not 1 <= contract.steps <= 256 or len(contract.action.shape) != 1:
            raise BadInput(f"{file}: action_interval must be above 0, execution_steps between 1 and 256, and the action one row")
        if any(each.kind == "tensor" and each.dtype not in ("float32", "float64") for each in contract.features):
            raise BadInput(f"{file}: features must be floats or images")
        if contract.action.kind != "tensor" or contract.action.dtype != "float32":
            raise BadInput(f"{file}: action_feature must be a tensor of float32, got {contract.action.kind} of {contract.action.dtype}")
        return contract


class Picture:
    """An image as received: pixels, or a JPEG."""

    def __init__(self, shape: tuple[int, ...], data: bytes, is_jpeg: bool) -> None:
        self.shape = shape
        self.image: NDArray[np.uint8] | bytes = data if is_jpeg else np.frombuffer(data, np.uint8).reshape(shape)


class _Reader:
    """Parses a body within the protocol's limits."""

    def __init__(self) -> None:
        self.nodes = self.decoded = 0

    def read(self, value: Any, depth: int = 0) -> Any:
        self.nodes += 1
        if depth > _MAX_DEPTH or self.nodes > _MAX_NODES:
            raise Malformed("the body is too deep, or has too many values")
        if isinstance(value, dict):
            if any(not isinstance(key, str) for key in value):
                raise Malformed("a key of the body is not a string")
            return self._record(value) if _MARKER in value else {key: self.read(item, depth + 1) for key, item in value.items()}
        if isinstance(value, list):
            return [self.read(item, depth + 1) for item in value]
        if isinstance(value, float) and not math.isfinite(value):
            raise Malformed("a number is not finite")
        if value is not None and not isinstance(value, (str, bytes, bool, int, float)):
            raise Malformed("a value has a type that the protocol does not define")
        return value

    def _record(self, record: dict[str, Any]) -> Any:
        data, shape = record.get("data"), record.get("shape")
        if not isinstance(data, bytes) or not isinstance(shape, list) or len(shape) > _MAX_RANK:
            raise Malformed("a tensor or an image has no bytes or no shape")
        if any(type(side) is not int or not 0 < side <= _MAX_SIDE for side in shape):
            raise Malformed("a dimension of a tensor or of an image is out of bounds")
        size = math.prod(shape)
        if record[_MARKER] == "rgb":
            if len(shape) != 3 or shape[2] != 3 or shape[0] * shape[1] > _MAX_PIXELS or record.get("channel_order") != "RGB" or record.get("dtype") != "uint8":
                raise Malformed("an image must be uint8 of shape (height, width, 3), RGB")
            self._count_bytes(size)
            if record.get("encoding") == "jpeg":
                return Picture(tuple(shape), data, True)
            if record.get("encoding") != "raw" or len(data) != size:
                raise Malformed("an image's bytes do not match its shape")
            return Picture(tuple(shape), data, False)
        dtype, order = record.get("dtype"), {"little": "<", "big": ">"}.get(str(record.get("endianness")))
        if record[_MARKER] != "tensor" or dtype not in _DTYPES or order is None:
            raise Malformed("a record has a type that the protocol does not define")
        kind = np.dtype(dtype).newbyteorder("<" if order == "<" else ">")
        if len(data) != size * kind.itemsize:
            raise Malformed("a tensor's bytes do not match its shape")
        self._count_bytes(len(data))
        array = np.frombuffer(data, kind).reshape(shape)
        if kind.kind == "f" and not np.isfinite(array).all():
            raise Malformed("a tensor contains a number that is not finite")
        return array.astype(kind.newbyteorder("="))

    def _count_bytes(self, size: int) -> None:
        self.decoded += size
        if self.decoded > _MAX_DECODED:
            raise Malformed("tensors and images exceed 64 MiB")


def body_of(payload: bytes) -> dict[str, Any]:
    """Parses an envelope's body. Raises Malformed. Call `header_of` first."""
    body = _Reader().read(needed("msgpack", "lerobot").unpackb(payload, raw=False).get("body"))
    if not isinstance(body, dict):
        raise Malformed("the body is not a map")
    return body


def tensor(array: NDArray[np.float32]) -> dict[str, Any]:
    """Returns the wire format of an array of float32."""
    return {_MARKER: "tensor", "dtype": "float32", "shape": list(array.shape), "endianness": "little", "data": array.astype("<f4").tobytes()}


@dataclass
class _Session:
    identity: str
    episode: str
    generation: int = 0
    sequence: int = -1
    #: True if the client merges chunks by its cursors.
    is_aligned: bool = False
    #: The request that opened the session, and its answer. A repeated request receives the same answer.
    opened_by: str = ""
    accepted: dict[str, Any] | None = None


class Worker:
    """Implements the protocol without a transport: a message in, its answer out. Not thread-safe."""

    def __init__(self, client: Any, contract: Contract, deployment: str, *, timeout_s: float = 5.0) -> None:
        """`client` is a `Limber`."""
        if not SEGMENT.fullmatch(deployment):
            raise BadInput(f"deployment must consist of letters, digits, '_', '.' and '-', got {deployment!r}")
        self.client = client
        self.contract = contract
        self.deployment = deployment
        self.instance = uuid.uuid4().hex
        self.artifact = f"limber:{contract.model}"
        self.timeout_s = timeout_s
        self.session: _Session | None = None
        self._seen: OrderedDict[str, None] = OrderedDict()

    def answer(self, payload: bytes) -> bytes:
        """Returns the answer to one message. Raises CarrierFault if it is not an envelope."""
        header = header_of(payload)
        try:
            kind, session, body = self._do(header, body_of(payload))
        except _Refusal as refusal:
            kind, session, body = "error", header.session_id, {"code": refusal.code, "message": str(refusal)[:2048]}
        except Malformed as fault:
            kind, session, body = "error", header.session_id, {"code": "malformed", "message": str(fault)}
        instance = header.instance_id or self.instance
        record = {
            "version": 1,
            "message_type": kind,
            "instance_id": instance,
            "session_id": session,
            "generation": header.generation,
            "request_id": header.request_id,
            "body": body,
        }
        packed: bytes = needed("msgpack", "lerobot").packb(record, use_bin_type=True)
        return packed

    def leave(self) -> None:
        """Ends the session of a client that is gone."""
        self.session = None

    def descriptor(self) -> dict[str, Any]:
        """Returns the server's descriptor."""
        contract = self.contract
        capabilities = {
            "modes": ["chunk"],
            "prediction_steps": contract.steps,
            "execution_steps": contract.steps,
            "action_interval": contract.interval_s,
            "features": [each.plain() for each in contract.features],
            "action_feature": contract.action.plain(),
            "language": False,
            "training_max_delay": 0,
            "rtc_horizon": 0,
            "current_observation_only": True,
            "retains_session_state": True,
            "action_representation": "canonical",
        }
        return {
            "deployment": self.deployment,
            "instance_id": self.instance,
            "artifact_identity": self.artifact,
            "semantics": contract.semantics,
            "capabilities": capabilities,
            "execution_contracts": list(_ALIGNMENTS),
            "blendable_components": [],
            "ready": True,
            "available": self.session is None,
            "failure": None,
            "limits": {
                "action_deadline_s": self.timeout_s,
                "language_deadline_s": self.timeout_s,
                "idle_timeout_s": _GRACE_S,
                "max_input_chars": _MAX_TASK,
                "max_output_chars": _MAX_TASK,
                "inflight_inference": 1,
            },
        }

    def _do(self, header: Any, body: dict[str, Any]) -> tuple[str, str, dict[str, Any]]:
        if header.message_type == "describe":
            return "descriptor", "", self.descriptor()
        if header.instance_id != self.instance:
            raise _Refusal("stale", "the server has restarted since")
        if header.message_type == "open":
            return self._opened(header, body)
        session = self.session
        if session is None or header.session_id != session.identity:
            raise _Refusal("stale", "session not found")
        if header.message_type == "control":
            return self._controlled(session, header, body)
        if header.message_type == "observation":
            return self._acted(session, header, body)
        raise _Refusal("unsupported", "the model returns only actions")

    def _opened(self, header: Any, body: dict[str, Any]) -> tuple[str, str, dict[str, Any]]:
        contract, session = self.contract, self.session
        if session is not None and session.accepted is not None and session.opened_by == header.request_id:
            return "accepted", session.identity, session.accepted
        if session is not None:
            raise _Refusal("busy", "another client has a session; it must close its session first")
        settings = _settings_in(body)
        if body.get("mode") != "chunk" or body.get("encoding") not in ("raw", "jpeg"):
            raise _Refusal("unsupported", "the mode must be chunk, and images must be raw or jpeg")
        if body.get("expected_artifact") not in (None, self.artifact):
            raise _Refusal("incompatible", f"the model is {self.artifact}")
        interval = body.get("action_interval")
        if not isinstance(interval, (int, float)) or not math.isclose(interval, contract.interval_s, rel_tol=1e-6):
            raise _Refusal("incompatible", f"the action interval must be {contract.interval_s:g} s")
        features = [each.plain() for each in contract.features]
        if (body.get("features"), body.get("action_feature"), body.get("semantics")) != (features, contract.action.plain(), contract.semantics):
            raise _Refusal("incompatible", "features, their order or their semantics differ from the contract")
        accepted = {**self.descriptor(), "mode": "chunk", "chunk_settings": settings}
        is_aligned = settings["chunk_merge"] == "aligned"
        self.session = _Session(uuid.uuid4().hex, uuid.uuid4().hex, is_aligned=is_aligned, opened_by=header.request_id, accepted=accepted)
        self._seen.clear()
        return "accepted", self.session.identity, accepted

    def _controlled(self, session: _Session, header: Any, body: dict[str, Any]) -> tuple[str, str, dict[str, Any]]:
        operation = body.get("operation")
        if operation not in ("reset", "invalidate", "close", "status"):
            raise _Refusal("malformed", "a control operation must be reset, invalidate, close or status")
        if operation != "close" and header.generation < session.generation:
            raise _Refusal("stale", "a later motion has already begun")
        if operation == "status" and header.generation != session.generation:
            raise _Refusal("stale", "this motion is not the current one")
        if operation in ("reset", "invalidate") and header.generation > session.generation:
            session.generation = header.generation
            if operation == "reset":
                session.episode = uuid.uuid4().hex
        if operation == "close":
            self.session = None
        return "ack", session.identity, {"operation": operation, "applied_generation": header.generation}

    def _acted(self, session: _Session, header: Any, body: dict[str, Any]) -> tuple[str, str, dict[str, Any]]:
        sequence, task, supplied = body.get("sequence"), body.get("task"), body.get("features")
        if header.generation != session.generation:
            raise _Refusal("stale", "this motion is not the current one")
        if header.request_id in self._seen or type(sequence) is not int or sequence <= session.sequence:
            raise _Refusal("stale", "the observation is a duplicate or has no number")
        if body.get("artifact_identity") != self.artifact:
            raise _Refusal("incompatible", f"the model is {self.artifact}")
        if not isinstance(task, str) or len(task) > _MAX_TASK or not isinstance(supplied, dict):
            raise _Refusal("malformed", "an observation must have features and a task of at most 4,096 characters")
        identity = {key: body.get(key) for key in _IDENTITY}
        if any(not isinstance(identity[key], kinds) for key, kinds in _IDENTITY.items()):
            raise _Refusal("malformed", "an observation must have a name, a time and a task version")
        if session.is_aligned:
            identity.update(_cursors_in(body))
        seen = self._observation(supplied)
        self._seen[header.request_id] = None
        while len(self._seen) > 128:
            self._seen.popitem(last=False)
        session.sequence = sequence
        contract, begun = self.contract, time.monotonic()
        try:
            chunk = self.client.act(
                contract.model,
                seen,
                instruction=task or None,
                action_space=contract.action_space,
                horizon=contract.steps,
                robot=contract.robot,
                provider={"session_id": f"lerobot-{session.episode}"},
                timeout_s=self.timeout_s,
            )
        except LimberError as error:
            raise _Refusal("execution", str(error)) from None
        rows = np.asarray(chunk.steps, dtype=np.float32)
        if rows.shape != (contract.steps, *contract.action.shape):
            raise _Refusal("execution", f"the model returned actions of shape {rows.shape}; the contract has {(contract.steps, *contract.action.shape)}")
        durations = {"queue": 0.0, "worker": time.monotonic() - begun}
        answer = {**identity, "canonical_actions": tensor(rows), "model_actions": None, "execution_steps": contract.steps, "server_durations": durations}
        return "action", session.identity, answer

    def _observation(self, supplied: dict[str, Any]) -> Observation:
        if set(supplied) != {each.name for each in self.contract.features}:
            raise _Refusal("incompatible", "the observation's features differ from the contract")
        images: dict[str, Any] = {}
        state: list[float] = []
        for each in self.contract.features:
            value = supplied[each.name]
            if each.kind == "rgb":
                if not isinstance(value, Picture) or value.shape != each.shape:
                    raise _Refusal("incompatible", f"{each.name} must be an image of shape {each.shape}")
                images[each.name.removeprefix(_IMAGES)] = value.image
            elif not isinstance(value, np.ndarray) or value.shape != each.shape or value.dtype.name != each.dtype:
                raise _Refusal("incompatible", f"{each.name} must be {each.dtype} of shape {each.shape}")
            else:
                state.extend(float(number) for number in value.ravel())
        return Observation(images=images, state=state)


def _settings_in(body: dict[str, Any]) -> dict[str, Any]:
    """Returns how chunks are merged, as the client states it. Refuses settings that its required capabilities do not cover."""
    required, settings = body.get("required_capabilities", []), body.get("chunk_settings", {"chunk_merge": "append"})
    if not isinstance(required, list) or any(not isinstance(name, str) or name not in _ALIGNMENTS for name in required):
        raise _Refusal("unsupported", f"`required_capabilities` must be {' or '.join(_ALIGNMENTS)}, got {required!r}")
    merge = settings.get("chunk_merge") if isinstance(settings, dict) else None
    if not isinstance(settings, dict) or merge not in ("append", "aligned") or frozenset(settings) not in _ALIGNMENTS.values():
        raise _Refusal("incompatible", f"`chunk_settings` must have `chunk_merge` append or aligned, got {settings!r}")
    expected = [] if merge == "append" else [name for name, fields in _ALIGNMENTS.items() if fields == frozenset(settings)]
    if required != expected:
        raise _Refusal("incompatible", f"`chunk_settings` {settings!r} requires the capabilities {expected}, got {required!r}")
    if settings.get("blend_steps", 0) != 0:
        raise _Refusal("incompatible", "`blend_steps` must be 0: no component may be blended")
    return settings


def _cursors_in(body: dict[str, Any]) -> dict[str, int]:
    """Returns the client's cursors. Refuses invalid ones, and an observation that is newer than its request."""
    seen, asked = (body.get(name) for name in _CURSORS)
    if type(seen) is not int or type(asked) is not int or not 0 <= seen <= asked < 2**63:
        raise _Refusal("malformed", f"aligned chunks need 0 <= observation_cursor <= cursor < 2**63, got {seen!r} and {asked!r}")
    return {"observation_cursor": seen, "cursor": asked}


class _Refusal(Exception):
    """A refusal with the protocol's error code."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass
class _Channels:
    key: str
    control: Queryable
    observations: Channel
    language: Channel
    presence: Any
    absent_since: float
    is_present: bool = False

    def close(self) -> None:
        for each in (self.control, self.observations, self.language, self.presence):
            each.close()


class ModelServer:
    """Serves LeRobot's client over LeRobot's transport, on its own thread. Use it as a context manager, or call `close`."""

    def __init__(self, transport: ServerTransport, worker: Worker) -> None:
        self._transport = transport
        self._worker = worker
        self._over = threading.Event()
        self._channels: _Channels | None = None
        prefix = f"lerobot/inference/v1/deployments/{worker.deployment}"
        self._instance = f"{prefix}/instances/{worker.instance}"
        self._describe = transport.declare_queryable(f"{prefix}/describe", capacity=4)
        self._opening = transport.declare_queryable(f"{self._instance}/open", capacity=4)
        self._token: Token = transport.declare_token(f"{self._instance}/alive")
        self._thread = threading.Thread(target=self._run, name="limber-lerobot", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the session and stops the server."""
        self._over.set()
        self._thread.join(30)

    def wait(self) -> None:
        """Blocks until it is closed."""
        self._thread.join()

    def __enter__(self) -> ModelServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        try:
            while not self._over.wait(0.002):
                try:
                    self._handle_query(self._describe, "describe")
                    self._handle_query(self._opening, "open")
                    if self._channels is not None:
                        self._serve(self._channels)
                except Exception:  # noqa: BLE001 - transports raise different types, and the server must survive them
                    _log.exception("the session has ended with an error")
                    self._release()
        finally:
            self._release()
            self._token.undeclare()
            self._describe.close()
            self._opening.close()

    def _handle_query(self, where: Queryable, kind: str) -> None:
        try:
            pending = where.get(timeout=0)
        except queue.Empty:
            return
        try:
            header = header_of(pending.payload)
            if header.message_type != kind:
                pending.drop()
                return
            answer = self._worker.answer(pending.payload)
            answered = header_of(answer)
            if answered.message_type == "accepted":
                self._admit(answered.session_id)
            if kind == "control" and answered.message_type == "ack" and header.generation == 0 and self._channels is not None and self._worker.session is not None:
                # From here on the client receives actions; earlier ones would be lost.
                for suffix in ("/act", "/language/result"):
                    self._transport.wait_for_subscriber(self._channels.key + suffix, 5.0)
            pending.reply(answer)
        except (LimberError, TimeoutError):
            pending.drop()

    def _admit(self, session: str) -> None:
        key = f"{self._instance}/sessions/{session}"
        if self._channels is not None and self._channels.key == key:
            return  # a repeated request
        self._channels = _Channels(
            key,
            self._transport.declare_queryable(f"{key}/control", capacity=4),
            self._transport.subscribe(f"{key}/obs", 1),
            self._transport.subscribe(f"{key}/language/request", 1),
            self._transport.subscribe_liveliness(f"{key}/alive"),
            time.monotonic(),
        )

    def _serve(self, channels: _Channels) -> None:
        self._handle_query(channels.control, "control")
        try:
            payload = channels.observations.get(timeout=0)
            self._transport.publish(f"{channels.key}/act", self._worker.answer(payload))
        except (queue.Empty, LimberError):
            pass
        try:
            while True:
                channels.is_present = channels.presence.get(timeout=0).alive
                channels.absent_since = time.monotonic()
        except queue.Empty:
            pass
        if not channels.is_present and time.monotonic() - channels.absent_since > _GRACE_S:
            self._worker.leave()
        if self._worker.session is None:
            self._release()

    def _release(self) -> None:
        channels, self._channels = self._channels, None
        self._worker.leave()
        if channels is not None:
            channels.close()
