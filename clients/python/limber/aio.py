"""Asyncio client for the gateway. It has the methods of `Limber` as coroutines; frames and episodes are async iterators.

    async with AsyncLimber("http://127.0.0.1:8080", "lmb_sk_…") as client:
        chunk = await client.act("reference/potential-nav", [0, 0, 0, 2, 0, 0], action_space="base_twist_2d")
        async for frame in client.predict("acme/dream", {"images": {"front": image}}, horizon=8):
            ...
"""

from __future__ import annotations

import asyncio
import inspect
import os
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import grpc
import grpc.aio
import numpy as np
from numpy.typing import ArrayLike, NDArray

from limber import _answers as answers
from limber import _calls as calls
from limber import _requests as requests
from limber._answers import Chunk, Episode, Evaluation, Grounding, Model, Plan, Prediction, Publication, Ranked, Stop, Usage
from limber._calls import Call, addresses, channel_options, check_key, credentials, wait_before
from limber._frames import ImageLike
from limber._gen.limber.v1 import account_service_pb2, evaluation_service_pb2, publication_service_pb2, robot_service_pb2
from limber._requests import Sensed, StateMap
from limber.client import PUBLISH_TIMEOUT_S, RETRIES, TIMEOUT_S, Limber
from limber.errors import BadInput, ConnectionFailed, EvaluationFailed, of_rpc
from limber.loop import Loop, Outcome

Q = TypeVar("Q")
A = TypeVar("A")


