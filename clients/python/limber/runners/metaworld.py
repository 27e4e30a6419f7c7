"""Meta-World: 50 tabletop tasks of a Sawyer arm. Tasks are named `reach-v3`, `push-v3`, …; `mt10` and `mt50` name the benchmark's lists.

Sources, in Farama-Foundation/Metaworld at 7ea2b50 (3.1.1):
- `metaworld/sawyer_xyz_env.py`: an action is 4 numbers from -1 to 1, three offsets of 0.01 m each and the effort that closes the fingers; an observation
  is 18 numbers (hand, opening of the gripper from 0 to 1, two objects with position and quaternion), the 18 of the step before, and the goal's position,
  which `MT1` shows and `ML1` hides; an episode has 500 steps of 5 x 0.0025 s (`frame_skip`, `render_fps` 80); `info["success"]` is 1 while the task is solved.
- `metaworld/__init__.py`: `MT1(name, seed)` draws 50 starts and goals from numpy's global generator.
Sources, in huggingface/lerobot at a8401e9, `src/lerobot/sims/native/metaworld.py`: the seed 42; for image policies the camera `corner2`, moved to
(0.75, 0.075, 0.7) and turned by 180 degrees, 480 x 480 pixels, and only the first 4 numbers as state; an episode ends at its first success.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limber.runners.base import Moved
from limber.runners.mapping import Camera, Gripper, Mapping
from limber.runners.suites import mujoco_state, needed, version_of

_GOALS = 50
_HAND = ("hand_x", "hand_y", "hand_z", "gripper_open")
_OBJECTS = tuple(f"object_{i}_{part}" for i in (1, 2) for part in ("x", "y", "z", "qx", "qy", "qz", "qw"))
#: What a policy that reads only numbers sees.
_STATE = (*_HAND, *_OBJECTS, *(f"previous_{name}" for name in (*_HAND, *_OBJECTS)), "goal_x", "goal_y", "goal_z")

_MOTION: dict[str, Any] = {
    "action": ("dx", "dy", "dz", "gripper"),
    "low": (-1.0,) * 4,
    "high": (1.0,) * 4,
    "units": ("1",),
    "reference": "relative",
    "gripper": Gripper(3, -1.0, 1.0),
    "dt_s": 0.0125,
}


class Suite:
    """Meta-World."""

    scenarios = ("farama-foundation/meta-world",)

    def __init__(self, tasks: Sequence[str], *, images: bool = False) -> None:
        self._metaworld = needed("metaworld", "pip install 'metaworld==3.1.1'")
        known = importlib.import_module("metaworld.env_dict")
        lists = {"mt10": list(known.MT10_V3), "mt50": list(known.ALL_V3_ENVIRONMENTS)}
        self.tasks = [task for named in tasks or ["reach-v3"] for task in lists.get(named, [named])]
        self.harness = f"metaworld {version_of('metaworld', 'metaworld')}"
        self._images = images

    def open(self, task: str, scenario: str) -> World:
        return World(self._metaworld, task, self._images)


class World:
    """One task."""

    max_steps = 500
    success_ends = True

    def __init__(self, metaworld: Any, task: str, images: bool) -> None:
        benchmark = metaworld.MT1(task, seed=42)
        self._starts = benchmark.train_tasks
        shown = {"render_mode": "rgb_array", "camera_name": "corner2", "width": 480, "height": 480} if images else {}
        self._env = benchmark.train_classes[task](**shown)
        if images:
            self._env.model.cam_pos[2] = [0.75, 0.075, 0.7]
        self._images = images
        self._words = task.rpartition("-v")[0].replace("-", " ")
        self.mapping = Mapping(**_MOTION, cameras=(Camera("corner2", 480, 480),) if images else (), state=_HAND if images else _STATE)

    def _seen(self, obs: NDArray[np.float64]) -> dict[str, Any]:
        images = {"corner2": np.ascontiguousarray(self._env.render()[::-1, ::-1])} if self._images else {}
        return {"state": obs[: len(self.mapping.state)], "state_names": self.mapping.state, "images": images}

    def reset(self, trial: int) -> tuple[Any, str | None]:
        # The task fixes start and goal; the seed is for the environments that draw more.
        self._env.set_task(self._starts[trial % _GOALS])
        obs, _ = self._env.reset(seed=trial)
        return lambda: self._seen(obs), self._words

    def step(self, action: NDArray[np.float64]) -> Moved:
        obs, reward, _, truncated, info = self._env.step(action.astype(np.float32))
        return Moved(lambda: self._seen(obs), float(reward), bool(info["success"]), "max_steps" if truncated else "", info)

    def fingerprint(self) -> bytes | None:
        return mujoco_state(self._env)

    def close(self) -> None:
        self._env.close()
