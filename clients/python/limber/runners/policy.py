"""How a runner calls an evaluation's policy: a gateway model through the gateway, a server address directly."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any, Protocol

import grpc
import numpy as np
from numpy.typing import NDArray

from limber import _answers as answers
from limber import _calls as calls
from limber._calls import channel_options
from limber._frames import Observation, message_of
from limber._gen.limber.policy.v1 import policy_service_pb2 as wire
from limber._gen.limber.v1 import registry_service_pb2, runner_service_pb2
from limber.client import Limber
from limber.errors import BadInput, ConnectionFailed, LimberError, MalformedAnswer, NotFoundError, OutOfTime, PermissionRefused
from limber.runners.mapping import Declared, Mapping


class PolicyFault(LimberError):
    """A policy call failed. `termination` is the schema's word for it. The episode ends and is not charged."""

    def __init__(self, termination: str, text: str) -> None:
        super().__init__(text)
        self.termination = termination


class Policy(Protocol):
    """The policy of one evaluation."""

    def declared(self) -> Declared:
        """Returns what the policy declares."""

    def act(self, seen: Observation, instruction: str | None, mapping: Mapping | None, episode: str) -> NDArray[np.float64]:
        """Returns a chunk of shape (steps, dimensions), of finite numbers. Raises PolicyFault."""

    def close(self) -> None:
        """Closes its connection."""


def policy_of(client: Limber, claim: runner_service_pb2.EvaluationClaim) -> Policy:
    """Returns the policy of a claim. Raises BadInput for an address that a runner cannot call."""
    endpoint = claim.evaluation.policy.endpoint
    scheme, separator, _ = endpoint.partition("://")
    if not separator:
        return GatewayPolicy(client, claim)
    if scheme == "grpc":
        return NativePolicy(claim)
    if scheme in ("ws", "wss"):
        return OpenpiPolicy(claim)
    raise BadInput(f"this runner cannot call {scheme}://; it calls gateway models, grpc:// and ws://. List the server as an offering and evaluate its model")


class GatewayPolicy:
    """A model or alias of the gateway."""

    def __init__(self, client: Limber, claim: runner_service_pb2.EvaluationClaim) -> None:
        self._client = client
        self._claim = claim

    def declared(self) -> Declared:
        try:
            owner, _, name = self._claim.evaluation.policy.endpoint.partition("/")
            model = self._client.call(calls.GET_MODEL, registry_service_pb2.GetModelRequest(owner=owner, name=name)).model
        except (NotFoundError, PermissionRefused):
            # Aliases and presets have no entry; their models are checked by the gateway, call by call.
            return Declared()
        dims = {each.action_dim for each in model.offerings.offerings if each.HasField("action_dim")}
        return Declared(
            input=model.input if model.HasField("input") else None,
            actions=model.actions.actions,
            action_spaces=model.action_spaces,
            action_dim=dims.pop() if len(dims) == 1 else 0,
        )

    def act(self, seen: Observation, instruction: str | None, mapping: Mapping | None, episode: str) -> NDArray[np.float64]:
        claim = self._claim
        try:
            chunk = self._client.act(
                claim.evaluation.policy.endpoint,
                seen,
                action_space=claim.evaluation.policy.action_space or (mapping.action_space if mapping else None),
                horizon=claim.horizon or None,
                instruction=instruction,
                provider={"session_id": episode, "deadline_ms": claim.policy_timeout_ms},
                timeout_s=claim.policy_timeout_ms / 1000 + 1,
            )
        except OutOfTime as fault:
            raise PolicyFault("policy_timeout", str(fault)) from None
        except ConnectionFailed as fault:
            raise PolicyFault("policy_disconnected", str(fault)) from None
        except MalformedAnswer as fault:
            raise PolicyFault("invalid_action", str(fault)) from None
        except BadInput:
            # The observation comes from the environment.
            raise
        except LimberError as fault:
            raise PolicyFault("policy_error", str(fault)) from None
        return chunk.steps

    def close(self) -> None:
        pass


