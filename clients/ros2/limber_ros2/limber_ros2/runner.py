"""The service and the action without ROS: one chunk for the current observation, and a control loop until the robot is done."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import limber
import numpy as np
from limber.errors import LimberError, Refused
from numpy.typing import NDArray

from limber_ros2.mapping import Config, MappingError, NotReady, Sensing

#: Publishes an action, or a hold with its reason if there is no action.
Publish = Callable[[NDArray[np.float64] | None, str], None]

#: Seconds between two feedback messages.
_FEEDBACK_S = 0.5


@dataclass(frozen=True)
class Progress:
    """The progress of a run; the fields of the action's feedback."""

    seconds: float = 0.0
    steps: int = 0
    actions: int = 0
    rate_hz: float = 0.0
    age_ms: float = 0.0
    hold: str = ""
    cost_usd: float = 0.0


@dataclass(frozen=True)
class Ran:
    """The result of a run; the fields of the action's result."""

    #: `done`, `max_seconds`, `cancelled`, `stopped` or `failed`.
    ended: str
    message: str = ""
    code: str = ""
    seconds: float = 0.0
    steps: int = 0
    actions: int = 0
    cost_usd: float = 0.0


@dataclass(frozen=True)
class Answer:
    """One chunk; the fields of the service's response."""

    success: bool
    message: str = ""
    code: str = ""
    model: str = ""
    provider: str = ""
    action_space: str = ""
    rows: int = 0
    dimensions: int = 0
    actions: tuple[float, ...] = ()
    dt: float = 0.0
    valid_for: float = 0.0
    cost_usd: float = 0.0
    request_id: str = ""


def _code(error: Exception) -> str:
    return (error.code or error.unknown_code) if isinstance(error, Refused) else ""


def chunk(client: limber.Limber, config: Config, sensing: Sensing, *, instruction: str = "", horizon: int = 0) -> Answer:
    """Requests one chunk for the current observation. Raises nothing; errors are in the answer."""
    try:
        seen = sensing.observation()
        # Only loops accept an instruction in an observation.
        text = instruction or seen.instruction or config.instruction
        seen.instruction = None
        made = client.act(
            config.model,
            seen,
            instruction=text,
            action_space=config.action_space,
            horizon=horizon or config.horizon,
            robot=config.robot,
            provider=dict(config.provider),
            embodiment=config.embodiment,
        )
    except (NotReady, MappingError, LimberError) as error:
        return Answer(False, str(error), _code(error))
    return Answer(
        True,
        model=made.model,
        provider=made.route.provider,
        action_space=made.space,
        rows=made.steps.shape[0],
        dimensions=made.steps.shape[1],
        actions=tuple(made.steps.ravel().tolist()),
        dt=made.dt_s,
        valid_for=made.valid_for_s,
        cost_usd=made.cost_usd,
        request_id=made.id,
    )


class Runner:
    """One run of a loop. Call `run` once; `cancel` and `stop` are thread-safe."""

    def __init__(
        self, client: limber.Limber, config: Config, sensing: Sensing, publish: Publish, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._client = client
        self._config = config
        self._sensing = sensing
        self._publish = publish
        self._clock = clock
        self._wake = threading.Event()
        self._asked = ""

    def cancel(self) -> None:
        """Ends the run at its next control step, which follows at once. The robot holds."""
        self._asked = self._asked or "cancelled"
        self._wake.set()

    def stop(self) -> None:
        """Ends the run like `cancel`, because of an emergency stop."""
        self._asked = "stopped"
        self._wake.set()

    def run(
        self, *, instruction: str = "", max_seconds: float, feedback: Callable[[Progress], None] = lambda progress: None
    ) -> Ran:
        """Drives the robot until it is done, and always makes it hold at the end. Raises nothing; errors are in the result."""
        if not 0 < max_seconds < float("inf"):
            return Ran("failed", f"max_seconds must be how long the robot may move by itself, in seconds, got {max_seconds}")
        began = self._clock()
        stats: limber.LoopStats | None = None
        self._sensing.begin()
        ended, message, code = "failed", "", ""
        loop: limber.Loop | None = None
        try:
            # Leaving the block closes the loop, after the robot was told to hold.
            loop = self._client.loop(
                self._config.model, instruction=instruction or self._config.instruction, **self._config.loop_options()
            )
            ended = self._drive(loop, began, max_seconds, feedback, spoken=bool(instruction))
        except (NotReady, MappingError, LimberError) as error:
            message, code = str(error), _code(error)
            ended = "stopped" if code == "robot_stopped" else "failed"
        except Exception as error:  # noqa: BLE001 - publishing can raise anything, and the robot must hold
            message = f"{type(error).__name__}: {error}"
        try:
            self._publish(None, ended)
        except Exception as error:  # noqa: BLE001 - the run has ended, and the caller must know that the hold failed
            message = f"{message + '; ' if message else ''}the robot was not told to hold: {error}"
            ended = "failed"
        if loop is not None:
            loop.close()
            stats = loop.stats
        return Ran(
            ended,
            message,
            code,
            self._clock() - began,
            stats.steps if stats else 0,
            stats.actions if stats else 0,
            stats.cost_usd if stats else 0.0,
        )

    def _drive(self, loop: limber.Loop, began: float, max_seconds: float, feedback: Callable[[Progress], None], *, spoken: bool) -> str:
        due = began
        reported = -_FEEDBACK_S
        unready: float | None = None
        while True:
            now = self._clock()
            if self._asked:
                return self._asked
            if now - began >= max_seconds:
                return "max_seconds"
            if self._sensing.done:
                return "done"
            try:
                seen = self._sensing.observation()
                unready = None
            except NotReady as error:
                hold = str(error)
                unready = now if unready is None else unready
                if now - unready > self._config.patience_s:
                    raise
                self._publish(None, hold)
            else:
                if spoken:
                    # The goal's instruction takes precedence over the topic.
                    seen.instruction = None
                tick = loop.tick(seen)
                hold = tick.hold
                self._publish(tick.action, hold)
            if now - began - reported >= _FEEDBACK_S:
                reported = now - began
                stats = loop.stats
                feedback(Progress(reported, stats.steps, stats.actions, stats.rate_hz, stats.age_ms, hold, stats.cost_usd))
            due += self._config.period_s
            late = self._clock() - due
            # After a pause, the next step is due now; missed steps are not made up.
            if late > self._config.period_s:
                due += late
            self._wake.wait(min(max(0.0, -late), self._config.period_s))
