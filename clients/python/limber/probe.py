"""Whether a policy server does what a gateway expects of it: `limber probe ADDRESS`, without a gateway or an account.

It looks at servers of `limber.policy.v1` (`grpc://`) and of openpi (`ws://`) by itself, with the checks of the gateway's own probe. Servers of other
wires are looked at by the gateway's program, where that is: `npx limber probe`, or `limber probe --gateway PATH`.
"""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

import grpc
import numpy as np
from numpy.typing import NDArray

from limber._calls import channel_options
from limber._gen.limber.policy.v1 import policy_service_pb2 as wire
from limber._gen.limber.v1 import observation_pb2
from limber.errors import BadInput, LimberError, MissingPackage

#: Numbers of an action, for the spaces that fix them.
DIMENSIONS = {
    "base_twist_2d": 2,
    "ee_delta_6d_grip": 7,
    "joint_pos_14": 14,
    "joint_pos_23": 23,
    "joint_pos_29": 29,
    "joint_pos_7": 7,
    "waypoint_se2": 3,
}
#: Steps that most checks ask for.
_HORIZON = 4
#: Further answers, beside the first.
_WARM = 3
_INSTRUCTION = "reach the red square"


class Fault(LimberError):
    """What a check found, and is to be mended."""


class InputRefused(Fault):
    """The server says that it cannot use what it was shown."""


@dataclass(frozen=True)
class Check:
    """One check."""

    name: str
    passed: bool
    #: The server fails the probe where it does not pass.
    required: bool
    latency_ms: float
    detail: str
    next_step: str = ""


