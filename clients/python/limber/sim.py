"""A robot to try a loop with: a wheeled base that drives from corner to corner of a square."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

#: The corners that it drives to, in metres.
CORNERS = ((2.0, 0.0), (2.0, 2.0), (0.0, 2.0), (0.0, 0.0))
#: It has come to a corner this near to it, in metres.
NEAR_M = 0.15
#: What it can do: metres per second, radians per second.
LIMITS = (1.0, 3.0)


class WheeledBase:
    """A base that moves by speed and turn for as long as its last command stands: time goes on whether or not a command comes.

    `observe` gives the state `[x, y, yaw, goal x, goal y, goal yaw]` in metres and radians, as the reference provider's `potential-nav` reads
    it; `step` takes `[speed, turn]`, in metres per second and radians per second.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._at = clock()
        self._command = (0.0, 0.0)
        self.x = self.y = self.yaw = 0.0
        #: Corners that it came to.
        self.corners = 0
        #: Metres that it drove.
        self.driven_m = 0.0
        #: Farthest that it drove beyond its limits, which a gateway with bounds never has it do.
        self.beyond = 0.0

    @property
    def goal(self) -> tuple[float, float]:
        return CORNERS[self.corners % len(CORNERS)]

    def _move(self) -> None:
        now = self._clock()
        took, self._at = now - self._at, now
        speed, turn = self._command
        self.yaw = math.remainder(self.yaw + turn * took, 2 * math.pi)
        self.x += speed * math.cos(self.yaw) * took
        self.y += speed * math.sin(self.yaw) * took
        self.driven_m += abs(speed) * took
        if math.hypot(self.goal[0] - self.x, self.goal[1] - self.y) < NEAR_M:
            self.corners += 1

    def observe(self) -> NDArray[np.float64]:
        """Where it is, and where it goes."""
        self._move()
        goal_x, goal_y = self.goal
        return np.array([self.x, self.y, self.yaw, goal_x, goal_y, self.yaw])

    def step(self, action: NDArray[np.float64]) -> None:
        """Drives on by this command."""
        self._move()
        speed, turn = float(action[0]), float(action[1])
        self.beyond = max(self.beyond, abs(speed) - LIMITS[0], abs(turn) - LIMITS[1])
        self._command = (speed, turn)

    def hold(self, why: str) -> None:
        """Brakes."""
        self._move()
        self._command = (0.0, 0.0)

    @property
    def stands(self) -> bool:
        """It is told to stand."""
        return self._command == (0.0, 0.0)
