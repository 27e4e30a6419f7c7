"""A robot's control loop: observations go up when there is one, chunks come down, and at each control step there is an action or a hold."""

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

#: What `observe` of a run gives: an observation, a mapping of its fields, a row of numbers; None ends the run.
Sensed = Observation | Mapping[str, Any] | ArrayLike | None
#: What a robot does when it is to hold: a function of the reason, a fixed action, or nothing.
Hold = Callable[[str], None] | ArrayLike | None

_WORDS = control_loop_pb2.HoldReason.DESCRIPTOR.values_by_number
#: Seconds between two tries to open a stream again.
_WAITS = (0.0, 0.05, 0.1, 0.2, 0.4, 0.8)
#: Seconds beyond the deadline of an observation without a word, until the connection is taken to be dead.
SILENCE_S = 2.0


#: Observations of which it is known when they were sensed: more than any chunk lasts.
_MOST_SENSED = 2048


@dataclass(frozen=True)
class Bounds:
    """What no action may exceed, in the units of the action space. The gateway sends a hold in place of a chunk that does."""

    #: Lowest and highest value: one for all dimensions, or one for each.
    lowest: ArrayLike | None = None
    highest: ArrayLike | None = None
    #: Largest change of any value from one row of a chunk to the next.
    max_change: float | None = None
    #: Largest distance of a chunk's first row from the first values of `state`.
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
                raise BadInput(f"bounds.{name} is {value}; 0 or more")
        return requests.make(
            action_pb2.SafetyBounds, **rows, max_change=self.max_change, max_start_jump=self.max_start_jump
        )


@dataclass(frozen=True)
class Tick:
    """What to do at one control step."""

    #: The action that is due, one number for each dimension; None where the robot is to hold.
    action: NDArray[np.float64] | None
    #: Why it is to hold; empty where it is not.
    hold: str
    step: int
    episode: int


@dataclass(frozen=True)
class LoopStats:
    """How a loop does."""

    #: Control steps, and those among them with an action.
    steps: int
    actions: int
    #: Control steps without one, by reason.
    holds: dict[str, int]
    #: Actions per second: in the last whole second, since the first action, and in the worst whole second.
    rate_hz: float
    average_hz: float
    worst_second_hz: float
    #: How old observations were when their chunks came, in milliseconds, over the last thousand.
    age_ms: float
    age_p99_ms: float
    chunks: int
    #: Chunks that came and were not executed, by reason.
    refused_chunks: dict[str, int]
    #: Actions of a chunk whose time was over. Stays 0.
    stale_actions: int
    #: Observations that a newer one replaced before they were sent.
    replaced: int
    #: Streams that were opened; more than one where connections broke.
    streams: int
    cost_usd: float
    route: Route | None


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    #: `max_seconds`, `interrupted`, or `done` where `observe` gave None.
    ended: str
    seconds: float
    stats: LoopStats


@dataclass
class _Slot:
    """The newest observation that was not sent."""

    step: int
    episode: int
    observation: Observation


@dataclass
class _Stream:
    """One stream of the loop."""

    #: The episode that it was opened in, and the one that it is in.
    first: int
    episode: int
    #: When it was begun, in seconds of the loop's clock.
    began: float
    over: bool = False
    opened: bool = False
    call: Any = None
    #: When an observation was sent that nothing was heard after; None where something was.
    asked_at: float | None = None
    #: What the robot is to do, as it was said on this stream.
    instruction: str | None = None
    #: Nothing was heard for so long that it was ended.
    silent: bool = False


