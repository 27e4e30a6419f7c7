"""A fake gateway for tests. It runs in the test's process, with the real messages, and needs no network and no account.

    with FakeGateway() as gateway:
        client = limber.Limber(gateway.url, gateway.key)
        chunk = client.act("test/policy", [0.0, 1.0], action_space="base_twist_2d", horizon=4)

It answers with the actions of `policy`, and with what a test requests: refusals, delays, holds, broken connections. It does not route, bill or
apply limits, so a real gateway might refuse a call that the fake accepts.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any

import grpc
import numpy as np
from numpy.typing import ArrayLike, NDArray

from limber._calls import channel_options
from limber._gen.google.rpc import error_details_pb2, status_pb2
from limber._gen.limber.v1 import (
    action_pb2,
    contract_pb2,
    control_loop_pb2,
    error_pb2,
    evaluation_pb2,
    evaluation_service_pb2,
    grounding_pb2,
    inference_pb2,
    inference_service_pb2,
    job_pb2,
    observation_pb2,
    plan_pb2,
    prediction_pb2,
    reason_pb2,
    registry_pb2,
    registry_service_pb2,
    robot_pb2,
    robot_service_pb2,
    route_pb2,
    runner_service_pb2,
)
from limber.errors import BY_CODE, Suggestion

#: Returns rows of actions, one for each step of the horizon, or one row for all steps.
Policy = Callable[[observation_pb2.Observation, int], ArrayLike]

#: The smallest valid JPEG: one gray pixel.
_PIXEL = bytes.fromhex(
    "ffd8ffe000104a46494600010100000100010000ffdb004300080606070605080707070909080a0c140d0c0b0b0c1912130f141d1a1f1e1d1a1c1c20242e2720"
    "222c231c1c2837292c30313434341f27393d38323c2e333432ffc0000b080001000101011100ffc4001f0000010501010101010100000000000000000102030405"
    "060708090a0bffc400b5100002010303020403050504040000017d01020300041105122131410613516107227114328191a1082342b1c11552d1f02433627282"
    "090a161718191a25262728292a3435363738393a434445464748494a535455565758595a636465666768696a737475767778797a838485868788898a92939495"
    "969798999aa2a3a4a5a6a7a8a9aab2b3b4b5b6b7b8b9bac2c3c4c5c6c7c8c9cad2d3d4d5d6d7d8d9dae1e2e3e4e5e6e7e8e9eaf1f2f3f4f5f6f7f8f9faffda00"
    "08010100003f00fbd3ffd9"
)


def still(observation: observation_pb2.Observation, horizon: int) -> NDArray[np.float64]:
    """Returns two zeros for each step."""
    return np.zeros((horizon, 2))


class FakeGateway:
    """A fake gateway in this process, on its own port. Use it as a context manager.

    `policy(observation, horizon)` returns the actions: rows of shape (horizon, dimensions), or one row for all steps.
    """

    def __init__(self, policy: Policy = still, *, dt_ms: int = 50, key: str = "lmb_sk_test") -> None:
        self.policy = policy
        self.dt_ms = dt_ms
        self.key = key
        self.url = ""
        #: Delay of each answer, in seconds.
        self.delay_s = 0.0
        #: Every received message, in order.
        self.received: list[Any] = []
        self.model = "test/policy"
        #: Maximum age of a loop observation, in milliseconds.
        self.deadline_ms = 500
        #: The model's `InputContract` that loops receive; None sends none.
        self.input: Any = None
        #: External evaluations, in the order in which runners claim them; see `queue`.
        self.evaluations: list[FakeEvaluation] = []
        self._refusals: list[tuple[str, str, tuple[Suggestion, ...], float | None]] = []
        self._holds: list[str] = []
        self._stopped: dict[str, robot_pb2.RobotStop] = {}
        self._streams: set[_FakeLoop] = set()
        self._answers: dict[str, Any] = {}
        self._lock = threading.Lock()
        self._server: grpc.Server | None = None
        self._port = 0

    # Controls for tests

    def refuse(
        self, code: str, message: str = "the test says no", *, suggestions: tuple[Suggestion, ...] = (), retry_after_s: float | None = None
    ) -> None:
        """Refuses the next call with this reason, such as `no_route_available`. Several refusals are used in order."""
        if code not in BY_CODE:
            raise ValueError(f"unknown reason {code!r}")
        with self._lock:
            self._refusals.append((code, message, suggestions, retry_after_s))

    def hold(self, reason: str, times: int = 1) -> None:
        """Answers the next loop observations with a hold for this reason, such as `late`."""
        control_loop_pb2.HoldReason.Value(f"HOLD_REASON_{reason.upper()}")
        with self._lock:
            self._holds.extend([reason] * times)

    def end_loops(self, code: str, message: str = "the test says no") -> None:
        """Ends every open loop with this refusal, like a revoked key or an emergency stop."""
        for stream in list(self._streams):
            stream.end(code, message)

    def drop(self) -> None:
        """Breaks every connection, like a killed gateway, and listens again on the same port."""
        assert self._server is not None
        self._server.stop(0).wait()
        self._listen()

    def put(self, name: str, answer: Any) -> None:
        """Sets the answer to a call, such as `Act`: a message, or bytes that are sent unchanged. Applies until the next `put` for the call."""
        self._answers[name] = answer

    def queue(self, scenario: str, episodes: int, **claim: Any) -> FakeEvaluation:
        """Queues an external evaluation of this gateway's model. `claim` has fields of EvaluationClaim, such as `seed` and `replan_steps`, and the
        evaluation's `policy`, `action_space` and `metadata`."""
        queued = FakeEvaluation(f"job_{len(self.evaluations) + 1}", scenario, episodes, {"policy": self.model, **claim})
        self.evaluations.append(queued)
        return queued

    # Lifecycle

    def __enter__(self) -> FakeGateway:
        self._listen()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.stop(0).wait()

    def _listen(self) -> None:
        self._server = grpc.server(futures.ThreadPoolExecutor(32), options=[*channel_options(), ("grpc.so_reuseport", 0)])
        self._server.add_generic_rpc_handlers((_Handlers(self),))
        until = time.monotonic() + 5
        while True:
            try:
                port = self._server.add_insecure_port(f"127.0.0.1:{self._port}")
            except RuntimeError:
                port = 0
            if port != 0:
                break
            if time.monotonic() > until:
                raise RuntimeError(f"port {self._port} is in use")
            time.sleep(0.02)
        self._port = port
        self.url = f"http://127.0.0.1:{port}"
        self._server.start()

    # Answers

    def admit(self, name: str, context: grpc.ServicerContext) -> None:
        """Refuses a call with the wrong key, and calls that the test refuses."""
        key = dict(context.invocation_metadata()).get("authorization", "")
        public = name in ("ListModels", "GetModel")
        if not public and key != f"Bearer {self.key}":
            abort(context, "invalid_api_key", "the key is malformed or unknown")
        with self._lock:
            refusal = self._refusals.pop(0) if self._refusals else None
        if refusal is not None:
            code, message, suggestions, retry_after = refusal
            abort(context, code, message, suggestions, retry_after)
        if self.delay_s > 0:
            time.sleep(self.delay_s)

    def steps(self, observation: observation_pb2.Observation, horizon: int) -> list[action_pb2.ActionStep]:
        """Returns the policy's rows as messages, unchecked, so that tests can send invalid rows."""
        rows = np.asarray(self.policy(observation, horizon), dtype=np.float64)
        if rows.ndim == 1:
            rows = np.tile(rows, (horizon, 1))
        return [action_pb2.ActionStep(values=row) for row in rows.tolist()]

    def route(self) -> route_pb2.Route:
        return route_pb2.Route(model=self.model, provider="fake", offering_id="off_fake", simulated=True)

    def next_hold(self) -> str | None:
        with self._lock:
            return self._holds.pop(0) if self._holds else None

    def stop_of(self, robot_id: str, session: str) -> robot_pb2.RobotStop | None:
        for subject in (robot_id, session, "*"):
            if subject and subject in self._stopped:
                return self._stopped[subject]
        return None

    def Act(self, request: inference_service_pb2.ActRequest, context: grpc.ServicerContext) -> Any:
        if stop := self.stop_of(request.robot_id, request.provider.session_id):
            abort(context, "robot_stopped", f"an emergency stop is active: {stop.reason}")
        horizon = request.horizon or 16
        steps = self.steps(request.observations[-1], horizon)
        return inference_service_pb2.ActResponse(
            id="req_fake",
            object="world.action",
            created=int(time.time()),
            model=self.model,
            action=action_pb2.Action(space=request.action_space or "ee_delta_6d_grip", steps=steps, dt_ms=self.dt_ms),
            route=self.route(),
            usage=inference_pb2.ActUsage(action_steps=len(steps)),
            chunk_id="chunk_fake",
            valid_until_ms=len(steps) * self.dt_ms,
        )

    def PredictStream(self, request: inference_service_pb2.PredictStreamRequest, context: grpc.ServicerContext) -> Iterator[Any]:
        yield inference_service_pb2.PredictStreamResponse(
            route=inference_service_pb2.PredictStarted(id="req_fake", model=self.model, provider="fake", simulated=True)
        )
        frames = request.predict.horizon or 16
        for index in range(frames):
            frame = prediction_pb2.PredictedFrame(
                index=index, t_ms=(index + 1) * self.dt_ms, width=1, height=1, format=observation_pb2.IMAGE_FORMAT_JPEG, data=_PIXEL
            )
            yield inference_service_pb2.PredictStreamResponse(frame=frame)
        done = inference_service_pb2.PredictDone(
            id="req_fake", frames=frames, finish_reason=inference_service_pb2.FINISH_REASON_COMPLETE, route=self.route()
        )
        yield inference_service_pb2.PredictStreamResponse(done=done)

    def Ground(self, request: inference_service_pb2.GroundRequest, context: grpc.ServicerContext) -> Any:
        return inference_service_pb2.GroundResponse(
            id="req_fake",
            object="world.grounding",
            model=self.model,
            points=[grounding_pb2.GroundedPoint(x=0.5, y=0.5, label=request.instruction, confidence=1)],
            route=route_pb2.DirectRoute(model=self.model, provider="fake", simulated=True),
        )

    def PreviewRoutes(self, request: inference_service_pb2.PreviewRoutesRequest, context: grpc.ServicerContext) -> Any:
        step = plan_pb2.PlanStep(rank=1, offering_id="off_fake", model=self.model, provider="fake")
        return inference_service_pb2.PreviewRoutesResponse(object="route_plan", considered=1, plan=[step])

    def ListModels(self, request: registry_service_pb2.ListModelsRequest, context: grpc.ServicerContext) -> Any:
        model = registry_pb2.Model(id=self.model, object="model", name="Test policy", contracts=[contract_pb2.CONTRACT_ACT], providers=["fake"])
        return registry_service_pb2.ListModelsResponse(object="list", data=[model][request.offset :], total=1, limit=100)

    def GetModel(self, request: registry_service_pb2.GetModelRequest, context: grpc.ServicerContext) -> Any:
        if f"{request.owner}/{request.name}" != self.model:
            abort(context, "model_not_found", "model not found")
        return registry_service_pb2.GetModelResponse(model=registry_pb2.Model(id=self.model, object="model"))

    def _claimed(self, request: Any, context: grpc.ServicerContext) -> FakeEvaluation:
        """The evaluation of a request, if its epoch is the newest."""
        found = next((each for each in self.evaluations if each.id == request.job_id), None)
        if found is None:
            abort(context, "not_found", "evaluation not found")
        assert found is not None
        if found.epoch != request.epoch or found.status != "running":
            abort(context, "claim_lost", "this claim no longer holds the evaluation")
        return found

    def ClaimEvaluation(self, request: runner_service_pb2.ClaimEvaluationRequest, context: grpc.ServicerContext) -> Any:
        with self._lock:
            for each in self.evaluations:
                if each.status == "queued" and (not request.scenarios or each.scenario in request.scenarios):
                    return runner_service_pb2.ClaimEvaluationResponse(claim=each.claimed(request.harness, request.lease_s))
        return runner_service_pb2.ClaimEvaluationResponse()

    def RenewClaim(self, request: runner_service_pb2.RenewClaimRequest, context: grpc.ServicerContext) -> Any:
        held = self._claimed(request, context)
        held.renewals += 1
        return runner_service_pb2.RenewClaimResponse(stop=held.stop)

    def ReportEpisode(self, request: runner_service_pb2.ReportEpisodeRequest, context: grpc.ServicerContext) -> Any:
        held = self._claimed(request, context)
        held.reports[request.index] = request
        return runner_service_pb2.ReportEpisodeResponse(stop=held.stop)

    def FinishEvaluation(self, request: runner_service_pb2.FinishEvaluationRequest, context: grpc.ServicerContext) -> Any:
        held = self._claimed(request, context)
        held.status = "cancelled" if held.stop else "failed" if request.HasField("error") else "completed"
        held.error = request.error
        return runner_service_pb2.FinishEvaluationResponse(evaluation=held.message())

    def StopRobots(self, request: robot_service_pb2.StopRobotsRequest, context: grpc.ServicerContext) -> Any:
        subject = request.robot_id or request.session_id or "*"
        stop = self._stopped.setdefault(
            subject, robot_pb2.RobotStop(id=f"stop_{len(self._stopped) + 1}", object="robot_stop", subject=subject, reason=request.reason, durable=True)
        )
        for stream in list(self._streams):
            if subject in (stream.robot_id, stream.session, "*"):
                stream.end("robot_stopped", f"an emergency stop is active: {request.reason}")
        return robot_service_pb2.StopRobotsResponse(stop=stop)

    def ReleaseRobots(self, request: robot_service_pb2.ReleaseRobotsRequest, context: grpc.ServicerContext) -> Any:
        subject = request.robot_id or request.session_id or "*"
        by_id = next((name for name, stop in self._stopped.items() if stop.id == request.stop_id), subject)
        stop = self._stopped.pop(by_id, None)
        if stop is None:
            abort(context, "not_found", "no active stop found")
        assert stop is not None
        stop.released = int(time.time())
        return robot_service_pb2.ReleaseRobotsResponse(stop=stop)

    def ListRobotStops(self, request: robot_service_pb2.ListRobotStopsRequest, context: grpc.ServicerContext) -> Any:
        return robot_service_pb2.ListRobotStopsResponse(object="list", data=list(self._stopped.values()))

    def ActStream(self, requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
        stream = _FakeLoop(self, requests, context)
        self._streams.add(stream)
        try:
            yield from stream.answers()
        finally:
            self._streams.discard(stream)


class _FakeLoop:
    """A loop of the fake gateway. Observations are answered in turn; if several are queued, only the newest."""

    def __init__(self, gateway: FakeGateway, requests: Iterator[Any], context: grpc.ServicerContext) -> None:
        self._gateway = gateway
        self._context = context
        self._inbox: queue.Queue[Any] = queue.Queue()
        self.robot_id = self.session = ""
        self._requests = requests
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        try:
            for message in self._requests:
                self._gateway.received.append(message)
                self._inbox.put(message)
        except Exception:  # noqa: BLE001 - the caller closed the connection
            pass
        self._inbox.put(None)

    def end(self, code: str, message: str) -> None:
        self._inbox.put((code, message))

    def answers(self) -> Iterator[Any]:
        gateway = self._gateway
        response = inference_service_pb2.ActStreamResponse
        first = self._inbox.get()
        if first is None:
            return
        if isinstance(first, tuple) or not first.HasField("open"):
            abort(self._context, "malformed_body", "the first message must be `open`")
        opening = first.open
        self.robot_id, self.session = opening.robot_id, opening.provider.session_id
        if stop := gateway.stop_of(self.robot_id, self.session):
            abort(self._context, "robot_stopped", f"an emergency stop is active: {stop.reason}")
        episode, horizon = opening.episode or 1, opening.horizon or 16
        chunks = holds = 0
        yield response(
            opened=control_loop_pb2.LoopOpened(
                id="loop_fake", route=gateway.route(), dt_ms=gateway.dt_ms, horizon=horizon, deadline_ms=opening.provider.deadline_ms or gateway.deadline_ms, episode=episode, input=gateway.input
            )
        )
        while True:
            message = self._inbox.get()
            if isinstance(message, tuple):
                code, text = message
                yield response(ended=control_loop_pb2.LoopEnded(code=code, chunks=chunks, holds=holds))
                abort(self._context, code, text)
            if message is None or message.HasField("close"):
                yield response(ended=control_loop_pb2.LoopEnded(chunks=chunks, holds=holds))
                return
            if message.HasField("reset"):
                episode = message.reset.episode or episode + 1
                yield response(episode=control_loop_pb2.LoopEpisode(episode=episode))
                continue
            if not message.HasField("observation"):
                continue
            seen = message.observation
            if gateway.delay_s > 0:
                time.sleep(gateway.delay_s)
            if hold := gateway.next_hold():
                holds += 1
                reason = control_loop_pb2.HoldReason.Value(f"HOLD_REASON_{hold.upper()}")
                yield response(hold=control_loop_pb2.LoopHold(step=seen.step, reason=reason, episode=episode, detail="the test says so"))
                continue
            steps = gateway.steps(seen.observations[-1], horizon)
            chunks += 1
            chunk = control_loop_pb2.LoopChunk(
                chunk_id=f"chunk_{chunks}",
                action=action_pb2.Action(space=opening.action_space, steps=steps, dt_ms=gateway.dt_ms),
                start_step=seen.step,
                valid_until_step=seen.step + len(steps),
                usage=inference_pb2.ActUsage(action_steps=len(steps)),
                episode=episode,
            )
            if seen.observations[-1].HasField("t_ms"):
                chunk.observation_time = seen.observations[-1].t_ms
            yield response(chunk=chunk)


class FakeEvaluation:
    """An external evaluation of the fake gateway, which has no clock: its lease expires only by `expire`."""

    def __init__(self, id: str, scenario: str, episodes: int, claim: dict[str, Any]) -> None:
        self.id = id
        self.scenario = scenario
        self.episodes = episodes
        self._claim = claim
        #: `queued`, `running`, `completed`, `failed` or `cancelled`.
        self.status = "queued"
        self.epoch = 0
        self.harness = ""
        #: The reports by index of the episode.
        self.reports: dict[int, runner_service_pb2.ReportEpisodeRequest] = {}
        #: Number of renewals of the lease.
        self.renewals = 0
        #: True if runners must stop, like after a cancellation.
        self.stop = False
        self.error = evaluation_pb2.EvaluationError()

    def expire(self) -> None:
        """Ends the lease: the runner that holds it loses the claim, and the next one continues."""
        self.epoch += 1
        self.status = "queued"

    def message(self) -> evaluation_pb2.Evaluation:
        policy = evaluation_pb2.EvaluatedPolicy(endpoint=self._claim["policy"], action_space=self._claim.get("action_space", ""))
        message = evaluation_pb2.Evaluation(
            id=self.id,
            status=getattr(job_pb2, f"JOB_STATUS_{self.status.upper()}"),
            policy=policy,
            scenario=evaluation_pb2.EvaluatedScenario(id=self.scenario),
            progress=evaluation_pb2.EvaluationProgress(completed=len(self.reports), total=self.episodes),
            error=self.error,
        )
        message.metadata.update(self._claim.get("metadata", {}))
        return message

    def claimed(self, harness: str, lease_s: int) -> runner_service_pb2.EvaluationClaim:
        """Claims it for a runner."""
        self.epoch += 1
        self.status, self.harness = "running", harness
        rules = {"seed": 0, "horizon": 4, "replan_steps": 4, "policy_timeout_ms": 5000, "lease_s": lease_s}
        rules.update({name: value for name, value in self._claim.items() if name not in ("policy", "action_space", "metadata")})
        still = [index for index in range(self.episodes) if index not in self.reports]
        return runner_service_pb2.EvaluationClaim(epoch=self.epoch, evaluation=self.message(), open_episodes=still, **rules)


#: The supported calls: request types, and whether requests or answers are streams.
_METHODS: dict[str, tuple[Any, bool, bool]] = {
    "/limber.v1.InferenceService/Act": (inference_service_pb2.ActRequest, False, False),
    "/limber.v1.InferenceService/ActStream": (inference_service_pb2.ActStreamRequest, True, True),
    "/limber.v1.InferenceService/PredictStream": (inference_service_pb2.PredictStreamRequest, False, True),
    "/limber.v1.InferenceService/Ground": (inference_service_pb2.GroundRequest, False, False),
    "/limber.v1.InferenceService/PreviewRoutes": (inference_service_pb2.PreviewRoutesRequest, False, False),
    "/limber.v1.RegistryService/ListModels": (registry_service_pb2.ListModelsRequest, False, False),
    "/limber.v1.RobotService/StopRobots": (robot_service_pb2.StopRobotsRequest, False, False),
    "/limber.v1.RobotService/ReleaseRobots": (robot_service_pb2.ReleaseRobotsRequest, False, False),
    "/limber.v1.RobotService/ListRobotStops": (robot_service_pb2.ListRobotStopsRequest, False, False),
    "/limber.v1.RegistryService/GetModel": (registry_service_pb2.GetModelRequest, False, False),
    "/limber.v1.RunnerService/ClaimEvaluation": (runner_service_pb2.ClaimEvaluationRequest, False, False),
    "/limber.v1.RunnerService/RenewClaim": (runner_service_pb2.RenewClaimRequest, False, False),
    "/limber.v1.RunnerService/ReportEpisode": (runner_service_pb2.ReportEpisodeRequest, False, False),
    "/limber.v1.RunnerService/FinishEvaluation": (runner_service_pb2.FinishEvaluationRequest, False, False),
    "/limber.v1.EvaluationService/Evaluate": (evaluation_service_pb2.EvaluateRequest, False, False),
}


class _Handlers(grpc.GenericRpcHandler):  # type: ignore[misc]
    def __init__(self, gateway: FakeGateway) -> None:
        self._gateway = gateway

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        found = _METHODS.get(handler_call_details.method)
        if found is None:
            return None
        request, takes_stream, gives_stream = found
        name = handler_call_details.method.rpartition("/")[2]
        gateway = self._gateway

        def write(message: Any) -> bytes:
            return message if isinstance(message, bytes) else bytes(message.SerializeToString())

        def unary(message: Any, context: grpc.ServicerContext) -> Any:
            gateway.received.append(message)
            gateway.admit(name, context)
            if name in gateway._answers:
                return gateway._answers[name]
            answer = getattr(gateway, name, None)
            if answer is None:
                abort(context, "not_found", f"the fake gateway does not implement {name}; set an answer with put()")
            assert answer is not None
            return answer(message, context)

        def stream(message: Any, context: grpc.ServicerContext) -> Iterator[Any]:
            if not takes_stream:
                gateway.received.append(message)
            gateway.admit(name, context)
            if name in gateway._answers:
                yield gateway._answers[name]
                return
            yield from getattr(gateway, name)(message, context)

        if takes_stream:
            return grpc.stream_stream_rpc_method_handler(stream, request.FromString, write)
        if gives_stream:
            return grpc.unary_stream_rpc_method_handler(stream, request.FromString, write)
        return grpc.unary_unary_rpc_method_handler(unary, request.FromString, write)


#: The gRPC code of each REST status.
_CODES = {
    401: grpc.StatusCode.UNAUTHENTICATED,
    402: grpc.StatusCode.FAILED_PRECONDITION,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    409: grpc.StatusCode.FAILED_PRECONDITION,
    422: grpc.StatusCode.INVALID_ARGUMENT,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    502: grpc.StatusCode.UNAVAILABLE,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
}


def abort(
    context: grpc.ServicerContext,
    code: str,
    message: str,
    suggestions: tuple[Suggestion, ...] = (),
    retry_after_s: float | None = None,
) -> None:
    """Refuses a call with the details that a gateway sends."""
    reason_pb2.Reason.Value(f"REASON_{code.upper()}")
    known = BY_CODE[code]
    grpc_code = _CODES.get(known.status, grpc.StatusCode.INTERNAL)
    status = status_pb2.Status(code=grpc_code.value[0], message=message)

    def add(detail: Any, kind: str) -> None:
        status.details.add(type_url=f"type.googleapis.com/{kind}", value=detail.SerializeToString())

    add(error_details_pb2.ErrorInfo(reason=code, domain="limber", metadata={"request_id": "req_fake"}), "google.rpc.ErrorInfo")
    if retry_after_s is not None:
        info = error_details_pb2.RetryInfo()
        info.retry_delay.seconds = int(retry_after_s)
        info.retry_delay.nanos = round((retry_after_s % 1) * 1e9)
        add(info, "google.rpc.RetryInfo")
    if suggestions:
        details = error_pb2.ErrorDetails()
        for each in suggestions:
            added = details.suggestions.add(field=each.field, admits=each.admits)
            if each.value is not None:
                added.value = each.value
            if each.change:
                added.change = each.change
        add(details, "limber.v1.ErrorDetails")
    context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
    context.abort(grpc_code, message)