class NativePolicy:
    """A server of `limber.policy.v1` at `grpc://host:port`. One stream serves all calls."""

    def __init__(self, claim: runner_service_pb2.EvaluationClaim) -> None:
        self._claim = claim
        self._channel = grpc.insecure_channel(claim.evaluation.policy.endpoint.partition("://")[2], options=channel_options())
        self._sent: queue.Queue[wire.ActRequest | None] = queue.Queue()
        self._received: queue.Queue[wire.ActResponse | grpc.RpcError | None] | None = None
        self._calls = 0
        self._model = ""

    def declared(self) -> Declared:
        describe = self._channel.unary_unary(
            "/limber.policy.v1.PolicyService/Describe",
            request_serializer=wire.DescribeRequest.SerializeToString,
            response_deserializer=wire.DescribeResponse.FromString,
        )
        try:
            models = describe(wire.DescribeRequest(), timeout=self._claim.policy_timeout_ms / 1000).models
        except grpc.RpcError:
            # The first act call reports a server that is not there.
            return Declared()
        if not models:
            return Declared()
        first = models[0]
        self._model = first.slug
        contract = first.input if first.HasField("input") else None
        return Declared(contract, first.actions, first.action_spaces, first.action_dim, first.cameras, first.proprio_names)

    def act(self, seen: Observation, instruction: str | None, mapping: Mapping | None, episode: str) -> NDArray[np.float64]:
        self._calls += 1
        space = self._claim.evaluation.policy.action_space or (mapping.action_space if mapping else "")
        call = wire.ActCall(
            model=self._model,
            observations=[message_of(seen, {})],
            instruction=instruction or "",
            action_space=space,
            horizon=self._claim.horizon,
            session_id=episode,
            budget_ms=self._claim.policy_timeout_ms,
        )
        received = self._received = self._received or self._opened()
        self._sent.put(wire.ActRequest(call_id=self._calls, call=call))
        until = time.monotonic() + self._claim.policy_timeout_ms / 1000
        while True:
            try:
                answer = received.get(timeout=_left(until))
            except queue.Empty:
                self._sent.put(wire.ActRequest(call_id=self._calls, cancel=wire.CancelCall()))
                raise PolicyFault("policy_timeout", f"the policy did not answer within {self._claim.policy_timeout_ms} ms") from None
            if not isinstance(answer, wire.ActResponse):
                self._received = None
                why = "the stream ended" if answer is None else answer.details()
                raise PolicyFault("policy_disconnected", f"the policy server disconnected: {why}")
            # Late answers to earlier calls are discarded.
            if answer.call_id == self._calls:
                break
        if answer.HasField("error"):
            raise PolicyFault("policy_error", answer.error.message or wire.CallErrorCode.Name(answer.error.code))
        try:
            return answers.matrix(answer.chunk.steps)
        except MalformedAnswer as fault:
            raise PolicyFault("invalid_action", str(fault)) from None

    def _opened(self) -> queue.Queue[wire.ActResponse | grpc.RpcError | None]:
        """Opens a stream. Returns its answers; the last item is None or an error if the stream is lost."""
        sent: queue.Queue[wire.ActRequest | None] = queue.Queue()
        self._sent = sent
        received: queue.Queue[wire.ActResponse | grpc.RpcError | None] = queue.Queue()
        stream: Iterator[wire.ActResponse] = self._channel.stream_stream(
            "/limber.policy.v1.PolicyService/Act",
            request_serializer=wire.ActRequest.SerializeToString,
            response_deserializer=wire.ActResponse.FromString,
        )(iter(sent.get, None))

        def read() -> None:
            lost: grpc.RpcError | None = None
            try:
                for answer in stream:
                    received.put(answer)
            except grpc.RpcError as error:
                lost = error
            finally:
                received.put(lost)
                # Ends the thread of gRPC that waits for requests.
                sent.put(None)

        threading.Thread(target=read, name="limber-policy", daemon=True).start()
        return received

    def close(self) -> None:
        self._sent.put(None)
        self._channel.close()