class AsyncLimber:
    """A gateway client for asyncio. The methods have the arguments and rules of `limber.Limber`."""

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
        self._opened: list[grpc.aio.Channel] = []
        self._current = 0
        self._sync: Limber | None = None

    def __repr__(self) -> str:
        return f"AsyncLimber({self.addresses[0].url!r}, key …{self._key[-4:]})"

    async def __aenter__(self) -> AsyncLimber:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes all connections."""
        for channel in self._opened:
            await channel.close()
        if self._sync is not None:
            self._sync.close()

    @property
    def _channels(self) -> list[grpc.aio.Channel]:
        # A gRPC channel belongs to the event loop that is running at its creation.
        if not self._opened:
            for address in self.addresses:
                self._opened.append(
                    grpc.aio.secure_channel(address.target, credentials(), options=channel_options())
                    if address.tls
                    else grpc.aio.insecure_channel(address.target, options=channel_options())
                )
        return self._opened

    def _metadata(self, idempotency_key: str | None = None) -> tuple[tuple[str, str], ...]:
        more = (("idempotency-key", idempotency_key),) if idempotency_key else ()
        return (("authorization", f"Bearer {self._key}"), *more)

    async def call(
        self, call: Call[Q, A], request: Q, *, timeout_s: float | None = None, idempotency_key: str | None = None
    ) -> A:
        """Makes one unary call, with the retries that are safe for it."""
        until = time.monotonic() + (timeout_s if timeout_s is not None else self.timeout_s)
        retries = max(self.retries, len(self.addresses) - 1)
        if call.idempotent and idempotency_key is None and retries > 0:
            idempotency_key = uuid.uuid4().hex
        attempts = 0
        while True:
            at = self._current
            try:
                answer: A = await self._channels[at].unary_unary(
                    call.path,
                    request_serializer=call.request.SerializeToString,  # type: ignore[attr-defined]
                    response_deserializer=call.answer.FromString,  # type: ignore[attr-defined]
                )(request, timeout=max(0.001, until - time.monotonic()), metadata=self._metadata(idempotency_key))
                return answer
            except grpc.RpcError as thrown:
                error = of_rpc(thrown, f"{call.name} at {self.addresses[at].url}")
            attempts += 1
            if isinstance(error, ConnectionFailed) and self._current == at:
                self._current = (at + 1) % len(self.addresses)
            wait = wait_before(attempts, error, call, retries)
            if wait is None or time.monotonic() + wait >= until:
                raise error from None
            await asyncio.sleep(wait)

    async def stream(self, call: Call[Q, A], request: Q, timeout_s: float | None = None) -> AsyncIterator[A]:
        """Yields the responses of a server-streaming call. Ending the iteration cancels the call."""
        at = self._current
        answer = self._channels[at].unary_stream(
            call.path,
            request_serializer=call.request.SerializeToString,  # type: ignore[attr-defined]
            response_deserializer=call.answer.FromString,  # type: ignore[attr-defined]
        )(request, timeout=timeout_s, metadata=self._metadata())
        try:
            async for each in answer:
                yield each
        except grpc.RpcError as thrown:
            error = of_rpc(thrown, f"{call.name} at {self.addresses[at].url}")
            if isinstance(error, ConnectionFailed) and self._current == at:
                self._current = (at + 1) % len(self.addresses)
            raise error from None
        finally:
            answer.cancel()

    async def act(
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
        """Requests one action chunk; see `Limber.act`."""
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
        answer = await self.call(calls.ACT, request, timeout_s=timeout_s, idempotency_key=idempotency_key)
        return answers.chunk_of(answer, horizon)

    async def predict(
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
    ) -> AsyncIterator[Prediction]:
        """Requests future frames and yields each one when it arrives; see `Limber.predict`."""
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
        async for event in self.stream(calls.PREDICT_STREAM, request, timeout_s if timeout_s is not None else self.timeout_s):
            if event.HasField("frame"):
                yield answers.prediction_of(event.frame)

    async def ground(
        self,
        observation: Sensed,
        instruction: str,
        *,
        model: str | None = None,
        provider: Mapping[str, Any] | None = None,
        timeout_s: float | None = None,
    ) -> Grounding:
        """Locates an instruction in the images of an observation; see `Limber.ground`."""
        request = requests.ground(observation, instruction, model, provider)
        return answers.grounding_of(await self.call(calls.GROUND, request, timeout_s=timeout_s))

    async def preview(
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
        """Shows how a request would be routed; see `Limber.preview`."""
        shared = requests.common(
            model, models=models, preference=preference, provider=provider, seed=seed, preset=preset, metadata=None
        )
        request = requests.preview(contract, horizon, action_space, shared)
        return answers.plan_of(await self.call(calls.PREVIEW, request, timeout_s=timeout_s))

    async def evaluate(
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
    ) -> AsyncEvaluation:
        """Evaluates a policy in a scenario; see `Limber.evaluate`."""
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
        return AsyncEvaluation(self, answers.evaluation_of((await self.call(calls.EVALUATE, request)).evaluation))

    async def evaluation(self, job_id: str) -> Evaluation:
        """Returns the current state of an evaluation."""
        request = evaluation_service_pb2.GetEvaluationRequest(job_id=job_id)
        return answers.evaluation_of((await self.call(calls.GET_EVALUATION, request)).evaluation)

    async def publish(
        self,
        evaluation_id: str | None = None,
        *,
        comparison_id: str | None = None,
        title: str = "",
        dry_run: bool = False,
        timeout_s: float = PUBLISH_TIMEOUT_S,
    ) -> Publication:
        """Publishes a completed evaluation or comparison; see `Limber.publish`."""
        request = requests.publish(evaluation_id, comparison_id, title, dry_run)
        return answers.publication_of((await self.call(calls.CREATE_PUBLICATION, request, timeout_s=timeout_s)).publication)

    async def publications(self) -> AsyncIterator[Publication]:
        """Yields the organization's publications; see `Limber.publications`."""
        request = publication_service_pb2.ListPublicationsRequest()
        while True:
            page = await self.call(calls.LIST_PUBLICATIONS, request)
            for each in page.data:
                yield answers.publication_of(each)
            if not page.has_more or not page.next_cursor:
                return
            request = publication_service_pb2.ListPublicationsRequest(cursor=page.next_cursor)

    async def publication(self, publication_id: str) -> dict[str, Any]:
        """Returns the signed document of a publication; see `Limber.publication`."""
        request = publication_service_pb2.GetPublicationRequest(publication_id=publication_id)
        return answers.document_of((await self.call(calls.GET_PUBLICATION, request)).document)

    async def withdraw(self, publication_id: str, *, reason: str = "") -> Publication:
        """Withdraws a publication; see `Limber.withdraw`."""
        request = requests.make(publication_service_pb2.WithdrawPublicationRequest, publication_id=publication_id, reason=reason)
        return answers.publication_of((await self.call(calls.WITHDRAW_PUBLICATION, request)).publication)

    async def leaderboard(self, scenario: str, *, action_space: str | None = None) -> list[Ranked]:
        """Returns the published policies of a scenario; see `Limber.leaderboard`."""
        request = requests.make(publication_service_pb2.GetLeaderboardRequest, scenario=scenario, action_space=action_space)
        return [answers.ranked_of(each) for each in (await self.call(calls.GET_LEADERBOARD, request)).data]

    async def stop(
        self, robot: str | None = None, *, session: str | None = None, everything: bool = False, reason: str = ""
    ) -> Stop:
        """Emergency stop; see `Limber.stop`."""
        return answers.stop_of((await self.call(calls.STOP_ROBOTS, requests.stop(robot, session, everything, reason))).stop)

    async def release(
        self,
        robot: str | None = None,
        *,
        session: str | None = None,
        stop_id: str | None = None,
        everything: bool = False,
    ) -> Stop:
        """Releases a stop, by its id or by the robot or session that it names; see `Limber.release`."""
        request = requests.release(robot, session, stop_id, everything)
        return answers.stop_of((await self.call(calls.RELEASE_ROBOTS, request)).stop)

    async def stops(self, *, released: bool = False) -> list[Stop]:
        """Returns the newest stops of the organization, at most 50."""
        request = robot_service_pb2.ListRobotStopsRequest(released=released)
        return [answers.stop_of(each) for each in (await self.call(calls.LIST_STOPS, request)).data]

    async def models(
        self, query: str | None = None, *, contract: str | None = None, action_space: str | None = None
    ) -> AsyncIterator[Model]:
        """Yields the models of the catalog, page by page."""
        offset = 0
        while True:
            page = await self.call(calls.LIST_MODELS, requests.models(query, contract, action_space, 200, offset))
            for each in page.data:
                yield answers.model_of(each)
            offset += len(page.data)
            if offset >= page.total or not page.data:
                return

    async def usage(self, *, limit: int = 50) -> list[Usage]:
        """Returns the newest billed calls, at most `limit`, from 1 to 500."""
        if not 1 <= limit <= 500:
            raise BadInput(f"limit must be between 1 and 500, got {limit}")
        page = await self.call(calls.LIST_USAGE, account_service_pb2.ListUsageRequest(limit=limit))
        return [Usage(each.request_id, each.created, each.model, each.units, each.cost_usd) for each in page.data]

    def loop(self, model: str, **options: Any) -> AsyncLoop:
        """Creates a control loop of one robot; see `limber.Loop`. `tick` never blocks, so a coroutine can call it directly."""
        if self._sync is None:
            self._sync = Limber([each.url for each in self.addresses], self._key)
        return AsyncLoop(self._sync, model, **options)


