"""A robot's control loop: sends observations, receives action chunks, and returns an action or a hold at each control step."""

from __future__ import annotations

import contextlib
import math
import threading
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import grpc
import numpy as np
from numpy.typing import ArrayLike, NDArray

from limber import _calls as calls
from limber import _requests as requests
from limber._answers import Route, matrix, route_of
from limber._frames import FrameHint, ImageLike, Observation, as_observation, checked, copied, message_of, numbers
from limber._gen.limber.v1 import action_pb2, control_loop_pb2, inference_service_pb2, observation_pb2
from limber.core import LoopCore, percentile
from limber.errors import (
    BadInput,
    CallbackHung,
    ClockJumped,
    ConnectionFailed,
    LimberError,
    MalformedAnswer,
    ObservationRejected,
    Refused,
    of_rpc,
)

if TYPE_CHECKING:
    from limber.client import Limber

#: Result of a run's `observe`: an observation, a mapping of its fields, or a row of numbers; None ends the run.
Sensed = Observation | Mapping[str, Any] | ArrayLike | None
#: How a robot holds: a function of the reason, a fixed action, or None.
Hold = Callable[[str], None] | ArrayLike | None

_WORDS = control_loop_pb2.HoldReason.DESCRIPTOR.values_by_number
#: Delays between attempts to reopen a stream, in seconds.
_WAITS = (0.0, 0.05, 0.1, 0.2, 0.4, 0.8)
#: Seconds without a message, beyond an observation's deadline, until the connection counts as dead.
SILENCE_S = 2.0


#: Number of observations whose capture times are kept: more than the steps of any chunk.
_MOST_SENSED = 2048


@dataclass(frozen=True)
class Bounds:
    """Limits for every action, in the units of the action space. The gateway sends a hold instead of a chunk that exceeds them."""

    #: Lowest and highest value: one for all dimensions, or one for each dimension.
    lowest: ArrayLike | None = None
    highest: ArrayLike | None = None
    #: Largest change of any value between consecutive rows of a chunk.
    max_change: float | None = None
    #: Largest distance between a chunk's first row and the first values of `state`.
    max_start_jump: float | None = None

    def message(self) -> action_pb2.SafetyBounds:
        rows = {}
        for name in ("lowest", "highest"):
            value = getattr(self, name)
            if value is not None:
                rows[name] = numbers(np.atleast_1d(np.asarray(value)), f"bounds.{name}", 1024).tolist()
        if len(rows) == 2 and len(rows["lowest"]) == len(rows["highest"]):
            for i, (low, high) in enumerate(zip(rows["lowest"], rows["highest"])):
                if low > high:
                    raise BadInput(f"bounds.lowest[{i}] is {low:g}, above bounds.highest[{i}], {high:g}")
        for name in ("max_change", "max_start_jump"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value >= 0):
                raise BadInput(f"bounds.{name} must be 0 or more, got {value}")
        return requests.make(
            action_pb2.SafetyBounds, **rows, max_change=self.max_change, max_start_jump=self.max_start_jump
        )


@dataclass(frozen=True)
class Tick:
    """The decision for one control step."""

    #: The action to execute, one number for each dimension; None if the robot must hold.
    action: NDArray[np.float64] | None
    #: Why the robot must hold; empty if it must not.
    hold: str
    step: int
    episode: int


@dataclass(frozen=True)
class LoopStats:
    """Statistics of a loop."""

    #: Number of control steps, and how many of them had an action.
    steps: int
    actions: int
    #: Number of control steps without an action, by reason.
    holds: dict[str, int]
    #: Actions per second: in the last whole second, since the first action, and in the worst whole second.
    rate_hz: float
    average_hz: float
    worst_second_hz: float
    #: Age of observations when their chunks arrived, in milliseconds, over the last 1,000 chunks: the median and the 99th percentile.
    age_ms: float
    age_p99_ms: float
    chunks: int
    #: Number of received chunks that were not executed, by reason.
    refused_chunks: dict[str, int]
    #: Number of executed actions of an expired chunk. Always 0.
    stale_actions: int
    #: Number of observations that a newer one replaced before they were sent.
    replaced: int
    #: Number of opened streams; more than one if connections broke.
    streams: int
    cost_usd: float
    route: Route | None


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    #: `max_seconds`, `interrupted`, or `done` if `observe` returned None.
    ended: str
    seconds: float
    stats: LoopStats


