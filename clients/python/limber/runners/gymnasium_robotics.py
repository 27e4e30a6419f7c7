"""Gymnasium-Robotics: the goal-conditioned Fetch tasks `FetchReach-v4`, `FetchPush-v4`, `FetchSlide-v4` and `FetchPickAndPlace-v4`.

Sources, in Farama-Foundation/Gymnasium-Robotics at df28ecd (1.4.2), `gymnasium_robotics/envs/fetch/`: an action is 4 numbers from -1 to 1, three offsets
of 0.05 m each and the displacement of the fingers, which a positive number opens; an observation has `observation` (10 numbers without an object, 25 with
one), `desired_goal` and `achieved_goal`; a step is 20 x 0.002 s; an episode has 50 steps and never ends earlier; `info["is_success"]` is 1 while the goal
is within 0.05 m. The success of an episode is that of its last step, as the tasks' paper counts it (arXiv 1802.09464).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limber.runners.base import Moved
from limber.runners.mapping import Gripper, Mapping
from limber.runners.suites import mujoco_state, needed, version_of

TASKS = ("FetchReach-v4", "FetchPush-v4", "FetchSlide-v4", "FetchPickAndPlace-v4")
_WORDS = {
    "FetchReach-v4": "move the gripper to the goal",
    "FetchPush-v4": "push the block to the goal",
    "FetchSlide-v4": "slide the puck to the goal",
    "FetchPickAndPlace-v4": "pick up the block and bring it to the goal",
}


def _xyz(name: str) -> tuple[str, ...]:
    return tuple(f"{name}_{axis}" for axis in "xyz")


_FINGERS = ("right_finger", "left_finger")
_OBJECT = (*_xyz("object"), *_xyz("object_relative"), *_FINGERS, "object_roll", "object_pitch", "object_yaw", *_xyz("object_velocity"), *_xyz("object_turn"))
_MOVING = (*_xyz("grip_velocity"), "right_finger_velocity", "left_finger_velocity")


def _state(has_object: bool) -> tuple[str, ...]:
    return (*_xyz("grip"), *(_OBJECT if has_object else _FINGERS), *_MOVING, *_xyz("goal"))


class Suite:
    """The Fetch tasks."""

    scenarios = ("farama-foundation/gymnasium-robotics",)

    def __init__(self, tasks: Sequence[str], *, images: bool = False) -> None:
        self._gymnasium = needed("gymnasium", "pip install 'gymnasium-robotics==1.4.2'")
        self._gymnasium.register_envs(needed("gymnasium_robotics", "pip install 'gymnasium-robotics==1.4.2'"))
        self.tasks = [task for named in tasks or ["FetchReach-v4"] for task in (TASKS if named == "fetch" else (named,))]
        self.harness = f"gymnasium-robotics {version_of('gymnasium_robotics', 'gymnasium-robotics')}"

    def open(self, task: str, scenario: str) -> World:
        return World(self._gymnasium.make(task), task)


class World:
    """One task."""

    max_steps = 50
    success_ends = False

    def __init__(self, env: Any, task: str) -> None:
        self._env = env
        self._words = _WORDS.get(task)
        self.mapping = Mapping(
            action=("dx", "dy", "dz", "gripper"),
            low=(-1.0,) * 4,
            high=(1.0,) * 4,
            units=("1",),
            reference="relative",
            gripper=Gripper(3, 1.0, -1.0),
            state=_state(env.observation_space["observation"].shape[0] == 25),
            dt_s=0.04,
        )

    def _seen(self, obs: dict[str, NDArray[np.float64]]) -> dict[str, Any]:
        return {"state": np.concatenate([obs["observation"], obs["desired_goal"]]), "state_names": self.mapping.state}

    def reset(self, trial: int) -> tuple[Any, str | None]:
        obs, _ = self._env.reset(seed=trial)
        return self._seen(obs), self._words

    def step(self, action: NDArray[np.float64]) -> Moved:
        obs, reward, terminated, truncated, info = self._env.step(action.astype(np.float32))
        distance = float(np.linalg.norm(obs["achieved_goal"] - obs["desired_goal"]))
        return Moved(self._seen(obs), float(reward), bool(info["is_success"]), "max_steps" if terminated or truncated else "", {"distance_m": distance})

    def fingerprint(self) -> bytes | None:
        return mujoco_state(self._env.unwrapped)

    def close(self) -> None:
        self._env.close()