class AsyncLoop(Loop):
    """A control loop whose callbacks can be coroutines."""

    async def arun(
        self,
        observe: Callable[[], Any],
        step: Callable[[NDArray[np.float64]], Any],
        *,
        max_seconds: float,
    ) -> Outcome:
        """Runs the loop like `Loop.run`. `observe` and `step` can be functions or coroutines. If the task is cancelled, the robot holds first."""
        if not (isinstance(max_seconds, (int, float)) and np.isfinite(max_seconds) and max_seconds > 0):
            raise BadInput(f"max_seconds must be how long the robot may move by itself, in seconds, got {max_seconds!r}")
        self.start()
        began = due = self._clock()
        ended, why = "max_seconds", "failed"
        try:
            while True:
                if self._interrupted:
                    ended = why = "interrupted"
                    break
                if self._clock() - began >= max_seconds:
                    why = "over"
                    break
                sensed = await _given(observe())
                if sensed is None:
                    ended = why = "done"
                    break
                tick = self.tick(sensed)
                if tick.action is None:
                    await self._hold_robot_async(tick.hold, step)
                else:
                    await _given(step(tick.action))
                due += self._period
                late = self._clock() - due
                if late > self._period:
                    due += late
                await asyncio.sleep(min(max(0.0, -late), self._period))
        finally:
            await self._hold_robot_async(why, step)
            if not self._entered:
                await asyncio.to_thread(self.close)
        return Outcome(ended, self._clock() - began, self.stats)

    async def _hold_robot_async(self, why: str, step: Callable[[NDArray[np.float64]], Any]) -> None:
        if callable(self._hold):
            await _given(self._hold(why))
        elif self._hold is not None:
            await _given(step(np.array(self._hold, dtype=np.float64)))


async def _given(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


class AsyncEvaluation:
    """A running evaluation: iterate over its episodes with `async for`, then `await result()`."""

    POLL_S = 2.0

    def __init__(self, client: AsyncLimber, first: Evaluation) -> None:
        self._client = client
        self._last = first

    @property
    def id(self) -> str:
        """The job id, such as `job_01J…`."""
        return self._last.id

    async def __aiter__(self) -> AsyncIterator[Episode]:
        seen: set[int] = set()
        while not self._has_ended():
            try:
                request = evaluation_service_pb2.WatchEvaluationRequest(job_id=self.id)
                async for event in self._client.stream(calls.WATCH_EVALUATION, request):
                    if event.HasField("done"):
                        self._last = answers.evaluation_of(event.done)
                    elif event.episode.index not in seen:
                        seen.add(event.episode.index)
                        yield answers.episode_of(event.episode)
                if self._has_ended():
                    return
            except ConnectionFailed:
                pass
            await asyncio.sleep(self.POLL_S)
            self._last = await self._client.evaluation(self.id)

    def _has_ended(self) -> bool:
        return self._last.status in ("completed", "failed", "cancelled", "expired")

    async def result(self, tell: Callable[[Episode], Awaitable[None] | None] | None = None) -> Evaluation:
        """Waits for the end and returns the scores. Raises `EvaluationFailed` if there are none."""
        async for episode in self:
            if tell is not None:
                await _given(tell(episode))
        if self._last.status != "completed":
            raise EvaluationFailed(f"the evaluation {self.id} is {self._last.status}: {self._last.error or 'no cause was reported'}")
        return self._last

    async def cancel(self) -> Evaluation:
        """Cancels the evaluation. Finished episodes keep their records."""
        request = evaluation_service_pb2.CancelEvaluationRequest(job_id=self.id)
        self._last = answers.evaluation_of((await self._client.call(calls.CANCEL_EVALUATION, request)).evaluation)
        return self._last
