"""Serves any Python policy to a gateway. The process dials the gateway, so it works behind a router; calls arrive on its own stream.

    import limber.serve

    def policy(asked):
        return model.predict(asked.images["wrist"], asked.state)      # rows of actions: steps x dimensions

    limber.serve.serve(policy, model="acme/cruise", action_space="base_twist_2d", dt_ms=50)
"""

from __future__ import annotations

import contextlib
import queue
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent import futures
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import grpc
import numpy as np
from numpy.typing import ArrayLike, NDArray

from limber import _calls as calls
from limber._calls import channel_options
from limber._frames import decoded
from limber._gen.limber.outbound.v1 import outbound_service_pb2
from limber._gen.limber.policy.v1 import policy_service_pb2
from limber._gen.limber.v1 import action_pb2, contract_pb2, input_contract_pb2, observation_pb2, supply_pb2, supply_service_pb2
from limber.client import Limber
from limber.errors import BadInput, ConnectionFailed, LimberError, NotFoundError, Refused, of_rpc

#: Maximum number of queued calls; further calls are refused as busy.
_MOST_WAITING = 64
_SERVE = "/limber.outbound.v1.OutboundService/Serve"


class InvalidInput(BadInput):
    """Raised by a policy that cannot use its input. The caller receives the message, and the failure does not count against the provider."""


class _Cameras(dict[str, NDArray[np.uint8]]):
    def __missing__(self, camera: str) -> NDArray[np.uint8]:
        raise InvalidInput(f"no image of the camera {camera!r}; the call has {', '.join(self) or 'no images'}")


class Asked:
    """A call to a policy."""

    def __init__(self, call: policy_service_pb2.ActCall) -> None:
        self._call = call
        self._seen: observation_pb2.Observation = call.observations[-1] if call.observations else observation_pb2.Observation()
        #: Number of requested rows. Additional rows are cut; a policy whose chunks are shorter returns its complete chunk.
        self.horizon: int = call.horizon
        self.instruction: str = call.instruction
        self.action_space: str = call.action_space
        #: The episode. Changes when the robot starts over.
        self.session_id: str = call.session_id
        self.seed: int | None = call.seed if call.HasField("seed") else None
        self.model: str = call.model

    @cached_property
    def state(self) -> NDArray[np.float64]:
        """Proprioception, one row; empty if the robot sent none."""
        return np.array(self._seen.proprio, dtype=np.float64)

    @cached_property
    def images(self) -> dict[str, NDArray[np.uint8]]:
        """Images by camera: uint8 of shape (height, width, 3), RGB. Needs Pillow."""
        try:
            return _Cameras((frame.camera, decoded(frame.data)) for frame in self._seen.frames)
        except OSError as error:
            raise InvalidInput(f"an image could not be decoded: {error}") from None

    @property
    def encoded_images(self) -> dict[str, bytes]:
        """The encoded images by camera, as received."""
        return {frame.camera: frame.data for frame in self._seen.frames}

    @property
    def observations(self) -> Sequence[observation_pb2.Observation]:
        """All observations of the call as messages, oldest first."""
        return list(self._call.observations)


class Infers(Protocol):
    """A policy with openpi's interface."""

    def infer(self, obs: dict[str, Any]) -> Mapping[str, Any]: ...


Policy = Callable[[Asked], ArrayLike] | Infers


@dataclass(frozen=True)
class Served:
    """The declaration of a served policy."""

    model: str
    provider: str
    action_space: str = "ee_delta_6d_grip"
    #: Action dimension, for spaces that do not fix it, such as `continuous_nd`.
    action_dim: int | None = None
    #: Time between consecutive rows, in milliseconds.
    dt_ms: int = 50
    #: Maximum number of rows in one answer.
    max_horizon: int = 16
    #: Price, in US dollars.
    price_per_action_step: float = 0.0
    hardware: str = "CPU"
    region: str = "local"
    cameras: tuple[str, ...] = ()
    state_names: tuple[str, ...] = ()