@dataclass
class Report:
    """What the checks found, in order."""

    address: str
    runtime: str
    checks: list[Check] = field(default_factory=list)
    latencies_ms: list[float] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Every required check passed."""
        return bool(self.checks) and all(check.passed or not check.required for check in self.checks)

    def json(self) -> str:
        return json.dumps({"address": self.address, "runtime": self.runtime, "passed": self.passed, "checks": [asdict(check) for check in self.checks]})

    def markdown(self) -> str:
        """A table for a README, and what to do."""

        def cell(text: str) -> str:
            return " ".join(text.replace("|", "\\|").split())

        lines = [
            f"{'Passes' if self.passed else 'Fails'} the probe of Limber over `{self.runtime}`: {self.address}",
            "",
            "| check | result | time | seen |",
            "|---|---|---|---|",
        ]
        for check in self.checks:
            result = "passed" if check.passed else "FAILED" if check.required else "warned"
            lines.append(f"| {check.name} | {result} | {check.latency_ms:.1f} ms | {cell(check.detail)} |")
        steps = [f"- {check.name}: {check.next_step}" for check in self.checks if check.next_step]
        if steps:
            lines += ["", "What to do:", "", *steps]
        return "\n".join(lines)


@dataclass
class Scene:
    """What a server is shown: numbers, and pictures by camera."""

    state: list[float]
    images: dict[str, NDArray[np.uint8]]
    instruction: str = _INSTRUCTION


class Server(Protocol):
    """A server that is probed."""

    def reach(self) -> str:
        """Whether it answers at all."""

    def scene(self, sample: int) -> Scene:
        """What to show it; another sample calls for another answer."""

    def ask(self, scene: Scene, horizon: int) -> NDArray[np.float64]:
        """Its rows. Raises `Fault`."""

    #: It gives as many rows as it is asked for; else as many as it likes.
    exact: bool

    def close(self) -> None: ...


def red_square(sample: int, size: int = 224) -> NDArray[np.uint8]:
    """A grey picture with a red square, elsewhere in each sample."""
    picture = np.full((size, size, 3), 128, np.uint8)
    at = size // 8 + (sample % 2) * size // 2
    picture[at : at + size // 5, at : at + size // 5] = (220, 30, 30)
    return picture


def _rows(given: Any, dim: int | None) -> NDArray[np.float64]:
    try:
        rows = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise Fault("the answer's rows are no numbers, or not of one length") from None
    if rows.ndim != 2 or rows.size == 0:
        raise Fault(f"the answer has the shape {rows.shape}; steps x dimensions are expected")
    if dim is not None and rows.shape[1] != dim:
        raise Fault(f"each step has {rows.shape[1]} numbers, and {dim} are due in this action space")
    if not np.isfinite(rows).all():
        raise Fault("the answer holds a number that is not finite")
    return rows


class NativeServer:
    """A server of `limber.policy.v1`."""

    exact = True

    def __init__(self, address: str, action_space: str, timeout_s: float, model: str = "") -> None:
        self._channel = grpc.insecure_channel(address.partition("://")[2], options=channel_options())
        self._space = action_space
        self._timeout_s = timeout_s
        self._model = model
        self._cameras: list[str] = []
        self._names: list[str] = []
        self._samples: list[observation_pb2.Observation] = []

    def reach(self) -> str:
        call = self._channel.unary_unary(
            "/limber.policy.v1.PolicyService/Describe",
            request_serializer=wire.DescribeRequest.SerializeToString,
            response_deserializer=wire.DescribeResponse.FromString,
        )
        try:
            said = call(wire.DescribeRequest(), timeout=self._timeout_s)
        except grpc.RpcError as error:
            if error.code() == grpc.StatusCode.UNIMPLEMENTED:
                return "it answers, and does not describe what it serves"
            raise Fault(f"nobody answers: {error.details() or error.code().name.lower()}") from None
        found = [each for each in said.models if self._model in ("", each.slug)] or list(said.models[:1])
        if not found:
            return "it answers, and serves no model"
        self._model = found[0].slug
        self._cameras, self._names = list(found[0].cameras), list(found[0].proprio_names)
        self._samples = list(found[0].samples)
        return f"it answers, and serves {', '.join(each.slug for each in said.models)}"

    def scene(self, sample: int) -> Scene:
        if len(self._samples) > sample:
            return Scene(list(self._samples[sample].proprio), {})
        size = len(self._names) or 8
        state = [0.1 + 0.02 * i + 0.15 * sample for i in range(size)]
        return Scene(state, {camera: red_square(sample) for camera in self._cameras})

    def ask(self, scene: Scene, horizon: int) -> NDArray[np.float64]:
        from limber._frames import Observation, message_of

        seen = message_of(Observation(images=scene.images, state=scene.state, state_names=self._names if len(self._names) == len(scene.state) else ()), {})
        call = wire.ActCall(
            model=self._model, observations=[seen], instruction=scene.instruction, action_space=self._space, horizon=horizon, budget_ms=int(self._timeout_s * 1000)
        )
        stream = self._channel.stream_stream(
            "/limber.policy.v1.PolicyService/Act",
            request_serializer=wire.ActRequest.SerializeToString,
            response_deserializer=wire.ActResponse.FromString,
        )
        try:
            answers: Iterator[wire.ActResponse] = stream(iter([wire.ActRequest(call_id=1, call=call)]), timeout=self._timeout_s)
            answer = next(answers, None)
        except grpc.RpcError as error:
            raise Fault(f"the call failed: {error.details() or error.code().name.lower()}") from None
        if answer is None:
            raise Fault("the stream ended without an answer")
        if answer.call_id != 1:
            raise Fault(f"the answer names the call {answer.call_id}, and the call was 1")
        if answer.HasField("error"):
            refused = answer.error.code == wire.CALL_ERROR_CODE_INVALID_INPUT
            raise (InputRefused if refused else Fault)(f"it says: {answer.error.message}")
        widths = {len(step.values) for step in answer.chunk.steps}
        if len(widths) > 1:
            raise Fault(f"steps have {sorted(widths)} numbers; each has to have as many")
        return _rows([list(step.values) for step in answer.chunk.steps], None)

    def close(self) -> None:
        self._channel.close()


@dataclass(frozen=True)
class OpenpiProfile:
    """Under which names an openpi server reads an observation."""

    cameras: tuple[str, ...]
    #: Each entry of the state, and how many numbers it has.
    state: tuple[tuple[str, int], ...]
    #: Pictures have their colours first.
    colours_first: bool = False


PROFILES = {
    "openpi/droid": OpenpiProfile(
        ("observation/exterior_image_1_left", "observation/wrist_image_left"),
        (("observation/joint_position", 7), ("observation/gripper_position", 1)),
    ),
    "openpi/libero": OpenpiProfile(("observation/image", "observation/wrist_image"), (("observation/state", 8),)),
    "openpi/aloha": OpenpiProfile(
        ("images.cam_high", "images.cam_low", "images.cam_left_wrist", "images.cam_right_wrist"), (("state", 14),), True
    ),
}


class OpenpiServer:
    """A server of openpi: MessagePack with arrays of numpy, over a WebSocket."""

    exact = False

    def __init__(self, address: str, profile: str, timeout_s: float) -> None:
        if profile not in PROFILES:
            raise BadInput(f"profile is {profile!r}; it may be {', '.join(PROFILES)}")
        self._address = address
        self._profile = PROFILES[profile]
        self._timeout_s = timeout_s
        self._socket: Any = None
        self._open = contextlib.ExitStack()
        self._msgpack: Any = None

    def reach(self) -> str:
        try:
            import msgpack
            from websockets.exceptions import WebSocketException
            from websockets.sync.client import connect
        except ImportError:
            raise MissingPackage("a server of openpi is probed with two packages more: pip install 'limber[probe]'") from None
        self._msgpack = msgpack
        try:
            opening = connect(self._address, compression=None, max_size=None, open_timeout=self._timeout_s)
            self._socket = self._open.enter_context(opening)
            first = self._socket.recv(self._timeout_s)
        except (OSError, TimeoutError, WebSocketException) as error:
            raise Fault(f"nobody answers as openpi's servers do: {error or type(error).__name__}") from None
        if not isinstance(first, bytes):
            raise Fault("its first message is a text; openpi's servers send their metadata as MessagePack")
        try:
            metadata = self._msgpack.unpackb(first, raw=False, strict_map_key=False)
        except (ValueError, TypeError):
            raise Fault("its first message is no MessagePack; openpi's servers send their metadata") from None
        return f"it answers, with {len(metadata) if isinstance(metadata, dict) else 'no'} entries of metadata"

    def scene(self, sample: int) -> Scene:
        size = sum(count for _, count in self._profile.state)
        return Scene([0.1 + 0.02 * i + 0.15 * sample for i in range(size)], {camera: red_square(sample) for camera in self._profile.cameras})

    def ask(self, scene: Scene, horizon: int) -> NDArray[np.float64]:
        message: dict[str, Any] = {"prompt": scene.instruction}
        at = 0
        for name, count in self._profile.state:
            message[name] = np.array(scene.state[at : at + count], dtype=np.float32)
            at += count
        images: dict[str, Any] = {name: image.transpose(2, 0, 1) if self._profile.colours_first else image for name, image in scene.images.items()}
        for name, image in images.items():
            folder, dot, leaf = name.partition(".")
            if dot:
                message.setdefault(folder, {})[leaf] = image
            else:
                message[name] = image
        try:
            self._socket.send(self._msgpack.packb(message, default=_packed))
            answer = self._socket.recv(self._timeout_s)
        except TimeoutError:
            raise Fault(f"no answer came within {self._timeout_s:g} s") from None
        except Exception as error:  # noqa: BLE001 - whatever ends the connection
            raise Fault(f"the connection ended: {error}") from None
        if isinstance(answer, str):
            # openpi's servers send what went wrong as a text, and hang up.
            raise InputRefused(f"it says: {answer.strip().splitlines()[-1][:200] if answer.strip() else 'nothing'}")
        try:
            said = self._msgpack.unpackb(answer, object_hook=_unpacked, raw=False, strict_map_key=False)
        except (ValueError, TypeError, KeyError, OverflowError) as error:
            raise Fault(f"the answer is no MessagePack with arrays of numpy: {error}") from None
        if not isinstance(said, dict) or "actions" not in said:
            raise Fault("the answer has no `actions`")
        return _rows(said["actions"], None)

    def close(self) -> None:
        self._open.close()


def _packed(value: Any) -> Any:
    """An array as openpi's own clients pack it."""
    if isinstance(value, np.ndarray):
        return {b"__ndarray__": True, b"data": value.tobytes(), b"dtype": value.dtype.str, b"shape": value.shape}
    raise TypeError(f"{type(value).__name__} is not sent")


