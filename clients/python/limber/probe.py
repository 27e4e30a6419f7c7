"""Checks whether a policy server meets a gateway's requirements: `limber probe ADDRESS`, without a gateway or an account.

Servers of `limber.policy.v1` (`grpc://`) and of openpi (`ws://`) are checked here, with the checks of the gateway's own probe. For all other
protocols, use the gateway's probe: `npx limber probe`, or `limber probe --gateway PATH`.
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

#: Action dimensions of the spaces that fix them.
DIMENSIONS = {
    "base_twist_2d": 2,
    "ee_delta_6d_grip": 7,
    "joint_pos_14": 14,
    "joint_pos_23": 23,
    "joint_pos_29": 29,
    "joint_pos_7": 7,
    "waypoint_se2": 3,
}
#: Number of steps that most checks request.
_HORIZON = 4
#: Number of further calls after the first one.
_WARM = 3
_INSTRUCTION = "reach the red square"


class Fault(LimberError):
    """A failed check. The text states what is wrong."""


class InputRefused(Fault):
    """The server reports that it cannot use the input."""


class NoAnswer(Fault):
    """The server does not answer in time."""


@dataclass(frozen=True)
class Check:
    """One check."""

    name: str
    passed: bool
    #: True if the server fails the probe when this check fails.
    required: bool
    latency_ms: float
    detail: str
    next_step: str = ""


@dataclass
class Report:
    """The results of the checks, in order."""

    address: str
    runtime: str
    checks: list[Check] = field(default_factory=list)
    latencies_ms: list[float] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """True if every required check passed."""
        return bool(self.checks) and all(check.passed or not check.required for check in self.checks)

    def json(self) -> str:
        return json.dumps({"address": self.address, "runtime": self.runtime, "passed": self.passed, "checks": [asdict(check) for check in self.checks]})

    def markdown(self) -> str:
        """Returns the results as a Markdown table, with the next steps."""

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
    """The input for a server: a state, and images by camera."""

    state: list[float]
    images: dict[str, NDArray[np.uint8]]
    instruction: str = _INSTRUCTION


class Server(Protocol):
    """A server to probe."""

    def reach(self) -> str:
        """Checks that the server answers. Returns a description of it."""

    def scene(self, sample: int) -> Scene:
        """Returns the input for a sample. Different samples require different answers."""

    def ask(self, scene: Scene, horizon: int) -> NDArray[np.float64]:
        """Returns the action rows for an input. Raises `Fault`."""

    #: True if the server must return exactly the requested number of rows; otherwise any number is allowed.
    exact: bool

    def close(self) -> None: ...


def red_square(sample: int, size: int = 224) -> NDArray[np.uint8]:
    """Returns a gray image with a red square, whose position depends on the sample."""
    picture = np.full((size, size, 3), 128, np.uint8)
    at = size // 8 + (sample % 2) * size // 2
    picture[at : at + size // 5, at : at + size // 5] = (220, 30, 30)
    return picture


def _rows(given: Any, dim: int | None) -> NDArray[np.float64]:
    try:
        rows = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise Fault("the answer's rows are not numbers, or have different lengths") from None
    if rows.ndim != 2 or rows.size == 0:
        raise Fault(f"the answer must have the shape (steps, dimensions), got {rows.shape}")
    if dim is not None and rows.shape[1] != dim:
        raise Fault(f"each step must have {dim} numbers in this action space, got {rows.shape[1]}")
    if not np.isfinite(rows).all():
        raise Fault("the response contains a number that is not finite")
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
            response = call(wire.DescribeRequest(), timeout=self._timeout_s)
        except grpc.RpcError as error:
            if error.code() == grpc.StatusCode.UNIMPLEMENTED:
                return "the server answers, but does not describe its models"
            raise Fault(f"no server answers: {error.details() or error.code().name.lower()}") from None
        found = [each for each in response.models if self._model in ("", each.slug)] or list(response.models[:1])
        if not found:
            return "the server answers, but serves no model"
        self._model = found[0].slug
        self._cameras, self._names = list(found[0].cameras), list(found[0].proprio_names)
        self._samples = list(found[0].samples)
        return f"the server answers and serves {', '.join(each.slug for each in response.models)}"

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
            raise Fault(f"the answer has call id {answer.call_id}; it must be 1")
        if answer.HasField("error"):
            refused = answer.error.code == wire.CALL_ERROR_CODE_INVALID_INPUT
            raise (InputRefused if refused else Fault)(f"the server returned an error: {answer.error.message}")
        widths = {len(step.values) for step in answer.chunk.steps}
        if len(widths) > 1:
            raise Fault(f"the steps have different lengths: {sorted(widths)}; all must be equal")
        return _rows([list(step.values) for step in answer.chunk.steps], None)

    def close(self) -> None:
        self._channel.close()


@dataclass(frozen=True)
class OpenpiProfile:
    """The observation keys that an openpi server reads."""

    cameras: tuple[str, ...]
    #: The keys of the state and their dimensions.
    state: tuple[tuple[str, int], ...]
    #: True if images have the channel axis first.
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


@dataclass(frozen=True)
class Guess:
    """A profile of openpi's own policies, and the actions of a server that reads it."""

    profile: str
    action_space: str
    action_dim: int


