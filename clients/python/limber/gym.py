"""Runs an organization's external evaluations in any Gymnasium environment.

    def make(scenario):
        return gymnasium.make("FetchReach-v4")

    limber.gym.run(client, make, to_observation=lambda obs, info: {"state": obs["observation"]}, scenarios=["fetch/reach"])

claims the evaluations that were requested with `runner: external`, runs their episodes, reports each one, and returns when none is queued.
Gymnasium itself is not imported: any object with `reset(seed=)` and `step(action)` works. `limber.runners` has published benchmarks, ready to run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from limber._answers import Evaluation
from limber._version import VERSION
from limber.client import Limber
from limber.runners.base import Moved, Runner


class Environment(Protocol):
    """The two Gymnasium methods that an environment must have."""

    def reset(self, *, seed: int | None = None) -> tuple[Any, dict[str, Any]]: ...

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]: ...


#: Converts an observation of the environment and its info to what `Limber.act` accepts.
ToObservation = Callable[[Any, dict[str, Any]], Any]
#: Returns whether an episode succeeded, from its last reward and info.
Success = Callable[[float, dict[str, Any]], bool]


@dataclass
class _World:
    """An environment as a world of `limber.runners`. It declares no mapping: `to_observation` and `to_action` are the caller's."""

    env: Environment
    to_observation: ToObservation
    to_action: Callable[[NDArray[np.float64]], Any]
    success: Success
    max_steps: int
    instruction: str | Callable[[dict[str, Any]], str] | None
    mapping: None = None
    success_ends: bool = True

    def reset(self, trial: int) -> tuple[Any, str | None]:
        obs, info = self.env.reset(seed=trial)
        return self.to_observation(obs, info), self.instruction(info) if callable(self.instruction) else self.instruction

    def step(self, action: NDArray[np.float64]) -> Moved:
        obs, reward, terminated, truncated, info = self.env.step(self.to_action(action))
        ended = "fell" if terminated else "max_steps" if truncated else ""
        return Moved(self.to_observation(obs, info), float(reward), self.success(float(reward), info), ended, info)

    def fingerprint(self) -> bytes | None:
        return None

    def close(self) -> None:
        """Leaves the environment open: `make` may return the same one again."""


@dataclass
class _Suite:
    harness: str
    scenarios: Sequence[str]
    open_world: Callable[[str], _World]
    tasks: Sequence[str] = ("",)

    def open(self, task: str, scenario: str) -> _World:
        return self.open_world(scenario)


def _succeeded(reward: float, info: dict[str, Any]) -> bool:
    """Follows Gymnasium's convention: `is_success` or `success` in the info."""
    return bool(info.get("is_success", info.get("success", False)))


def run(
    client: Limber,
    make: Callable[[str], Environment],
    *,
    to_observation: ToObservation,
    to_action: Callable[[NDArray[np.float64]], Any] = lambda row: row,
    success: Success = _succeeded,
    scenarios: Sequence[str] = (),
    max_steps: int = 1000,
    instruction: str | Callable[[dict[str, Any]], str] | None = None,
    harness: str = f"limber.gym {VERSION}",
    forever: bool = False,
    timeout_s: float = 600.0,
    tell: Callable[[str], None] = print,
) -> list[Evaluation]:
    """Runs the queued evaluations of the key's organization and returns their results.

    `make(scenario)` returns the environment. `to_observation(obs, info)` converts an observation for the policy; `to_action(row)` converts a row
    for the environment. An episode ends after `max_steps`. A policy fault is reported as such and not billed; an environment fault ends
    the evaluation with `harness_failed` and is raised. So does a step that takes longer than
    `timeout_s`. With `forever`, the function waits for more evaluations.
    """
    suite = _Suite(harness, scenarios, lambda scenario: _World(make(scenario), to_observation, to_action, success, max_steps, instruction))
    return Runner(client, suite, timeout_s=timeout_s, world_faults=1, tell=tell).run(forever=forever)
