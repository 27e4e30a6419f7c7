"""The decision logic of a control loop, as a state machine of events and time. It has no clock, no threads and no network: equal events at
equal times produce equal decisions, in every language. `clients/conformance` verifies it against recorded traces.

All times are in milliseconds of the robot's monotonic clock.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

#: The loop ends if the clock goes back by more than this.
BACK_MS = 1.0
#: Consecutive observations that the gateway cannot use before the loop ends.
MOST_REJECTED = 3
#: Added to a quotient before rounding down, so that 50.000000000000004 and 49.99999999999999 give the same step.
_EPSILON = 1e-9
#: Holds because a chunk is missing. All other holds mean that executing the current chunk would be wrong.
SOFT = frozenset({"late", "upstream_failed", "no_provider", "slow_reader", "not_recorded", "rate_limited", "stale_observation"})


@dataclass(frozen=True)
class Decision:
    """The decision for one control step."""

    #: The control step, from 0 in each episode.
    step: int
    episode: int
    #: True if this step's observation must be sent, which is at the first tick of the step.
    send: bool
    #: The chunk row to execute; None if the robot must hold.
    row: int | None
    #: Why the robot must hold; empty if it must not.
    hold: str


class LoopCore:
    """The decision logic of one robot's control loop.

    A chunk is executed while all of these conditions hold: it belongs to the current episode; it is the newest received chunk; the control step
    is at or after its `start_step` and before its `valid_until_step`; it arrived within the deadline of its observation; no hold has arrived
    since. With `finish`, the remaining valid rows of a chunk are still executed after a hold for a missing chunk and after a lost connection.
    """

    def __init__(self, rate_hz: float, *, finish: bool = False, episode: int = 1, deadline_ms: float = math.inf) -> None:
        #: Time between control steps.
        self.period_ms = 1000.0 / rate_hz
        self.finish = finish
        self.episode = episode
        #: Maximum age of an observation when its chunk arrives. The gateway's value replaces it when the loop opens.
        self.deadline_ms = deadline_ms
        #: The current control step; -1 before the first one of the episode.
        self.step = -1
        #: Why the loop has ended; empty while it runs.
        self.over = ""
        self.connected = False
        self.rejected = 0
        self._began: float | None = None
        self._last = -math.inf
        self._sent = -1
        self._why = "connecting"
        self._has = False
        self._start = self._until = self._rows = 0
        self._dt_ms = 0.0

    @property
    def has_chunk(self) -> bool:
        return self._has

    def tick(self, at: float) -> Decision:
        """Returns the decision for the time `at`. Steps are counted by the clock, so a skipped control step skips its chunk row too."""
        if not self.over and at < self._last - BACK_MS:
            self.stop("clock")
        if self.over:
            return Decision(max(self.step, 0), self.episode, False, None, self.over)
        self._last = max(self._last, at)
        if self._began is None:
            self._began = self._last
        self.step = max(self.step, self._step_at(self._last))
        send = self.step > self._sent
        if send:
            self._sent = self.step
        if not self._has:
            return Decision(self.step, self.episode, send, None, self._why)
        row = math.floor((self.step - self._start) * self.period_ms / self._dt_ms + _EPSILON)
        if self.step >= self._until or row >= self._rows:
            self._drop("expired")
            return Decision(self.step, self.episode, send, None, "expired")
        return Decision(self.step, self.episode, send, row, "")

    def _step_at(self, at: float) -> int:
        if self._began is None:
            return self.step
        return math.floor((at - self._began) / self.period_ms + 0.5)

    def _drop(self, why: str) -> None:
        self._has = False
        self._why = why

    def opened(self, at: float, *, deadline_ms: float) -> None:
        """Handles the gateway's confirmation that the loop is open."""
        if self.over:
            return
        self.connected = True
        self.deadline_ms = deadline_ms
        if not self._has:
            self._why = "no_chunk"

    def chunk(
        self,
        at: float,
        *,
        episode: int,
        start_step: int,
        valid_until_step: int,
        dt_ms: float,
        rows: int,
        observation_time: float | None = None,
    ) -> str:
        """Handles a chunk. Returns `taken`, or why it is not used: `over`, `other_episode`, `unknown`, `older`, `stale`, `late`."""
        if self.over:
            return "over"
        if episode != self.episode:
            return "other_episode"
        # A chunk that answers none of this loop's observations, such as another program's under the same session, is not executed.
        if start_step > self._sent:
            return "unknown"
        if self._has and start_step < self._start:
            return "older"
        if valid_until_step <= max(self.step, self._step_at(at)):
            self._soft("late")
            return "stale"
        if observation_time is not None and at - observation_time > self.deadline_ms:
            self._soft("late")
            return "late"
        self.rejected = 0
        self._has = True
        self._start, self._until, self._rows = start_step, valid_until_step, rows
        self._dt_ms = dt_ms if dt_ms > 0 else self.period_ms
        return "taken"

    def hold(self, at: float, *, episode: int, step: int, reason: str) -> str:
        """Handles a hold. Returns `taken`, or why it is not used: `over`, `other_episode`, `older`."""
        if self.over:
            return "over"
        if episode != self.episode:
            return "other_episode"
        if self._has and step < self._start:
            return "older"
        if reason == "invalid_observation":
            self.rejected += 1
            if self.rejected >= MOST_REJECTED:
                self.stop("observation_rejected")
                return "taken"
        else:
            self.rejected = 0
        if reason in SOFT:
            self._soft(reason)
        else:
            self._drop(reason)
        return "taken"

    def _soft(self, why: str) -> None:
        if self.finish and self._has:
            return
        self._drop(why)

    def lost(self, at: float) -> None:
        """Handles a broken connection."""
        if self.over:
            return
        self.connected = False
        self._soft("disconnected")

    def ended(self, at: float, *, code: str) -> None:
        """Handles the end of the loop by the gateway. After a refusal code, the remaining chunk is not executed."""
        if self.over:
            return
        self.connected = False
        self._drop(code or "closed")

    def reset(self, at: float) -> int:
        """Begins a new episode and returns its number. Discards the previous episode's chunk."""
        self.episode += 1
        self.step = self._sent = -1
        self._began = None
        self.rejected = 0
        self._drop("no_chunk" if self.connected else "connecting")
        return self.episode

    def stop(self, why: str) -> None:
        """Ends the loop: every decision from now on is a hold."""
        if not self.over:
            self.over = why
            self._drop(why)


def percentile(values: Sequence[float], share: float) -> float:
    """Returns the value that the given share of the values does not exceed; 0 if there are no values."""
    if not values:
        return 0.0
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1 if share > 0 else 0)]