def _unpacked(value: dict[Any, Any]) -> Any:
    named = {key.decode() if isinstance(key, bytes) else key: entry for key, entry in value.items()}
    if "__ndarray__" not in named:
        return value
    dtype = named["dtype"]
    kind = np.dtype(dtype.decode() if isinstance(dtype, bytes) else dtype)
    if kind.hasobject:
        raise ValueError("an array of objects")
    return np.ndarray(shape=named["shape"], dtype=kind, buffer=named["data"])


def probe(server: Server, address: str, runtime: str, *, action_space: str, action_dim: int | None = None, max_horizon: int = 16) -> Report:
    """Runs every check, in order; those that need an earlier one are left out where it failed."""
    report = Report(address, runtime)
    dim = DIMENSIONS.get(action_space, action_dim)

    def check(name: str, look: Callable[[], str], next_step: str, required: bool = True) -> bool:
        began = time.monotonic()
        try:
            detail, passed = look(), True
        except Fault as fault:
            detail, passed = str(fault), False
        took = (time.monotonic() - began) * 1000
        report.checks.append(Check(name, passed, required, round(took, 3), detail[:400], "" if passed else next_step))
        return passed

    def asked(scene: Scene, horizon: int) -> NDArray[np.float64]:
        began = time.monotonic()
        rows = _rows(server.ask(scene, horizon), dim)
        report.latencies_ms.append((time.monotonic() - began) * 1000)
        if server.exact and len(rows) != horizon:
            raise Fault(f"the answer has {len(rows)} steps where {horizon} were asked for")
        return rows

    first: list[NDArray[np.float64]] = []

    def shape() -> str:
        first.append(asked(server.scene(0), _HORIZON))
        return f"{len(first[0])} steps of {first[0].shape[1]} finite numbers"

    def differ() -> str:
        other = asked(server.scene(1), _HORIZON)
        if other.shape == first[0].shape and np.array_equal(other, first[0]):
            raise Fault("two different observations gave the same actions")
        return "two different observations gave different actions"

    def steady() -> str:
        for _ in range(_WARM):
            asked(server.scene(0), _HORIZON)
        return f"{_WARM} more calls answered"

    def longest() -> str:
        return f"{len(asked(server.scene(0), max_horizon))} steps in one answer"

    def wrong() -> str:
        # Numbers that are none, and no picture at all.
        scene = Scene([math.pi] * 3, {})
        try:
            server.ask(scene, _HORIZON)
        except InputRefused:
            return "an observation that makes no sense was refused"
        except Fault as fault:
            raise Fault(f"an observation that makes no sense was not refused as such: {fault}") from None
        raise Fault("an observation that makes no sense was answered as if it did")

    try:
        reachable = check("reachable", server.reach, "start the server, and look at its address, its port and its protocol")
        if reachable and check("action_shape", shape, "give steps of as many finite numbers as the action space has"):
            check("answers_differ", differ, "let the answer depend on what is observed; a constant is no policy")
            check("steady", steady, "answer every call, not the first alone")
            if server.exact:
                check("longest_horizon", longest, f"give {max_horizon} steps, or declare fewer")
            ordered = sorted(report.latencies_ms[1:])
            if ordered:
                middle, late = ordered[len(ordered) // 2], ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]
                report.checks.append(Check("latency", True, False, 0.0, f"median {middle:.3f} ms, 95th percentile {late:.3f} ms"))
            # Last: servers of openpi hang up when they refuse.
            check("wrong_input_refused", wrong, "refuse observations that lack what the model needs, instead of filling them up", required=False)
    finally:
        server.close()
    return report