#: The same as in the gateway's own probe, as far as this package has the profiles.
GUESSES = (
    Guess("openpi/libero", "ee_delta_6d_grip", 7),
    Guess("openpi/droid", "continuous_nd", 8),
    Guess("openpi/aloha", "joint_pos_14", 14),
)


def guess_profile(address: str, timeout_s: float) -> Guess | None:
    """Returns the first profile that the server answers with actions of its dimension, or None.

    openpi servers refuse observations that lack a key, and their metadata seldom say what they read.
    """
    for guess in GUESSES:
        server = OpenpiServer(address, guess.profile, timeout_s)
        try:
            server.reach()
        except Fault:
            server.close()
            return None
        try:
            if server.ask(server.scene(0), 1).shape[1] == guess.action_dim:
                return guess
        except NoAnswer:
            return None
        except Fault:
            # Another profile may fit.
            continue
        finally:
            server.close()
    return None


class OpenpiServer:
    """An openpi server: MessagePack with numpy arrays, over a WebSocket."""

    exact = False

    def __init__(self, address: str, profile: str, timeout_s: float) -> None:
        if profile not in PROFILES:
            raise BadInput(f"profile must be one of {', '.join(PROFILES)}, got {profile!r}")
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
            raise MissingPackage("probing an openpi server needs two more packages: pip install 'limber[probe]'") from None
        self._msgpack = msgpack
        try:
            opening = connect(self._address, compression=None, max_size=None, open_timeout=self._timeout_s)
            self._socket = self._open.enter_context(opening)
            first = self._socket.recv(self._timeout_s)
        except (OSError, TimeoutError, WebSocketException) as error:
            raise Fault(f"no openpi server answers: {error or type(error).__name__}") from None
        if not isinstance(first, bytes):
            raise Fault("the first message is text; an openpi server sends its metadata as MessagePack")
        try:
            metadata = self._msgpack.unpackb(first, raw=False, strict_map_key=False)
        except (ValueError, TypeError):
            raise Fault("the first message is not MessagePack; an openpi server sends its metadata") from None
        return f"the server answers with {len(metadata) if isinstance(metadata, dict) else 'no'} metadata entries"

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
            raise NoAnswer(f"no answer arrived within {self._timeout_s:g} s") from None
        except Exception as error:  # noqa: BLE001 - several types of exceptions end the connection
            raise Fault(f"the connection ended: {error}") from None
        if isinstance(answer, str):
            # openpi servers send an error as text and then close the connection.
            raise InputRefused(f"the server returned an error: {answer.strip().splitlines()[-1][:200] if answer.strip() else 'empty text'}")
        try:
            response = self._msgpack.unpackb(answer, object_hook=_unpacked, raw=False, strict_map_key=False)
        except (ValueError, TypeError, KeyError, OverflowError) as error:
            raise Fault(f"the answer is not MessagePack with numpy arrays: {error}") from None
        if not isinstance(response, dict) or "actions" not in response:
            raise Fault("the answer has no `actions`")
        return _rows(response["actions"], None)

    def close(self) -> None:
        self._open.close()