def _left(until: float) -> float:
    return max(0.001, until - time.monotonic())


def _turned(image: Any) -> NDArray[np.uint8]:
    return np.ascontiguousarray(np.asarray(image)[::-1, ::-1])


class OpenpiPolicy:
    """An openpi server at `ws://host:port`, for tasks whose observation keys are known.

    Source: Physical-Intelligence/openpi, packages/openpi-client/src/openpi_client/websocket_client_policy.py: the server sends its metadata first,
    then answers each observation; a text message is a traceback.
    """

    def __init__(self, claim: runner_service_pb2.EvaluationClaim) -> None:
        self._claim = claim
        self._timeout_s = claim.policy_timeout_ms / 1000
        self._socket: Any = None
        self._open = contextlib.ExitStack()

    def declared(self) -> Declared:
        return Declared()

    def act(self, seen: Observation, instruction: str | None, mapping: Mapping | None, episode: str) -> NDArray[np.float64]:
        from limber.probe import _packed, _unpacked
        from limber.lerobot import needed

        keys = mapping.openpi if mapping is not None else {}
        if not keys:
            raise BadInput("this task has no observation keys for openpi servers; list the server as an offering and evaluate its model")
        until = time.monotonic() + self._timeout_s
        msgpack = needed("msgpack", "probe")
        needed("websockets", "probe")
        from websockets.exceptions import WebSocketException
        from websockets.sync.client import connect

        message: dict[str, Any] = {keys[camera]: _turned(image) if mapping and mapping.openpi_turned else image for camera, image in seen.images.items() if camera in keys}
        if "state" in keys:
            message[keys["state"]] = np.asarray(seen.state, np.float32)
        message[keys.get("prompt", "prompt")] = instruction or ""
        try:
            if self._socket is None:
                opening = connect(self._claim.evaluation.policy.endpoint, compression=None, max_size=None, open_timeout=self._timeout_s)
                self._socket = self._open.enter_context(opening)
                self._socket.recv(_left(until))
            packed = msgpack.packb(message, default=_packed)
            with self._limited(_left(until)):
                self._socket.send(packed)
            answer = self._socket.recv(_left(until))
        except TimeoutError:
            self._disconnect()
            self.close()
            raise PolicyFault("policy_timeout", f"the policy did not answer within {self._claim.policy_timeout_ms} ms") from None
        except (OSError, WebSocketException) as error:
            self.close()
            raise PolicyFault("policy_disconnected", f"the policy server disconnected: {error or type(error).__name__}") from None
        if isinstance(answer, str):
            self.close()
            raise PolicyFault("policy_error", (answer.strip().splitlines() or ["the policy failed"])[-1])
        try:
            rows = np.asarray(msgpack.unpackb(answer, object_hook=_unpacked, raw=False, strict_map_key=False)["actions"], np.float64)
        except (ValueError, TypeError, KeyError, OverflowError) as error:
            raise PolicyFault("invalid_action", f"the answer has no readable `actions`: {type(error).__name__}") from None
        if rows.ndim != 2 or rows.size == 0 or not np.isfinite(rows).all():
            raise PolicyFault("invalid_action", f"`actions` must be finite numbers of shape (steps, dimensions), got {rows.shape}")
        return rows

    @contextlib.contextmanager
    def _limited(self, most_s: float) -> Iterator[None]:
        """Raises TimeoutError if the block does not end in time. The library's `send` has no time limit of its own."""
        late = threading.Event()

        def end() -> None:
            late.set()
            self._disconnect()

        timer = threading.Timer(most_s, end)
        timer.daemon = True
        timer.start()
        try:
            yield
        except Exception:
            if late.is_set():
                raise TimeoutError from None
            raise
        finally:
            timer.cancel()

    def _disconnect(self) -> None:
        """Disconnects without a closing handshake, which a server that does not read would not answer."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Closes the connection; the next call opens another one."""
        self._socket = None
        self._open.close()