@dataclass
class _Slot:
    """The newest observation, not yet sent."""

    step: int
    episode: int
    observation: Observation


@dataclass
class _Stream:
    """A stream of the loop."""

    #: The episode in which the stream was opened, and its current episode.
    first: int
    episode: int
    #: Start time, in seconds of the loop's clock.
    began: float
    over: bool = False
    opened: bool = False
    call: Any = None
    #: Send time of the first observation since the last received message; None if there is none.
    sent_at: float | None = None
    #: The instruction that was last sent on this stream.
    instruction: str | None = None
    #: True if the stream was ended because no message arrived for too long.
    silent: bool = False


@dataclass
class _Meter:
    """Counters of a loop."""

    steps: int = 0
    actions: int = 0
    holds: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    chunks: int = 0
    stale: int = 0
    replaced: int = 0
    streams: int = 0
    cost_usd: float = 0.0
    route: Route | None = None
    ages: deque[float] = field(default_factory=lambda: deque(maxlen=1000))
    first_at: float | None = None
    last_at: float = 0.0
    second: int = -1
    in_second: int = 0
    last_second: int = 0
    worst: int | None = None

    def tick(self, at: float, acted: bool, why: str) -> None:
        """Counts a control step at `at`, in seconds."""
        self.steps += 1
        if acted:
            self.actions += 1
            if self.first_at is None:
                self.first_at, self.second = at, -1
            self.last_at = at
        else:
            self.holds[why] += 1
        if self.first_at is None:
            return
        second = int(at - self.first_at)
        if second != self.second:
            if self.second >= 0:
                # Whole seconds without a control step had no action either.
                self.last_second = self.in_second if second == self.second + 1 else 0
                self.worst = self.last_second if self.worst is None else min(self.worst, self.last_second)
            self.second, self.in_second = second, 0
        self.in_second += acted

    def stats(self) -> LoopStats:
        lasted = self.last_at - self.first_at if self.first_at is not None else 0.0
        average = (self.actions - 1) / lasted if lasted > 0 else 0.0
        return LoopStats(
            steps=self.steps,
            actions=self.actions,
            holds=dict(self.holds),
            rate_hz=float(self.last_second) if self.worst is not None else average,
            average_hz=average,
            worst_second_hz=float(self.worst) if self.worst is not None else average,
            age_ms=percentile(self.ages, 0.5),
            age_p99_ms=percentile(self.ages, 0.99),
            chunks=self.chunks,
            refused_chunks=dict(self.refused),
            stale_actions=self.stale,
            replaced=self.replaced,
            streams=self.streams,
            cost_usd=self.cost_usd,
            route=self.route,
        )


