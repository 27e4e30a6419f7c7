"""What a robot does at each control step, as a machine of events and time. It has no clock, no threads and no network: the same events at
the same times come to the same decisions, in every language. `clients/conformance` holds it to recorded traces.

All times are milliseconds of one steady clock, the robot's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

#: A clock that goes back by more than this is not read any longer.
BACK_MS = 1.0
#: Observations in a row that the gateway cannot use, until the loop gives up.
MOST_REJECTED = 3
#: So much is added to a quotient before its whole part is taken, so that 50.000000000000004 and 49.99999999999999 are one.
_EPSILON = 1e-9
#: Holds for want of a chunk. The others say that what the robot would do is wrong.
SOFT = frozenset({"late", "upstream_failed", "no_provider", "slow_reader", "not_recorded", "rate_limited", "stale_observation"})


@dataclass(frozen=True)
class Decision:
    """What to do at one control step."""

    #: The control step, from 0 in each episode.
    step: int
    episode: int
    #: The observation of this step is to be sent: it is the first of its step.
    send: bool
    #: The row of the chunk that is due; None where the robot is to hold.
    row: int | None
    #: Why it is to hold; empty where it is not.
    hold: str


class LoopCore:
    """One robot's loop.

    A chunk is executed while all of this holds: it is of the present episode; it is the newest that came; the control step lies from its
    `start_step` to before its `valid_until_step`; it came within the deadline of its observation; nothing said hold since. With `finish` a
    hold for want of a chunk, and a lost connection, leave the chunk before its valid rest.
    """

    def __init__(self, rate_hz: float, *, finish: bool = False, episode: int = 1, deadline_ms: float = math.inf) -> None:
        #: From one control step to the next.
        self.period_ms = 1000.0 / rate_hz
        self.finish = finish
        self.episode = episode
        #: How old an observation may be when its chunk comes; the gateway's own word, once it is open.
        self.deadline_ms = deadline_ms
        #: The present control step; -1 before the first of the episode.
        self.step = -1
        #: Why the loop is over; empty while it is not.
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
        """A control step is due at `at`. Steps are counted by the clock, so that one which is left out is left out of the chunk too."""
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
        """The gateway has opened the loop."""
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
        """A chunk came. `taken`, or why it is not: `over`, `other_episode`, `unknown`, `older`, `stale`, `late`."""
        if self.over:
            return "over"
        if episode != self.episode:
            return "other_episode"
        # What answers no observation of this loop, such as one of another program under the same session, is not executed.
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
        """A hold came. `taken`, or why it is not: `over`, `other_episode`, `older`."""
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
        """The connection broke."""
        if self.over:
            return
        self.connected = False
        self._soft("disconnected")

    def ended(self, at: float, *, code: str) -> None:
        """The gateway ended the loop. With the code of a refusal nothing of the chunk before is executed."""
        if self.over:
            return
        self.connected = False
        self._drop(code or "closed")

    def reset(self, at: float) -> int:
        """A new episode begins: nothing of the one before is executed. Its number."""
        self.episode += 1
        self.step = self._sent = -1
        self._began = None
        self.rejected = 0
        self._drop("no_chunk" if self.connected else "connecting")
        return self.episode

    def stop(self, why: str) -> None:
        """The loop is over: the robot holds from now on."""
        if not self.over:
            self.over = why
            self._drop(why)


def percentile(values: Sequence[float], share: float) -> float:
    """The value that this share of them does not exceed; 0 of none."""
    if not values:
        return 0.0
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1 if share > 0 else 0)]