def _chunk(policy: Policy, call: policy_service_pb2.ActCall, served: Served) -> policy_service_pb2.ActResponse:
    """Returns the policy's answer to one call. An exception of the policy fails only this call."""
    asked = Asked(call)
    try:
        names, size = served.state_names, len(asked.observations[-1].proprio) if asked.observations else 0
        if names and size != len(names):
            raise InvalidInput(f"the state must have {len(names)} numbers ({', '.join(names)}), got {size}")
        for camera in served.cameras:
            if camera not in asked.encoded_images:
                raise InvalidInput(f"no image of the camera {camera!r}")
        given = policy(asked) if callable(policy) else policy.infer(_openpi_dict(asked))["actions"]
        rows = np.asarray(given, dtype=np.float64)
        if rows.ndim == 1:
            rows = np.tile(rows, (asked.horizon, 1))
        if rows.ndim != 2 or len(rows) == 0:
            raise BadInput(f"the policy must return the shape (steps, dimensions), got {rows.shape}")
        # A shorter chunk is sent unchanged: the gateway's probe learns the policy's chunk length from it.
        rows = rows[: asked.horizon]
        if not np.isfinite(rows).all():
            raise BadInput("the policy returned a number that is not finite")
    except InvalidInput as error:
        call_error = policy_service_pb2.CallError(code=policy_service_pb2.CALL_ERROR_CODE_INVALID_INPUT, message=str(error)[:500])
        return policy_service_pb2.ActResponse(error=call_error)
    except Exception as error:  # noqa: BLE001 - an exception of the policy fails only its call
        call_error = policy_service_pb2.CallError(code=policy_service_pb2.CALL_ERROR_CODE_INTERNAL, message=f"{type(error).__name__}: {error}"[:500])
        return policy_service_pb2.ActResponse(error=call_error)
    steps = [action_pb2.ActionStep(values=row) for row in rows.tolist()]
    return policy_service_pb2.ActResponse(chunk=policy_service_pb2.ActChunk(steps=steps, dt_ms=served.dt_ms))


def _openpi_dict(asked: Asked) -> dict[str, Any]:
    """Returns the input of an openpi policy: the state, the images by camera, and the prompt."""
    return {"state": asked.state, "prompt": asked.instruction, **asked.images}


class _CallRunner:
    """Runs calls on the policy's threads and queues their answers for the stream."""

    def __init__(
        self,
        policy: Policy,
        served: Served,
        threads: int,
        send: Callable[[policy_service_pb2.ActResponse], None],
        tell: Callable[[str], None],
    ) -> None:
        self._policy = policy
        self._served = served
        self._send = send
        self._tell = tell
        #: The last logged failure, and the time it was logged.
        self._logged = ("", 0.0)
        self._calls: queue.Queue[tuple[int, policy_service_pb2.ActCall, float] | None] = queue.Queue(_MOST_WAITING)
        self._cancelled: set[int] = set()
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(threads)]
        for thread in self._threads:
            thread.start()

    def accept(self, request: policy_service_pb2.ActRequest) -> None:
        if request.HasField("cancel"):
            self._cancelled.add(request.call_id)
            return
        until = time.monotonic() + request.call.budget_ms / 1000 if request.call.budget_ms else float("inf")
        try:
            self._calls.put_nowait((request.call_id, request.call, until))
        except queue.Full:
            self._fail(request.call_id, policy_service_pb2.CALL_ERROR_CODE_BUSY, "the call queue is full")

    def end(self) -> None:
        """Stops accepting calls. Queued calls are still answered."""
        for _ in self._threads:
            self._calls.put(None)

    def join(self) -> None:
        """Waits until all calls are answered."""
        for thread in self._threads:
            thread.join()

    def _fail(self, call_id: int, code: policy_service_pb2.CallErrorCode, message: str) -> None:
        error = policy_service_pb2.CallError(code=code, message=message)
        self._send(policy_service_pb2.ActResponse(call_id=call_id, error=error))

    def _work(self) -> None:
        while (item := self._calls.get()) is not None:
            call_id, call, until = item
            if call_id in self._cancelled:
                self._cancelled.discard(call_id)
            elif time.monotonic() > until:
                self._fail(call_id, policy_service_pb2.CALL_ERROR_CODE_BUSY, "the call's time budget ran out while it was queued")
            else:
                answer = _chunk(self._policy, call, self._served)
                answer.call_id = call_id
                if answer.HasField("error"):
                    self._log(answer.error.message)
                elif len(answer.chunk.steps) < call.horizon:
                    self._log(f"the policy returned {len(answer.chunk.steps)} of {call.horizon} requested steps")
                self._send(answer)

    def _log(self, failure: str) -> None:
        """Logs a failed call. Repeats of the same failure are logged at most every 10 s."""
        now = time.monotonic()
        if failure != self._logged[0] or now - self._logged[1] > 10:
            self._logged = (failure, now)
            self._tell(f"serve: call failed: {failure}")