class Loop:
    """A control loop of one robot.

        with client.loop("reference/potential-nav", action_space="base_twist_2d", rate_hz=50, hold=[0, 0]) as loop:
            loop.run(observe, step, max_seconds=30)

    `observe()` returns what the robot senses, and `step(action)` moves it. `hold` defines what the robot does without a valid action: a function
    of the reason, or a fixed action that is passed to `step`. Without `hold`, `step` is not called during a hold, so the robot must stop by
    itself when commands stop.

    A robot with its own loop calls `tick(observation)` instead, which returns at once with the action to execute or a reason to hold.

    `rate_hz` is the number of control steps per second. `deadline_ms` is the maximum age of an observation when its chunk arrives; the default
    is the duration of a chunk. `bounds` limits every action. `session` lets a restarted program resume its episode; the default is a new
    session. `finish_chunks=True` executes the remaining valid rows of a chunk after a hold for a missing chunk and while the connection is
    being reopened; without it, the robot stops at once.

    Broken connections are reopened, at the next of the client's addresses. A permanent error, such as a revoked key or an emergency stop,
    raises its exception from `run` and `tick`, and the robot holds.
    """

    def __init__(
        self,
        client: Limber,
        model: str,
        *,
        rate_hz: float,
        robot: str | None = None,
        action_space: str | None = None,
        horizon: int | None = None,
        bounds: Bounds | None = None,
        hold: Hold = None,
        instruction: str | None = None,
        deadline_ms: int | None = None,
        session: str | None = None,
        episode: int = 1,
        models: Sequence[str] | None = None,
        preference: str | None = None,
        provider: Mapping[str, Any] | None = None,
        seed: int | None = None,
        temperature: float | None = None,
        goal_image: ImageLike | None = None,
        embodiment: str | None = None,
        preset: str | None = None,
        metadata: Mapping[str, str] | None = None,
        frame_hints: Mapping[str, tuple[int, int]] | None = None,
        finish_chunks: bool = False,
        connect_timeout_s: float = 10.0,
        hang_s: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not (isinstance(rate_hz, (int, float)) and math.isfinite(rate_hz) and 0 < rate_hz <= 10_000):
            raise BadInput(f"rate_hz must be above 0 and at most 10,000, got {rate_hz!r}")
        self._client = client
        self._clock = clock
        self._period = 1.0 / rate_hz
        self._hold = hold if hold is None or callable(hold) else numbers(np.asarray(hold), "hold", 1024)
        self._connect_timeout_s = connect_timeout_s
        #: Time limit for a callback, in seconds.
        self._hang_s = hang_s if hang_s is not None else max(1.0, 20 * self._period)
        self.session = session or f"py-{uuid.uuid4().hex}"
        given = dict(provider or {})
        given.setdefault("session_id", self.session)
        if deadline_ms is not None:
            given["deadline_ms"] = deadline_ms
        shared = requests.common(
            model, models=models, preference=preference, provider=given, seed=seed, preset=preset, metadata=metadata
        )
        self._open = requests.make(
            control_loop_pb2.LoopOpen,
            **shared,
            instruction=instruction,
            goal_image=requests.goal_of(goal_image),
            action_space=action_space,
            horizon=horizon,
            temperature=temperature,
            bounds=bounds.message() if bounds is not None else None,
            robot_id=robot,
            embodiment=requests.embodiment_of(embodiment),
            episode=episode,
        )
        self._hints = {camera: FrameHint(*size) for camera, size in (frame_hints or {}).items()}
        self._own_hints = bool(self._hints)
        self._core = LoopCore(rate_hz, finish=finish_chunks, episode=episode)
        self._meter = _Meter()
        self._rows: NDArray[np.float64] = np.zeros((0, 0))
        self._until = 0
        #: The latest instruction.
        self._instruction = instruction
        #: Capture times of this episode's observations by step, in milliseconds of the loop's clock and not of the robot's.
        self._sensed: dict[int, float] = {}
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._slot: _Slot | None = None
        self._closing = False
        self._fatal: LimberError | None = None
        self._interrupted = False
        self._wake = threading.Event()
        self._stream: _Stream | None = None
        self._reader: threading.Thread | None = None
        self._rejected_detail = ""
        self._busy: tuple[str, float] | None = None
        self._runs = 0
        self._entered = False

    # Lifecycle

    def __enter__(self) -> Loop:
        self._entered = True
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Opens the stream. Otherwise, the first `tick` or `run` opens it."""
        with self._lock:
            if self._closing:
                raise BadInput("the loop is closed; create a new one")
            if self._reader is None:
                self._reader = threading.Thread(target=self._keep_open, name="limber-loop", daemon=True)
                self._reader.start()

    def close(self) -> None:
        """Ends the loop and cancels pending work. Chunks that arrived stay charged, and nothing else."""
        with self._lock:
            already, self._closing = self._closing, True
            self._core.stop("closed")
            self._changed.notify_all()
            reader = self._reader
        if already or reader is None or reader is threading.current_thread():
            return
        reader.join(1.0)
        stream = self._stream
        if reader.is_alive() and stream is not None and stream.call is not None:
            stream.call.cancel()
            reader.join(1.0)

    def interrupt(self, reason: str = "interrupted") -> None:
        """Ends the run, from any thread. The robot holds at its next control step, which follows at once. Nothing is raised."""
        with self._lock:
            self._interrupted = True
            self._core.stop(reason)
        self._wake.set()

    def reset(self, instruction: str | None = None) -> int:
        """Begins a new episode, from any thread, and returns its number. The previous episode's chunk is discarded."""
        with self._lock:
            episode = self._core.reset(self._clock() * 1000)
            self._slot = None
            self._sensed.clear()
            if instruction is not None:
                self._instruction = instruction
            self._changed.notify_all()
            return episode

    @property
    def stats(self) -> LoopStats:
        """Returns the current statistics."""
        with self._lock:
            return self._meter.stats()

    # Control steps

    def tick(self, observation: Sensed) -> Tick:
        """Passes what the robot senses and returns what it must do now. Never waits for the network.

        Call it once per control step. Arrays are copied, so buffers can be reused. Raises `BadInput` for an observation that cannot be sent. After
        the loop has ended, raises the error that ended it; the robot must hold then.
        """
        if observation is None:
            raise BadInput("tick needs an observation, got None")
        sensed = as_observation(observation)
        checked(sensed)
        if self._reader is None:
            self.start()
        with self._lock:
            try:
                now = self._time()
            except ClockJumped as error:
                self._fail(error)
                raise
            decision = self._core.tick(now * 1000)
            if decision.hold == "clock" and self._fatal is None:
                self._fail(ClockJumped("the clock went back; pass the loop a monotonic clock, such as time.monotonic"))
            if self._fatal is not None:
                self._meter.tick(now, False, decision.hold or "failed")
                raise self._fatal
            if sensed.instruction is not None:
                self._instruction = sensed.instruction
            if decision.send:
                own = copied(sensed)
                if own.t_ms is None:
                    own.t_ms = now * 1000
                self._sensed[decision.step] = now * 1000
                if len(self._sensed) > _MOST_SENSED:
                    del self._sensed[next(iter(self._sensed))]
                if self._slot is not None:
                    self._meter.replaced += 1
                self._slot = _Slot(decision.step, decision.episode, own)
                self._changed.notify_all()
            action = None
            if decision.row is not None:
                # LoopCore rules this out. The counter proves it.
                self._meter.stale += decision.step >= self._until
                action = self._rows[decision.row].copy()
            self._meter.tick(now, action is not None, decision.hold)
            self._check_silence(now)
            return Tick(action, decision.hold, decision.step, decision.episode)

    def run(
        self,
        observe: Callable[[], Sensed],
        step: Callable[[NDArray[np.float64]], object],
        *,
        max_seconds: float,
        isolate: bool = False,
    ) -> Outcome:
        """Runs the loop at its rate for `max_seconds`. There is no default, so each call states how long the robot may move by itself.

        Each control step calls `observe()`, then `step(action)` or `hold`. The run ends after `max_seconds`, by `interrupt()`, when `observe`
        returns None, or with an exception: of a callback, of a refusal by the gateway, or Ctrl-C. In every case the robot is told to hold before
        the method returns. A second run begins a new episode.

        If a callback takes longer than `hang_s`, another thread tells the robot to hold, and the run ends with `CallbackHung` when the callback
        returns. With `isolate=True`, callbacks run on their own thread, and the run ends even if a callback never returns.
        """
        if not (isinstance(max_seconds, (int, float)) and math.isfinite(max_seconds) and max_seconds > 0):
            raise BadInput(f"max_seconds must be how long the robot may move by itself, in seconds, got {max_seconds!r}")
        self.start()
        if self._runs > 0:
            self.reset()
        self._runs += 1
        done = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(done, step), name="limber-watch", daemon=True)
        watcher.start()
        try:
            if isolate:
                return self._run_isolated(observe, step, max_seconds)
            return self._run_here(observe, step, max_seconds)
        finally:
            done.set()
            if not self._entered:
                self.close()

    def _run_here(
        self, observe: Callable[[], Sensed], step: Callable[[NDArray[np.float64]], object], max_seconds: float
    ) -> Outcome:
        began = due = self._clock()
        ended = "max_seconds"
        why = "failed"
        try:
            while True:
                now = self._clock()
                if self._interrupted:
                    ended = why = "interrupted"
                    break
                if now - began >= max_seconds:
                    why = "over"
                    break
                sensed = self._in("observe", observe)
                if sensed is None:
                    ended = why = "done"
                    break
                tick = self.tick(sensed)
                if tick.action is None:
                    self._hold_robot(tick.hold, step)
                else:
                    action = tick.action
                    self._in("step", lambda: step(action))
                due += self._period
                late = self._clock() - due
                # After a pause, the next step is due now; missed steps are not made up.
                if late > self._period:
                    due += late
                # If the clock went back, the next step could be far in the future.
                self._wake.wait(min(max(0.0, -late), self._period))
        except KeyboardInterrupt:
            why = "interrupted"
            raise
        finally:
            self._busy = None
            self._hold_robot(why, step)
        return Outcome(ended, self._clock() - began, self.stats)

    def _run_isolated(
        self, observe: Callable[[], Sensed], step: Callable[[NDArray[np.float64]], object], max_seconds: float
    ) -> Outcome:
        over = threading.Event()
        results: list[Outcome | BaseException] = []

        def body() -> None:
            try:
                results.append(self._run_here(observe, step, max_seconds))
            except BaseException as error:  # noqa: BLE001 - raised again in the thread that called run
                results.append(error)
            over.set()

        threading.Thread(target=body, name="limber-run", daemon=True).start()
        try:
            while not over.wait(0.05):
                if isinstance(self._fatal, CallbackHung):
                    raise self._fatal
        except KeyboardInterrupt:
            self.interrupt()
            over.wait(self._hang_s)
            raise
        if isinstance(results[0], BaseException):
            raise results[0]
        return results[0]

    def _in(self, name: str, callback: Callable[[], Any]) -> Any:
        """Runs a callback and records its start time for the watchdog."""
        self._busy = (name, time.monotonic())
        try:
            return callback()
        finally:
            self._busy = None

    def _hold_robot(self, why: str, step: Callable[[NDArray[np.float64]], object]) -> None:
        if self._hold is None:
            return
        hold = self._hold
        if callable(hold):
            hold(why)
        else:
            step(np.array(hold, dtype=np.float64))

    def _watch(self, done: threading.Event, step: Callable[[NDArray[np.float64]], object]) -> None:
        """Tells the robot to hold if a callback does not return."""
        while not done.wait(self._hang_s / 4):
            busy = self._busy
            if busy is None or time.monotonic() - busy[1] < self._hang_s:
                continue
            name = busy[0]
            with self._lock:
                self._core.stop("hung")
                self._fail(
                    CallbackHung(f"{name} has not returned for {self._hang_s:g} s; the robot was told to hold. Check what the callback waits for")
                )
            with contextlib.suppress(Exception):
                self._hold_robot("hung", step)
            return

    def _time(self) -> float:
        now = self._clock()
        if not math.isfinite(now):
            raise ClockJumped(f"the clock returned {now}; pass the loop a clock that counts seconds, such as time.monotonic")
        return now

    # The network

    def _fail(self, error: LimberError) -> None:
        """Ends the loop with an error. The caller holds the lock."""
        if self._fatal is None:
            self._fatal = error
        self._core.stop(getattr(error, "code", "") or "failed")
        self._wake.set()
        self._changed.notify_all()

    def _check_silence(self, now: float) -> None:
        """Ends a stream on which the gateway is silent. The caller holds the lock."""
        stream = self._stream
        if stream is None or stream.call is None or stream.silent:
            return
        if not stream.opened:
            stream.silent = now - stream.began > self._connect_timeout_s
        elif stream.sent_at is not None:
            # The gateway answers each observation by its deadline, with a chunk or a hold.
            most = SILENCE_S + (self._core.deadline_ms / 1000 if math.isfinite(self._core.deadline_ms) else 10.0)
            stream.silent = now - stream.sent_at > most
        if stream.silent:
            stream.call.cancel()

    def _keep_open(self) -> None:
        """Keeps a stream open until the loop ends."""
        began = self._clock()
        opened_once = False
        failed = 0
        while not self._closing and self._fatal is None:
            at = self._client._current
            started = self._clock()
            error = self._run_stream(at)
            stream = self._stream
            opened = stream is not None and stream.opened
            opened_once = opened_once or opened
            with self._lock:
                self._stream = None
                self._core.lost(self._clock() * 1000)
                if self._closing or self._fatal is not None:
                    return
                if error is not None and not self._is_transient(error, opened):
                    self._fail(error)
                    return
                if not opened_once and self._clock() - began > self._connect_timeout_s:
                    self._fail(error or ConnectionFailed("the gateway did not open the loop"))
                    return
            # A stream that breaks right after it opened counts as a failed attempt.
            failed = 0 if opened and self._clock() - started > 1 else failed + 1
            self._client.next_address(at)
            # Try every address without a delay; pause only after all of them have failed.
            tried, in_round = divmod(failed, 1 if isinstance(error, Refused) else len(self._client.addresses))
            wait = 0.0 if in_round else _WAITS[min(tried, len(_WAITS) - 1)]
            if isinstance(error, Refused) and error.retry_after_s is not None:
                wait = max(wait, min(error.retry_after_s, 5.0))
            with self._changed:
                if wait > 0:
                    self._changed.wait_for(lambda: self._closing or self._fatal is not None, wait)

    @staticmethod
    def _is_transient(error: LimberError, opened: bool) -> bool:
        """Returns whether another stream might succeed."""
        if isinstance(error, Refused):
            return error.retryable
        # Middleboxes cut open streams in many ways, but a server whose stream never opened is not a gateway.
        return isinstance(error, ConnectionFailed) or (opened and isinstance(error, MalformedAnswer))

    def _run_stream(self, at: int) -> LimberError | None:
        """Runs one stream from start to end. Returns the error that ended it, or None."""
        doing = f"loop at {self._client.addresses[at].url}"
        with self._lock:
            stream = _Stream(self._core.episode, self._core.episode, self._clock())
            self._stream = stream
            self._meter.streams += 1
        try:
            call = self._client._channels[at].stream_stream(
                calls.ACT_STREAM.path,
                request_serializer=inference_service_pb2.ActStreamRequest.SerializeToString,
                response_deserializer=inference_service_pb2.ActStreamResponse.FromString,
            )(self._messages(stream), metadata=self._client.metadata())
            stream.call = call
            for answer in call:
                self._receive(stream, answer)
        except grpc.RpcError as thrown:
            if stream.silent:
                return ConnectionFailed(f"{doing}: the gateway accepted the connection but sends no messages")
            return of_rpc(thrown, doing)
        except LimberError as error:
            with self._lock:
                self._fail(MalformedAnswer(f"{doing}: {error}") if isinstance(error, MalformedAnswer) else error)
            return None
        except Exception as error:  # noqa: BLE001 - if the thread died silently, the robot would wait forever
            with self._lock:
                self._fail(MalformedAnswer(f"{doing}: {error!r}"))
            return None
        finally:
            with self._lock:
                stream.over = True
                self._changed.notify_all()
            if stream.call is not None:
                stream.call.cancel()
        return None

    def _messages(self, stream: _Stream) -> Iterator[inference_service_pb2.ActStreamRequest]:
        """Yields the messages of one stream. gRPC consumes them on its own thread."""
        opening = control_loop_pb2.LoopOpen()
        opening.CopyFrom(self._open)
        opening.episode = stream.first
        stream.instruction = self._instruction
        if stream.instruction is not None:
            opening.instruction = stream.instruction
        yield inference_service_pb2.ActStreamRequest(open=opening)
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: stream.over or self._closing or self._fatal is not None
                    # Before `opened` arrives, observations wait, and then the newest goes first.
                    or (self._slot is not None and stream.opened)
                    or self._core.episode > stream.episode
                )
                if stream.over:
                    return
                if self._closing or self._fatal is not None:
                    close = True
                    slot, reset = None, None
                else:
                    close = False
                    slot = self._slot if stream.opened else None
                    if slot is not None:
                        self._slot = None
                    reset = self._core.episode if self._core.episode > stream.episode else None
                    if reset is not None:
                        stream.episode = reset
                    # An observation that a newer one replaced might have carried the instruction.
                    instruction = self._instruction if self._instruction != stream.instruction else None
                    if reset is not None or slot is not None:
                        stream.instruction = self._instruction
                    hints = self._hints
            if close:
                yield inference_service_pb2.ActStreamRequest(close=control_loop_pb2.LoopClose())
                return
            if reset is not None:
                yield inference_service_pb2.ActStreamRequest(
                    reset=requests.make(control_loop_pb2.LoopReset, episode=reset, instruction=instruction)
                )
            if slot is None or slot.episode != stream.episode:
                continue
            try:
                message = message_of(slot.observation, hints)
            except LimberError as error:
                with self._lock:
                    self._fail(error)
                continue
            with self._lock:
                if stream.sent_at is None:
                    stream.sent_at = self._clock()
            yield inference_service_pb2.ActStreamRequest(
                observation=requests.make(
                    control_loop_pb2.LoopObservation,
                    step=slot.step,
                    observations=[message],
                    instruction=instruction if reset is None else None,
                )
            )

    def _receive(self, stream: _Stream, answer: inference_service_pb2.ActStreamResponse) -> None:
        kind = answer.WhichOneof("event")
        rows = matrix(answer.chunk.action.steps) if kind == "chunk" else None
        with self._lock:
            now = self._time()
            at = now * 1000
            stream.sent_at = None
            if kind == "opened":
                if answer.opened.episode not in (0, stream.first):
                    raise MalformedAnswer(f"the loop was opened in episode {answer.opened.episode}, expected {stream.first}")
                stream.opened = True
                self._core.opened(at, deadline_ms=answer.opened.deadline_ms or math.inf)
                self._meter.route = route_of(answer.opened.route)
                if not self._own_hints:
                    self._hints = hints_of(answer.opened)
                self._changed.notify_all()
            elif kind == "chunk" and rows is not None:
                self._receive_chunk(at, answer.chunk, rows)
            elif kind == "hold":
                word = _WORDS[answer.hold.reason].name if answer.hold.reason in _WORDS else ""
                reason = word.removeprefix("HOLD_REASON_").lower() or "unknown"
                if reason == "invalid_observation":
                    self._rejected_detail = answer.hold.detail
                self._core.hold(at, episode=answer.hold.episode, step=answer.hold.step, reason=reason)
                if self._core.over == "observation_rejected" and self._fatal is None:
                    self._fail(_rejection(self._rejected_detail))
            elif kind == "ended":
                self._core.ended(at, code=answer.ended.code)

    def _receive_chunk(self, at: float, chunk: control_loop_pb2.LoopChunk, rows: NDArray[np.float64]) -> None:
        # Measured with the loop's clock: the robot may timestamp its observations with another one.
        sensed = self._sensed.get(chunk.start_step)
        verdict = self._core.chunk(
            at,
            episode=chunk.episode,
            start_step=chunk.start_step,
            valid_until_step=chunk.valid_until_step,
            dt_ms=chunk.action.dt_ms,
            rows=len(rows),
            observation_time=sensed,
        )
        # Every received chunk is charged, executed or not. A replayed chunk was charged before.
        if not chunk.replayed:
            self._meter.cost_usd += chunk.usage.cost_usd
        if chunk.HasField("route"):
            self._meter.route = route_of(chunk.route)
        if verdict != "taken":
            self._meter.refused[verdict] += 1
            return
        self._meter.chunks += 1
        if sensed is not None:
            self._meter.ages.append(at - sensed)
        self._rows, self._until = rows, chunk.valid_until_step


