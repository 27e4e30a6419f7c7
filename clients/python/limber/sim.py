"""A simulated robot for trying a loop: a wheeled base that drives between the corners of a square."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

#: The corners that it visits, in meters.
CORNERS = ((2.0, 0.0), (2.0, 2.0), (0.0, 2.0), (0.0, 0.0))
#: Distance at which a corner counts as reached, in meters.
NEAR_M = 0.15
#: Speed limits, in meters per second and radians per second.
LIMITS = (1.0, 3.0)


class WheeledBase:
    """A wheeled base that moves by its last command until the next one arrives, in real time.

    `observe` returns the state `[x, y, yaw, goal x, goal y, goal yaw]` in meters and radians, which the reference provider's `potential-nav`
    reads. `step` accepts `[speed, turn rate]`, in meters per second and radians per second.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._at = clock()
        self._command = (0.0, 0.0)
        self.x = self.y = self.yaw = 0.0
        #: Number of corners reached.
        self.corners = 0
        #: Distance driven, in meters.
        self.driven_m = 0.0
        #: Largest excess over its limits. A gateway with bounds keeps it at 0.
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
        """Returns the current pose and the goal."""
        self._move()
        goal_x, goal_y = self.goal
        return np.array([self.x, self.y, self.yaw, goal_x, goal_y, self.yaw])

    def step(self, action: NDArray[np.float64]) -> None:
        """Applies a command."""
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
        """True if its last command is to stand still."""
        return self._command == (0.0, 0.0)