def serve(
    policy: Policy,
    *,
    model: str,
    provider: str | None = None,
    url: str | Sequence[str] | None = None,
    key: str | None = None,
    action_space: str = "ee_delta_6d_grip",
    action_dim: int | None = None,
    dt_ms: int = 50,
    max_horizon: int = 16,
    price_per_action_step: float = 0.0,
    hardware: str = "CPU",
    region: str = "local",
    cameras: Sequence[str] = (),
    state_names: Sequence[str] = (),
    declare: bool = True,
    threads: int = 1,
    stop: threading.Event | None = None,
    tell: Callable[[str], None] = print,
) -> None:
    """Serves a policy until `stop` is set, or until Ctrl-C.

    `policy` is a function that takes `Asked` and returns rows of actions, or an object with openpi's `infer`. It is called on `threads` threads,
    one by default. The process dials the gateway at `url` with a key that can write supply, and reconnects if the connection breaks. With
    `declare`, it registers the provider (default: the model's owner), declares the model and runs its probe, unless this has been done before.

    Raises errors that a retry cannot fix, such as `InvalidApiKey`.
    """
    served = Served(
        model=model,
        provider=provider or model.partition("/")[0],
        action_space=action_space,
        action_dim=action_dim,
        dt_ms=dt_ms,
        max_horizon=max_horizon,
        price_per_action_step=price_per_action_step,
        hardware=hardware,
        region=region,
        cameras=tuple(cameras),
        state_names=tuple(state_names),
    )
    if not 1 <= max_horizon <= 256:
        raise BadInput(f"max_horizon must be between 1 and 256, got {max_horizon}")
    over = stop or threading.Event()
    with Limber(url, key) as client:
        if declare:
            _register(client, served, tell)
        declared = not declare
        wait = 0.25
        while not over.is_set():
            began = time.monotonic()
            try:
                declared = _dial(client, policy, served, threads, over, declared, tell) or declared
            except LimberError as error:
                # A provider that is not registered yet might be registered soon.
                if isinstance(error, Refused) and not error.retryable and not isinstance(error, NotFoundError):
                    raise
                if not isinstance(error, (Refused, ConnectionFailed)):
                    raise
                tell(f"serve: {error}")
            if time.monotonic() - began > 60:
                wait = 0.25
            client.next_address(client._current)
            over.wait(wait * random.uniform(0.5, 1))
            wait = min(wait * 2, 4.0)


def _dial(
    client: Limber, policy: Policy, served: Served, threads: int, over: threading.Event, declared: bool, tell: Callable[[str], None]
) -> bool:
    """Runs one stream until it ends. Returns whether the model is declared."""
    outbox: queue.Queue[outbound_service_pb2.ServeRequest | None] = queue.Queue()
    outbox.put(outbound_service_pb2.ServeRequest(hello=outbound_service_pb2.Hello(provider=served.provider)))
    runner = _CallRunner(policy, served, threads, lambda answer: outbox.put(outbound_service_pb2.ServeRequest(act=answer)), tell)

    def messages() -> Iterator[outbound_service_pb2.ServeRequest]:
        while (message := outbox.get()) is not None:
            yield message

    at = client._current
    stream = client._channels[at].stream_stream(
        _SERVE,
        request_serializer=outbound_service_pb2.ServeRequest.SerializeToString,
        response_deserializer=outbound_service_pb2.ServeResponse.FromString,
    )(messages(), metadata=client.metadata())
    ended = threading.Event()

    def leave() -> None:
        while not ended.wait(0.1):
            if over.is_set():
                stream.cancel()
                return

    threading.Thread(target=leave, daemon=True).start()
    declaring: threading.Thread | None = None
    fault: list[LimberError] = []

    def declare() -> None:
        try:
            _declare(client, served, tell)
        except LimberError as error:
            fault.append(error)
            stream.cancel()

    try:
        for message in stream:
            kind = message.WhichOneof("message")
            if kind == "welcome":
                tell(f"serve: {client.addresses[at].url} sends calls for {served.model} as {served.provider}")
                if not declared:
                    declaring = threading.Thread(target=declare, daemon=True)
                    declaring.start()
            elif kind == "act":
                runner.accept(message.act)
            elif kind == "predict":
                error = policy_service_pb2.CallError(
                    code=policy_service_pb2.CALL_ERROR_CODE_INVALID_INPUT, message="this server supports only act"
                )
                outbox.put(outbound_service_pb2.ServeRequest(predict=outbound_service_pb2.PredictPart(call_id=message.predict.call_id, error=error)))
            elif kind == "ground":
                error = policy_service_pb2.CallError(
                    code=policy_service_pb2.CALL_ERROR_CODE_INVALID_INPUT, message="this server supports only act"
                )
                outbox.put(outbound_service_pb2.ServeRequest(ground=outbound_service_pb2.GroundAnswer(call_id=message.ground.call_id, error=error)))
    except grpc.RpcError as thrown:
        if not over.is_set() and not fault:
            raise of_rpc(thrown, f"serve at {client.addresses[at].url}") from None
    finally:
        ended.set()
        outbox.put(None)
        stream.cancel()
        # Answers can no longer be sent, so do not wait for a slow policy.
        threading.Thread(target=runner.end, daemon=True).start()
    if fault:
        raise fault[0]
    if declaring is not None:
        declaring.join(1)
    return declared or (declaring is not None and not declaring.is_alive())