@dataclass
class _Meter:
    """Counts of a loop."""

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
        """A control step at `at`, in seconds."""
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

    `observe()` gives what the robot senses, `step(action)` moves it; `hold` is what it does when there is no valid action: a function of the
    reason, or a fixed action that goes to `step`. Without `hold`, `step` is not called while the robot is to hold, so it has to stop by
    itself when commands stay away.

    A robot with a loop of its own pulls instead: `tick(observation)` returns at once with the action that is due, or with a reason to hold.

    `rate_hz` is how often there is a control step. `deadline_ms` is how old an observation may be when its chunk comes; as long as a chunk
    lasts when absent. `bounds` is what no action may exceed. `session` lets a program that is started again go on in its episode; one of
    its own is made when absent. `finish_chunks=True` lets the valid rest of a chunk be executed after a hold for want of the next one, and
    while the connection is being opened again; without it the robot stops at once.

    Connections that break are opened again, on the next of the client's addresses. What cannot be mended, such as a key that was revoked
    or an emergency stop, raises its exception from `run` and `tick`, and the robot holds.
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
            raise BadInput(f"rate_hz is {rate_hz!r}; above 0, and 10,000 at most")
        self._client = client
        self._clock = clock
        self._period = 1.0 / rate_hz
        self._hold = hold if hold is None or callable(hold) else numbers(np.asarray(hold), "hold", 1024)
        self._connect_timeout_s = connect_timeout_s
        #: Seconds that a callback may take.
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
        #: What the robot is to do, as it was said last.
        self._instruction = instruction
        #: When each observation of this episode was sensed, in milliseconds of the loop's clock, whatever the robot says of its own.
        self._sensed: dict[int, float] = {}
        self._lock = threading.Lock()
        self._news = threading.Condition(self._lock)
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

    # Life

    def __enter__(self) -> Loop:
        self._entered = True
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Opens the stream; done by the first `tick` or `run` otherwise."""
        with self._lock:
            if self._closing:
                raise BadInput("the loop was closed; make another one")
            if self._reader is None:
                self._reader = threading.Thread(target=self._keep_open, name="limber-loop", daemon=True)
                self._reader.start()

    def close(self) -> None:
        """Ends the loop: what is under way is called off. What was acted on stays paid for, and nothing else."""
        with self._lock:
            already, self._closing = self._closing, True
            self._core.stop("closed")
            self._news.notify_all()
            reader = self._reader
        if already or reader is None or reader is threading.current_thread():
            return
        reader.join(1.0)
        stream = self._stream
        if reader.is_alive() and stream is not None and stream.call is not None:
            stream.call.cancel()
            reader.join(1.0)

    def interrupt(self, reason: str = "interrupted") -> None:
        """Ends the run, from any thread: the robot holds at its next control step, which comes at once. Nothing is raised."""
        with self._lock:
            self._interrupted = True
            self._core.stop(reason)
        self._wake.set()

    def reset(self, instruction: str | None = None) -> int:
        """Begins a new episode, from any thread: nothing of the one before is executed. Its number."""
        with self._lock:
            episode = self._core.reset(self._clock() * 1000)
            self._slot = None
            self._sensed.clear()
            if instruction is not None:
                self._instruction = instruction
            self._news.notify_all()
            return episode

    @property
    def stats(self) -> LoopStats:
        """How the loop does, at this moment."""
        with self._lock:
            return self._meter.stats()

    # Control steps

    def tick(self, observation: Sensed) -> Tick:
        """Takes what the robot senses now and gives what it is to do now. Never waits for the network.

        Call it once in each control step. Arrays are copied, so that buffers may be written over. Raises `BadInput` for an observation that
        cannot be sent, and what ended the loop once it has ended; the robot is to hold then.
        """
        if observation is None:
            raise BadInput("tick takes an observation, and was given None")
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
                self._fail(ClockJumped("the clock went back; give the loop one that only goes forward, such as time.monotonic"))
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
                self._news.notify_all()
            action = None
            if decision.row is not None:
                # The core never lets this happen: it is counted, so that nobody has to believe it.
                self._meter.stale += decision.step >= self._until
                action = self._rows[decision.row].copy()
            self._meter.tick(now, action is not None, decision.hold)
            self._look_for_silence(now)
            return Tick(action, decision.hold, decision.step, decision.episode)

    def run(
        self,
        observe: Callable[[], Sensed],
        step: Callable[[NDArray[np.float64]], object],
        *,
        max_seconds: float,
        isolate: bool = False,
    ) -> Outcome:
        """Runs the loop at its rate for `max_seconds`, which has no default on purpose: how long a robot moves by itself is said each time.

        In each control step `observe()` is called, then `step(action)`, or `hold`. It ends after `max_seconds`, by `interrupt()`, when
        `observe` gives None, or with an exception: what a callback raises, what the gateway refuses, Ctrl-C. In every case the robot is told
        to hold before the method ends. A second run begins a new episode.

        A callback that takes longer than `hang_s` has the robot hold, told from another thread, and ends the run with `CallbackHung` as soon
        as it returns. With `isolate=True` the callbacks run on a thread of their own, and the run ends even if one never returns.
        """
        if not (isinstance(max_seconds, (int, float)) and math.isfinite(max_seconds) and max_seconds > 0):
            raise BadInput(f"max_seconds is {max_seconds!r}; say for how long the robot may move by itself, in seconds")
        self.start()
        if self._runs > 0:
            self.reset()
        self._runs += 1
        done = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(done, step), name="limber-watch", daemon=True)
        watcher.start()
        try:
            if isolate:
                return self._run_apart(observe, step, max_seconds)
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
                    self._holds(tick.hold, step)
                else:
                    action = tick.action
                    self._in("step", lambda: step(action))
                due += self._period
                late = self._clock() - due
                # After a pause the next step is due now, and not all that were missed.
                if late > self._period:
                    due += late
                # By a clock that went back the next step would be far away.
                self._wake.wait(min(max(0.0, -late), self._period))
        except KeyboardInterrupt:
            why = "interrupted"
            raise
        finally:
            self._busy = None
            self._holds(why, step)
        return Outcome(ended, self._clock() - began, self.stats)

    def _run_apart(
        self, observe: Callable[[], Sensed], step: Callable[[NDArray[np.float64]], object], max_seconds: float
    ) -> Outcome:
        over = threading.Event()
        told: list[Outcome | BaseException] = []

        def body() -> None:
            try:
                told.append(self._run_here(observe, step, max_seconds))
            except BaseException as error:  # noqa: BLE001 - it is raised again where the run was asked for
                told.append(error)
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
        if isinstance(told[0], BaseException):
            raise told[0]
        return told[0]

    def _in(self, name: str, callback: Callable[[], Any]) -> Any:
        """Calls back, and lets the watcher see since when."""
        self._busy = (name, time.monotonic())
        try:
            return callback()
        finally:
            self._busy = None

    def _holds(self, why: str, step: Callable[[NDArray[np.float64]], object]) -> None:
        if self._hold is None:
            return
        hold = self._hold
        if callable(hold):
            hold(why)
        else:
            step(np.array(hold, dtype=np.float64))

    def _watch(self, done: threading.Event, step: Callable[[NDArray[np.float64]], object]) -> None:
        """Holds the robot where a callback does not return."""
        while not done.wait(self._hang_s / 4):
            busy = self._busy
            if busy is None or time.monotonic() - busy[1] < self._hang_s:
                continue
            name = busy[0]
            with self._lock:
                self._core.stop("hung")
                self._fail(
                    CallbackHung(f"{name} has not returned for {self._hang_s:g} s; the robot was told to hold. Look at what it waits for")
                )
            with contextlib.suppress(Exception):
                self._holds("hung", step)
            return

    def _time(self) -> float:
        now = self._clock()
        if not math.isfinite(now):
            raise ClockJumped(f"the clock says {now}; give the loop one that counts seconds, such as time.monotonic")
        return now

    # The network

    def _fail(self, error: LimberError) -> None:
        """The loop is over by a fault. The lock is held."""
        if self._fatal is None:
            self._fatal = error
        self._core.stop(getattr(error, "code", "") or "failed")
        self._wake.set()
        self._news.notify_all()

    def _look_for_silence(self, now: float) -> None:
        """Ends a stream on which nobody answers. The lock is held."""
        stream = self._stream
        if stream is None or stream.call is None or stream.silent:
            return
        if not stream.opened:
            stream.silent = now - stream.began > self._connect_timeout_s
        elif stream.asked_at is not None:
            # Each observation is answered by its deadline, with a chunk or a hold.
            most = SILENCE_S + (self._core.deadline_ms / 1000 if math.isfinite(self._core.deadline_ms) else 10.0)
            stream.silent = now - stream.asked_at > most
        if stream.silent:
            stream.call.cancel()

    def _keep_open(self) -> None:
        """Opens one stream after the other until the loop is over."""
        began = self._clock()
        opened_once = False
        failed = 0
        while not self._closing and self._fatal is None:
            at = self._client._current
            started = self._clock()
            error = self._talk(at)
            stream = self._stream
            opened = stream is not None and stream.opened
            opened_once = opened_once or opened
            with self._lock:
                self._stream = None
                self._core.lost(self._clock() * 1000)
                if self._closing or self._fatal is not None:
                    return
                if error is not None and not self._mends(error, opened):
                    self._fail(error)
                    return
                if not opened_once and self._clock() - began > self._connect_timeout_s:
                    self._fail(error or ConnectionFailed("the gateway does not open the loop"))
                    return
            # One that is opened and breaks at once is no better than one that is not.
            failed = 0 if opened and self._clock() - started > 1 else failed + 1
            self._client.next_address(at)
            # A robot waits for nothing while there is an address that it has not tried: only a round of all of them is followed by a pause.
            tried, in_round = divmod(failed, 1 if isinstance(error, Refused) else len(self._client.addresses))
            wait = 0.0 if in_round else _WAITS[min(tried, len(_WAITS) - 1)]
            if isinstance(error, Refused) and error.retry_after_s is not None:
                wait = max(wait, min(error.retry_after_s, 5.0))
            with self._news:
                if wait > 0:
                    self._news.wait_for(lambda: self._closing or self._fatal is not None, wait)

    @staticmethod
    def _mends(error: LimberError, opened: bool) -> bool:
        """Whether another stream may go better."""
        if isinstance(error, Refused):
            return error.retryable
        # A stream that was open is cut in many ways by what lies between; what never opened is no gateway.
        return isinstance(error, ConnectionFailed) or (opened and isinstance(error, MalformedAnswer))

    def _talk(self, at: int) -> LimberError | None:
        """One stream, from its beginning to its end; why it ended."""
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
                self._heard(stream, answer)
        except grpc.RpcError as thrown:
            if stream.silent:
                return ConnectionFailed(f"{doing}: the gateway took the connection, and says nothing")
            return of_rpc(thrown, doing)
        except LimberError as error:
            with self._lock:
                self._fail(MalformedAnswer(f"{doing}: {error}") if isinstance(error, MalformedAnswer) else error)
            return None
        except Exception as error:  # noqa: BLE001 - a thread that dies without a word would leave the robot waiting
            with self._lock:
                self._fail(MalformedAnswer(f"{doing}: {error!r}"))
            return None
        finally:
            with self._lock:
                stream.over = True
                self._news.notify_all()
            if stream.call is not None:
                stream.call.cancel()
        return None

    def _messages(self, stream: _Stream) -> Iterator[inference_service_pb2.ActStreamRequest]:
        """What is said on one stream; gRPC asks for it on a thread of its own."""
        opening = control_loop_pb2.LoopOpen()
        opening.CopyFrom(self._open)
        opening.episode = stream.first
        stream.instruction = self._instruction
        if stream.instruction is not None:
            opening.instruction = stream.instruction
        yield inference_service_pb2.ActStreamRequest(open=opening)
        while True:
            with self._news:
                self._news.wait_for(
                    lambda: stream.over or self._closing or self._fatal is not None
                    # What is sensed before the gateway has said what it wants waits: the newest goes first then.
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
                    # It may have been told with an observation that a newer one replaced.
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
                if stream.asked_at is None:
                    stream.asked_at = self._clock()
            yield inference_service_pb2.ActStreamRequest(
                observation=requests.make(
                    control_loop_pb2.LoopObservation,
                    step=slot.step,
                    observations=[message],
                    instruction=instruction if reset is None else None,
                )
            )

    def _heard(self, stream: _Stream, answer: inference_service_pb2.ActStreamResponse) -> None:
        kind = answer.WhichOneof("event")
        rows = matrix(answer.chunk.action.steps) if kind == "chunk" else None
        with self._lock:
            now = self._time()
            at = now * 1000
            stream.asked_at = None
            if kind == "opened":
                if answer.opened.episode not in (0, stream.first):
                    raise MalformedAnswer(f"the loop was opened in episode {answer.opened.episode}, and not {stream.first}")
                stream.opened = True
                self._core.opened(at, deadline_ms=answer.opened.deadline_ms or math.inf)
                self._meter.route = route_of(answer.opened.route)
                if not self._own_hints:
                    self._hints = hints_of(answer.opened)
                self._news.notify_all()
            elif kind == "chunk" and rows is not None:
                self._take(at, answer.chunk, rows)
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

    def _take(self, at: float, chunk: control_loop_pb2.LoopChunk, rows: NDArray[np.float64]) -> None:
        # By this clock: a robot may date its observations by another.
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
        # What came was paid for, whether or not it is executed; a chunk that comes again was paid for before.
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
    said = detail or "it does not say why"
    if detail.startswith("t_ms"):
        return ClockJumped(f"the gateway holds, because the robot's clock leapt: {said}; give the loop a clock that only goes forward")
    return ObservationRejected(f"the gateway cannot use the observations: {said}")


#: Encodings by how well they suit arrays of a camera.
_ENCODINGS = (
    (observation_pb2.IMAGE_FORMAT_JPEG, "JPEG"),
    (observation_pb2.IMAGE_FORMAT_WEBP, "WEBP"),
    (observation_pb2.IMAGE_FORMAT_PNG, "PNG"),
)


def hints_of(opened: control_loop_pb2.LoopOpened) -> dict[str, FrameHint]:
    """What the offering that will serve declares of its cameras' pictures, by each name that they may come under."""
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
        # Their places tell which is which: no one of them stands for a camera of another name.
        hints.pop("", None)
    return hints