def _packed(value: Any) -> Any:
    """Encodes an array like openpi's own clients."""
    if isinstance(value, np.ndarray):
        return {b"__ndarray__": True, b"data": value.tobytes(), b"dtype": value.dtype.str, b"shape": value.shape}
    raise TypeError(f"{type(value).__name__} is not supported")


def _unpacked(value: dict[Any, Any]) -> Any:
    named = {key.decode() if isinstance(key, bytes) else key: entry for key, entry in value.items()}
    if "__ndarray__" not in named:
        return value
    dtype = named["dtype"]
    kind = np.dtype(dtype.decode() if isinstance(dtype, bytes) else dtype)
    if kind.hasobject:
        raise ValueError("object arrays are not supported")
    return np.ndarray(shape=named["shape"], dtype=kind, buffer=named["data"])


def probe(server: Server, address: str, runtime: str, *, action_space: str, action_dim: int | None = None, max_horizon: int = 16) -> Report:
    """Runs every check, in order. Skips checks whose prerequisite failed."""
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

    chunk_steps: int | None = None

    def request_rows(scene: Scene, horizon: int) -> NDArray[np.float64]:
        nonlocal chunk_steps
        began = time.monotonic()
        rows = _rows(server.ask(scene, horizon), dim)
        report.latencies_ms.append((time.monotonic() - began) * 1000)
        # Like the gateway's probe: a server that returns fewer steps than requested has a chunk length of its own.
        if len(rows) < horizon:
            chunk_steps = min(chunk_steps or len(rows), len(rows))
        if server.exact and len(rows) != min(horizon, chunk_steps or horizon):
            raise Fault(f"the answer has {len(rows)} steps; {horizon} were requested")
        return rows

    first: list[NDArray[np.float64]] = []

    def shape() -> str:
        first.append(request_rows(server.scene(0), _HORIZON))
        return f"{len(first[0])} steps of {first[0].shape[1]} finite numbers"

    def differ() -> str:
        other = request_rows(server.scene(1), _HORIZON)
        if other.shape == first[0].shape and np.array_equal(other, first[0]):
            raise Fault("two different observations produced the same actions")
        return "two different observations produced different actions"

    def steady() -> str:
        for _ in range(_WARM):
            request_rows(server.scene(0), _HORIZON)
        return f"{_WARM} more calls succeeded"

    def longest() -> str:
        steps = len(request_rows(server.scene(0), max_horizon))
        return f"{steps} steps in one answer" + (f", of chunks of {chunk_steps}" if chunk_steps else "")

    def wrong() -> str:
        # Meaningless numbers, and no image.
        scene = Scene([math.pi] * 3, {})
        try:
            server.ask(scene, _HORIZON)
        except InputRefused:
            return "an invalid observation was rejected"
        except Fault as fault:
            raise Fault(f"an invalid observation was not rejected: {fault}") from None
        raise Fault("an invalid observation was accepted")

    try:
        reachable = check("reachable", server.reach, "start the server, and check its address, port and protocol")
        if reachable and check("action_shape", shape, "return steps of finite numbers with the dimension of the action space"):
            check("answers_differ", differ, "make the answer depend on the observation; a constant is not a policy")
            check("steady", steady, "answer every call, not only the first one")
            if server.exact:
                check("longest_horizon", longest, f"return {max_horizon} steps, or declare fewer")
            ordered = sorted(report.latencies_ms[1:])
            if ordered:
                middle, late = ordered[len(ordered) // 2], ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]
                report.checks.append(Check("latency", True, False, 0.0, f"median {middle:.3f} ms, 95th percentile {late:.3f} ms"))
            # This check is last, because openpi servers close the connection when they refuse.
            check("wrong_input_refused", wrong, "refuse observations that lack required input, instead of filling in defaults", required=False)
    finally:
        server.close()
    return report