_GET_PROVIDER = calls.Call(
    "SupplyService", "GetOwnProvider", supply_service_pb2.GetOwnProviderRequest, supply_service_pb2.GetOwnProviderResponse, repeatable=True
)
_REGISTER = calls.Call(
    "SupplyService", "RegisterProvider", supply_service_pb2.RegisterProviderRequest, supply_service_pb2.RegisterProviderResponse
)
_OFFERINGS = calls.Call(
    "SupplyService", "ListOfferings", supply_service_pb2.ListOfferingsRequest, supply_service_pb2.ListOfferingsResponse, repeatable=True
)
_DECLARE = calls.Call("SupplyService", "DeclareModel", supply_service_pb2.DeclareModelRequest, supply_service_pb2.DeclareModelResponse)
_VERIFY = calls.Call("SupplyService", "VerifyOffering", supply_service_pb2.VerifyOfferingRequest, supply_service_pb2.VerifyOfferingResponse)


def _register(client: Limber, served: Served, tell: Callable[[str], None]) -> None:
    try:
        client.call(_GET_PROVIDER, supply_service_pb2.GetOwnProviderRequest(provider=served.provider))
    except NotFoundError:
        client.call(_REGISTER, supply_service_pb2.RegisterProviderRequest(name=served.provider, regions=[served.region]))
        tell(f"serve: registered the provider {served.provider}")


def _reads(served: Served) -> input_contract_pb2.InputContract:
    """Returns the declared part of the policy's input contract."""
    reads = input_contract_pb2.InputContract()
    if served.cameras:
        cameras = [input_contract_pb2.CameraSpec(name=camera, required=True) for camera in served.cameras]
        reads.cameras.CopyFrom(input_contract_pb2.CameraSpecs(cameras=cameras))
    if served.state_names:
        reads.proprio.add(names=served.state_names)
    return reads


def _declare(client: Limber, served: Served, tell: Callable[[str], None]) -> None:
    """Declares the model and runs its probe, unless it is already declared."""
    request = supply_service_pb2.ListOfferingsRequest(provider=served.provider, model=served.model)
    there = [each for each in client.call(_OFFERINGS, request).data if each.runtime == "limber-outbound"]
    usable = (supply_pb2.OFFERING_STATUS_LIVE, supply_pb2.OFFERING_STATUS_DEGRADED, supply_pb2.OFFERING_STATUS_PAUSED)
    if any(each.status in usable for each in there):
        tell(f"serve: {served.model} is already declared")
        return
    declaration = supply_service_pb2.DeclareModelRequest(
        provider=served.provider,
        model=served.model,
        runtime="limber-outbound",
        endpoint=f"outbound://{served.provider}",
        hardware=served.hardware,
        contracts=[contract_pb2.CONTRACT_ACT],
        action_spaces=[served.action_space],
        region=served.region,
        price_per_action_step=served.price_per_action_step,
        max_horizon=served.max_horizon,
        dt_ms=served.dt_ms,
    )
    if served.action_dim is not None:
        declaration.action_dim = served.action_dim
    # The gateway cannot query a dialing server for its input contract.
    if served.cameras or served.state_names:
        declaration.input.CopyFrom(_reads(served))
    offering = client.call(_DECLARE, declaration).offering
    answer = client.call(_VERIFY, supply_service_pb2.VerifyOfferingRequest(offering_id=offering.id), timeout_s=180)
    for check in answer.report.checks:
        word = "passed" if check.passed else ("FAILED" if check.required else "warned")
        tell(f"serve:   {word}  {check.name}: {check.detail}")
        if check.next_step:
            tell(f"serve:           {check.next_step}")
    if not answer.report.passed:
        failed = ", ".join(check.name for check in answer.report.checks if check.required and not check.passed)
        raise BadInput(f"the gateway's probe rejected {served.model}: {failed}; fix the policy and serve it again")
    tell(f"serve: {served.model} is live")


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


