"""The synchronous client for a gateway."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import grpc
from numpy.typing import ArrayLike

from limber import _answers as answers
from limber import _calls as calls
from limber import _requests as requests
from limber._answers import Chunk, Episode, Evaluation, Grounding, Model, Plan, Prediction, Publication, Ranked, Stop, Usage
from limber._calls import Address, Call, addresses, channel_options, check_key, credentials, wait_before
from limber._frames import ImageLike
from limber._gen.limber.v1 import account_service_pb2, evaluation_service_pb2, publication_service_pb2, robot_service_pb2
from limber._requests import Sensed, StateMap
from limber.errors import BadInput, ConnectionFailed, EvaluationFailed, LimberError, of_rpc

if TYPE_CHECKING:
    from limber.loop import Loop

Q = TypeVar("Q")
A = TypeVar("A")
T = TypeVar("T")

#: Default time limit of a call with all its attempts, in seconds.
TIMEOUT_S = 30.0
#: The same for publications: their controls may run first.
PUBLISH_TIMEOUT_S = 120.0
#: Default number of retries, where a retry is safe.
RETRIES = 2


def open_channel(address: Address) -> grpc.Channel:
    """Opens a channel to one address."""
    if address.tls:
        return grpc.secure_channel(address.target, credentials(), options=channel_options())
    return grpc.insecure_channel(address.target, options=channel_options())


class Limber:
    """A client for a gateway, authenticated by one key.

        with Limber("http://127.0.0.1:8080", "lmb_sk_…") as client:
            chunk = client.act("reference/potential-nav", [0, 0, 0, 2, 0, 0], action_space="base_twist_2d")
            chunk.steps                             # float64, steps x dimensions

    `url` is the gateway's address, or a list of its replicas' addresses, which are tried in turn. `LIMBER_URL` and `LIMBER_KEY` in the
    environment are the defaults for `url` and `key`. Threads can share a client.

    Calls that are safe to repeat are retried up to `retries` times within their time limit. Act, predict and evaluate calls carry a generated
    idempotency key, so that a retry returns the same answer and is charged once.
    """

    def __init__(
        self,
        url: str | Sequence[str] | None = None,
        key: str | None = None,
        *,
        timeout_s: float = TIMEOUT_S,
        retries: int = RETRIES,
    ) -> None:
        self.addresses = addresses(url if url is not None else os.environ.get("LIMBER_URL", "http://127.0.0.1:8080"))
        self._key = check_key(key if key is not None else os.environ.get("LIMBER_KEY", ""))
        self.timeout_s = timeout_s
        self.retries = retries
        self._channels = [open_channel(address) for address in self.addresses]
        self._current = 0

    def __repr__(self) -> str:
        return f"Limber({self.addresses[0].url!r}, key …{self._key[-4:]})"

    def __enter__(self) -> Limber:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes all connections."""
        for channel in self._channels:
            channel.close()

    # Making calls

    def metadata(self, idempotency_key: str | None = None) -> list[tuple[str, str]]:
        """Returns the metadata of every call."""
        more = [("idempotency-key", idempotency_key)] if idempotency_key else []
        return [("authorization", f"Bearer {self._key}"), *more]

    def call(
        self, call: Call[Q, A], request: Q, *, timeout_s: float | None = None, idempotency_key: str | None = None
    ) -> A:
        """Makes one unary call, with the retries that are safe for it. Raises the exceptions of `limber.errors`."""
        until = time.monotonic() + (timeout_s if timeout_s is not None else self.timeout_s)
        retries = max(self.retries, len(self._channels) - 1)
        if call.idempotent and idempotency_key is None and retries > 0:
            idempotency_key = uuid.uuid4().hex
        attempts = 0
        while True:
            at = self._current
            try:
                answer: A = self._channels[at].unary_unary(
                    call.path,
                    request_serializer=call.request.SerializeToString,  # type: ignore[attr-defined]
                    response_deserializer=call.answer.FromString,  # type: ignore[attr-defined]
                )(request, timeout=max(0.001, until - time.monotonic()), metadata=self.metadata(idempotency_key))
                return answer
            except grpc.RpcError as thrown:
                error = of_rpc(thrown, f"{call.name} at {self.addresses[at].url}")
            attempts += 1
            if isinstance(error, ConnectionFailed):
                self.next_address(at)
            wait = wait_before(attempts, error, call, retries)
            if wait is None or time.monotonic() + wait >= until:
                raise error from None
            time.sleep(wait)

    def next_address(self, failed: int) -> None:
        """Switches to the replica after the one that failed."""
        if self._current == failed:
            self._current = (failed + 1) % len(self._channels)

    def stream(self, call: Call[Q, A], request: Q, timeout_s: float | None = None) -> Iterator[A]:
        """Yields the responses of a server-streaming call. Ending the iteration cancels the call."""
        at = self._current
        answer = self._channels[at].unary_stream(
            call.path,
            request_serializer=call.request.SerializeToString,  # type: ignore[attr-defined]
            response_deserializer=call.answer.FromString,  # type: ignore[attr-defined]
        )(request, timeout=timeout_s, metadata=self.metadata())
        try:
            yield from answer
        except grpc.RpcError as thrown:
            error = of_rpc(thrown, f"{call.name} at {self.addresses[at].url}")
            if isinstance(error, ConnectionFailed):
                self.next_address(at)
            raise error from None
        finally:
            answer.cancel()

    # Inference

    def act(
        self,
        model: str,
        observation: Sensed,
        *,
        instruction: str | None = None,
        action_space: str | None = None,
        horizon: int | None = None,
        models: Sequence[str] | None = None,
        preference: str | None = None,
        provider: Mapping[str, Any] | None = None,
        robot: str | None = None,
        goal_image: ImageLike | None = None,
        seed: int | None = None,
        temperature: float | None = None,
        embodiment: str | None = None,
        preset: str | None = None,
        metadata: Mapping[str, str] | None = None,
        return_prediction: bool = False,
        idempotency_key: str | None = None,
        timeout_s: float | None = None,
    ) -> Chunk:
        """Requests one action chunk.

        `observation` is an `Observation`, a mapping of its fields, a row of numbers (only the state), or a list of these, oldest first.
        `action_space` is a requirement; by default the model's only one, or `ee_delta_6d_grip`. `horizon` is the exact number of rows, from 1 to 256. `provider` has the
        fields of the schema's ProviderPreferences, such as `{"max_latency_ms": 200, "sort": "latency"}`. `robot` is the robot's name, which an
        emergency stop refers to. Raises `NoRouteAvailable` with `suggestions` if no offering satisfies the constraints.
        """
        shared = requests.common(
            model, models=models, preference=preference, provider=provider, seed=seed, preset=preset, metadata=metadata
        )
        request = requests.act(
            model,
            observation,
            instruction=instruction,
            action_space=action_space,
            horizon=horizon,
            goal_image=goal_image,
            temperature=temperature,
            embodiment=embodiment,
            robot=robot,
            return_prediction=return_prediction,
            shared=shared,
        )
        answer = self.call(calls.ACT, request, timeout_s=timeout_s, idempotency_key=idempotency_key)
        return answers.chunk_of(answer, horizon)

    def predict(
        self,
        model: str,
        observation: Sensed,
        *,
        instruction: str | None = None,
        horizon: int | None = None,
        actions: ArrayLike | None = None,
        action_space: str | None = None,
        fps: float | None = None,
        resolution: str | None = None,
        models: Sequence[str] | None = None,
        preference: str | None = None,
        provider: Mapping[str, Any] | None = None,
        seed: int | None = None,
        preset: str | None = None,
        metadata: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> Iterator[Prediction]:
        """Requests future frames and yields each one when it arrives.

        `horizon` is the exact number of frames. `actions` are the robot's planned actions in `action_space`, one row for each frame.
        `resolution` is `WIDTHxHEIGHT`. Received frames are charged; ending the iteration cancels the remaining ones. The call is never retried.
        """
        shared = requests.common(
            model, models=models, preference=preference, provider=provider, seed=seed, preset=preset, metadata=metadata
        )
        request = requests.predict(
            observation,
            instruction=instruction,
            horizon=horizon,
            actions=actions,
            action_space=action_space,
            fps=fps,
            resolution=resolution,
            shared=shared,
        )
        return self._frames(request, timeout_s)

    def _frames(self, request: Any, timeout_s: float | None) -> Iterator[Prediction]:
        for event in self.stream(calls.PREDICT_STREAM, request, timeout_s if timeout_s is not None else self.timeout_s):
            if event.HasField("frame"):
                yield answers.prediction_of(event.frame)

    def ground(
        self,
        observation: Sensed,
        instruction: str,
        *,
        model: str | None = None,
        provider: Mapping[str, Any] | None = None,
        timeout_s: float | None = None,
    ) -> Grounding:
        """Locates an instruction in the images of an observation. Coordinates range from 0 to 1, from the top left."""
        request = requests.ground(observation, instruction, model, provider)
        return answers.grounding_of(self.call(calls.GROUND, request, timeout_s=timeout_s))

    def preview(
        self,
        model: str,
        *,
        contract: str | None = None,
        horizon: int | None = None,
        action_space: str | None = None,
        models: Sequence[str] | None = None,
        preference: str | None = None,
        provider: Mapping[str, Any] | None = None,
        seed: int | None = None,
        preset: str | None = None,
        timeout_s: float | None = None,
    ) -> Plan:
        """Returns how a request would be routed and what it would cost. Runs nothing and costs nothing."""
        shared = requests.common(
            model, models=models, preference=preference, provider=provider, seed=seed, preset=preset, metadata=None
        )
        request = requests.preview(contract, horizon, action_space, shared)
        return answers.plan_of(self.call(calls.PREVIEW, request, timeout_s=timeout_s))

    def loop(self, model: str, **options: Any) -> Loop:
        """Creates a control loop of one robot on this gateway. See `limber.Loop` for the options."""
        from limber.loop import Loop

        return Loop(self, model, **options)

    # Evaluation

    def evaluate(
        self,
        policy: str,
        scenario: str,
        episodes: int,
        *,
        seed: int | None = None,
        action_space: str | None = None,
        horizon: int | None = None,
        replan_steps: int | None = None,
        realtime: bool = False,
        pictures: bool | None = None,
        camera_map: Mapping[str, str] | None = None,
        state_map: StateMap | None = None,
        external: bool = False,
        idempotency_key: str | None = None,
    ) -> RunningEvaluation:
        """Evaluates a policy in a scenario. Iterate over the result to receive each episode when it ends.

        `policy` is a model of the gateway, or a server address such as `ws://…` or `grpc://…`. With `external`, a runner of the organization runs
        the episodes (`limber.gym`). `camera_map` has the scenario's camera for each camera that the policy reads; `state_map` the names of the
        numbers that it reads, in its order, or the scenario's name for each of the policy's. Images are sent if the policy declares cameras, unless
        `pictures` says otherwise.
        """
        request = requests.evaluate(
            policy,
            scenario,
            episodes,
            seed=seed,
            action_space=action_space,
            horizon=horizon,
            replan_steps=replan_steps,
            realtime=realtime,
            pictures=pictures,
            camera_map=camera_map,
            state_map=state_map,
            external=external,
            idempotency_key=idempotency_key or uuid.uuid4().hex,
        )
        return RunningEvaluation(self, answers.evaluation_of(self.call(calls.EVALUATE, request).evaluation))

    def evaluation(self, job_id: str) -> Evaluation:
        """Returns the current state of an evaluation."""
        request = evaluation_service_pb2.GetEvaluationRequest(job_id=job_id)
        return answers.evaluation_of(self.call(calls.GET_EVALUATION, request).evaluation)

    # Publications

    def publish(
        self,
        evaluation_id: str | None = None,
        *,
        comparison_id: str | None = None,
        title: str = "",
        dry_run: bool = False,
        timeout_s: float = PUBLISH_TIMEOUT_S,
    ) -> Publication:
        """Publishes a completed evaluation or comparison as a signed document. Repeated calls return the same publication.

        With `dry_run`, only returns what would become public, in `discloses`. The first publication of a scenario takes some seconds, because
        controls are run.
        """
        request = requests.publish(evaluation_id, comparison_id, title, dry_run)
        return answers.publication_of(self.call(calls.CREATE_PUBLICATION, request, timeout_s=timeout_s).publication)

    def publications(self) -> Iterator[Publication]:
        """Yields the organization's publications, newest first, page by page; withdrawn ones too."""
        request = publication_service_pb2.ListPublicationsRequest()
        while True:
            page = self.call(calls.LIST_PUBLICATIONS, request)
            yield from map(answers.publication_of, page.data)
            if not page.has_more or not page.next_cursor:
                return
            request = publication_service_pb2.ListPublicationsRequest(cursor=page.next_cursor)

    def publication(self, publication_id: str) -> dict[str, Any]:
        """Returns the signed document of any organization's publication, or the signed notice of its withdrawal."""
        request = publication_service_pb2.GetPublicationRequest(publication_id=publication_id)
        return answers.document_of(self.call(calls.GET_PUBLICATION, request).document)

    def withdraw(self, publication_id: str, *, reason: str = "") -> Publication:
        """Withdraws a publication: a signed notice with the reason replaces its document."""
        request = requests.make(publication_service_pb2.WithdrawPublicationRequest, publication_id=publication_id, reason=reason)
        return answers.publication_of(self.call(calls.WITHDRAW_PUBLICATION, request).publication)

    def leaderboard(self, scenario: str, *, action_space: str | None = None) -> list[Ranked]:
        """Returns the published policies of a scenario, best first; equal ranks are ties."""
        request = requests.make(publication_service_pb2.GetLeaderboardRequest, scenario=scenario, action_space=action_space)
        return [answers.ranked_of(each) for each in self.call(calls.GET_LEADERBOARD, request).data]

    # Robots

    def stop(
        self, robot: str | None = None, *, session: str | None = None, everything: bool = False, reason: str = ""
    ) -> Stop:
        """Orders an emergency stop. No replica sends actions to the stopped robots until the stop is released."""
        request = requests.stop(robot, session, everything, reason)
        return answers.stop_of(self.call(calls.STOP_ROBOTS, request).stop)

    def release(
        self,
        robot: str | None = None,
        *,
        session: str | None = None,
        stop_id: str | None = None,
        everything: bool = False,
    ) -> Stop:
        """Releases a stop, by its id or by the robot or session that it names. Replicas apply the release a moment later."""
        return answers.stop_of(self.call(calls.RELEASE_ROBOTS, requests.release(robot, session, stop_id, everything)).stop)

    def stops(self, *, released: bool = False) -> list[Stop]:
        """Returns the newest stops of the organization, at most 50. With `released`, also returns released stops."""
        request = robot_service_pb2.ListRobotStopsRequest(released=released)
        return [answers.stop_of(each) for each in self.call(calls.LIST_STOPS, request).data]

    # Catalog and usage

    def models(
        self, query: str | None = None, *, contract: str | None = None, action_space: str | None = None
    ) -> Iterator[Model]:
        """Yields the models of the catalog, page by page; the best match first if `query` is given."""
        offset = 0
        while True:
            page = self.call(calls.LIST_MODELS, requests.models(query, contract, action_space, 200, offset))
            yield from map(answers.model_of, page.data)
            offset += len(page.data)
            if offset >= page.total or not page.data:
                return

    def usage(self, *, limit: int = 50) -> list[Usage]:
        """Returns the newest billed calls, at most `limit`, from 1 to 500."""
        if not 1 <= limit <= 500:
            raise BadInput(f"limit must be between 1 and 500, got {limit}")
        page = self.call(calls.LIST_USAGE, account_service_pb2.ListUsageRequest(limit=limit))
        return [Usage(each.request_id, each.created, each.model, each.units, each.cost_usd) for each in page.data]


class RunningEvaluation:
    """A running evaluation: iterate over its episodes, then call `result()`."""

    #: Seconds between two polls after the episode stream broke.
    POLL_S = 2.0

    def __init__(self, client: Limber, first: Evaluation) -> None:
        self._client = client
        self._last = first

    @property
    def id(self) -> str:
        """The job id, such as `job_01J…`."""
        return self._last.id

    def __iter__(self) -> Iterator[Episode]:
        seen: set[int] = set()
        while not self._has_ended():
            try:
                request = evaluation_service_pb2.WatchEvaluationRequest(job_id=self.id)
                for event in self._client.stream(calls.WATCH_EVALUATION, request):
                    if event.HasField("done"):
                        self._last = answers.evaluation_of(event.done)
                    elif event.episode.index not in seen:
                        # A reopened stream starts with the episodes that have already ended.
                        seen.add(event.episode.index)
                        yield answers.episode_of(event.episode)
                if self._has_ended():
                    return
            except ConnectionFailed:
                pass
            time.sleep(self.POLL_S)
            self._last = self._client.evaluation(self.id)

    def _has_ended(self) -> bool:
        return self._last.status in ("completed", "failed", "cancelled", "expired")

    def result(self, tell: Callable[[Episode], None] | None = None) -> Evaluation:
        """Waits for the end and returns the scores. Calls `tell` for each episode. Raises `EvaluationFailed` if there are no scores."""
        for episode in self:
            if tell is not None:
                tell(episode)
        if self._last.status != "completed":
            raise EvaluationFailed(f"the evaluation {self.id} is {self._last.status}: {self._last.error or 'no cause was reported'}")
        return self._last

    def cancel(self) -> Evaluation:
        """Cancels the evaluation. Finished episodes keep their records."""
        request = evaluation_service_pb2.CancelEvaluationRequest(job_id=self.id)
        self._last = answers.evaluation_of(self._client.call(calls.CANCEL_EVALUATION, request).evaluation)
        return self._last


__all__ = ["Limber", "LimberError", "RunningEvaluation"]