def _rejection(detail: str) -> LimberError:
    cause = detail or "no cause was reported"
    if detail.startswith("t_ms"):
        return ClockJumped(f"the gateway holds because the robot's clock jumped: {cause}; pass the loop a monotonic clock")
    return ObservationRejected(f"the gateway cannot use the observations: {cause}")


#: Encodings in order of preference for camera arrays.
_ENCODINGS = (
    (observation_pb2.IMAGE_FORMAT_JPEG, "JPEG"),
    (observation_pb2.IMAGE_FORMAT_WEBP, "WEBP"),
    (observation_pb2.IMAGE_FORMAT_PNG, "PNG"),
)


def hints_of(opened: control_loop_pb2.LoopOpened) -> dict[str, FrameHint]:
    """Returns the image formats that the serving offering declares for its cameras, by camera name and alias."""
    hints: dict[str, FrameHint] = {}
    unnamed: set[FrameHint] = set()
    for camera in opened.input.cameras.cameras:
        encoding = next((word for number, word in _ENCODINGS if not camera.formats or number in camera.formats), "JPEG")
        hint = FrameHint(camera.width, camera.height, not camera.any_size, encoding)
        for name in (camera.name, *camera.aliases):
            hints[name] = hint
        if not camera.name:
            unnamed.add(hint)
    if len(unnamed) != 1:
        # Unnamed cameras are told apart by position, so none of them applies to another camera name.
        hints.pop("", None)
    return hints