class PolicyServer:
    """Serves the same policy on a listening port: `limber.policy.v1` over gRPC. Use it as a context manager.

    It is meant for gateways in the same network and for tests. `limber probe grpc://host:port` checks it.
    """

    def __init__(self, policy: Policy, served: Served, *, listen: str = "127.0.0.1:0", threads: int = 1) -> None:
        self._policy = policy
        self.served = served
        self._listen = listen
        self._threads = threads
        self.address = ""
        self._server: grpc.Server | None = None

    def __enter__(self) -> PolicyServer:
        self._server = grpc.server(futures.ThreadPoolExecutor(16), options=channel_options())
        self._server.add_generic_rpc_handlers((_PolicyHandlers(self),))
        port = self._server.add_insecure_port(self._listen)
        if port == 0:
            raise ConnectionFailed(f"cannot listen on {self._listen}; the port might be in use")
        self.address = f"grpc://{self._listen.rpartition(':')[0]}:{port}"
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.stop(0.2).wait()

    def wait(self) -> None:
        """Blocks until the process ends."""
        assert self._server is not None
        self._server.wait_for_termination()

    def Describe(self, request: policy_service_pb2.DescribeRequest, context: grpc.ServicerContext) -> policy_service_pb2.DescribeResponse:
        served = self.served
        return policy_service_pb2.DescribeResponse(
            models=[
                policy_service_pb2.ServedModel(
                    slug=served.model,
                    name=served.model,
                    contracts=[contract_pb2.CONTRACT_ACT],
                    action_spaces=[served.action_space],
                    action_dim=served.action_dim or 0,
                    dt_ms=served.dt_ms,
                    max_horizon=served.max_horizon,
                    cameras=served.cameras,
                    proprio_names=served.state_names,
                    input=_reads(served) if served.cameras or served.state_names else None,
                )
            ]
        )

    def Act(self, requests: Iterator[policy_service_pb2.ActRequest], context: grpc.ServicerContext) -> Iterator[policy_service_pb2.ActResponse]:
        outbox: queue.Queue[policy_service_pb2.ActResponse | None] = queue.Queue()
        runner = _CallRunner(self._policy, self.served, self._threads, outbox.put, _to_stderr)

        def read() -> None:
            with contextlib.suppress(Exception):
                for request in requests:
                    runner.accept(request)
            # A caller that has sent all its calls still waits for the answers.
            runner.end()
            runner.join()
            outbox.put(None)

        threading.Thread(target=read, daemon=True).start()
        while (answer := outbox.get()) is not None:
            yield answer


class _PolicyHandlers(grpc.GenericRpcHandler):  # type: ignore[misc]
    def __init__(self, server: PolicyServer) -> None:
        self._server = server

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        if handler_call_details.method == "/limber.policy.v1.PolicyService/Describe":
            return grpc.unary_unary_rpc_method_handler(
                self._server.Describe,
                policy_service_pb2.DescribeRequest.FromString,
                policy_service_pb2.DescribeResponse.SerializeToString,
            )
        if handler_call_details.method == "/limber.policy.v1.PolicyService/Act":
            return grpc.stream_stream_rpc_method_handler(
                self._server.Act, policy_service_pb2.ActRequest.FromString, policy_service_pb2.ActResponse.SerializeToString
            )
        return None
