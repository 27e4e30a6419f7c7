"""SimplerEnv: real-to-sim tasks of a Google robot and a WidowX arm (visual matching), such as `widowx_carrot_on_plate`; `widowx` names the four tasks of
the WidowX arm. It needs an NVIDIA GPU.

Sources, in simpler-env/SimplerEnv at 4ab7178: `simpler_env/__init__.py`: `make(task)`, whose packaged configuration sets scene, robot and controller, and
the argument `obs_mode`; `simpler_env/utils/env/observation_utils.py`: the camera of each robot; `README.md`: an action is an offset, a rotation as an
axis-angle vector and the gripper, at 3 Hz for the Google robot and 5 Hz for WidowX; `simpler_env/evaluation/maniskill2_evaluator.py`: an episode runs until it is
truncated, and succeeds if its last step did; `obj_init_options.episode_id` chooses the objects' placement; `scripts/octo_bridge.sh`: 24 placements for
WidowX, and 60 steps, 120 for the eggplant; `simpler_env/policies/octo/octo_model.py`: 1 opens WidowX's gripper and closes the Google robot's, whose value
is a change. Success varies between published evaluations: others count a solved step anywhere (allenai/vla-evaluation-harness, common-pitfalls.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limber.runners.base import Moved
from limber.runners.mapping import Camera, Gripper, Mapping
from limber.runners.suites import needed, version_of

_WIDOWX = ("widowx_spoon_on_towel", "widowx_carrot_on_plate", "widowx_stack_cube", "widowx_put_eggplant_in_basket")
_INSTALL = "install ManiSkill2_real2sim and SimplerEnv from a clone of github.com/simpler-env/SimplerEnv at 4ab7178, each with pip install -e ."


def mapping_of(task: str, width: int = 640, height: int = 480) -> Mapping:
    """Returns the mapping of a task; the size is that of its camera's images."""
    is_widowx = task.startswith("widowx")
    return Mapping(
        action=("dx", "dy", "dz", "rx", "ry", "rz", "gripper"),
        low=(-float("inf"),) * 6 + (-1.0,),
        high=(float("inf"),) * 6 + (1.0,),
        units=("m", "m", "m", "rad", "rad", "rad", "1"),
        reference="relative",
        rotation="axis_angle",
        gripper=Gripper(6, 1.0, -1.0) if is_widowx else Gripper(6, -1.0, 1.0),
        cameras=(Camera("3rd_view_camera" if is_widowx else "overhead_camera", width, height),),
        action_space="ee_delta_6d_grip",
        dt_s=1 / 5 if is_widowx else 1 / 3,
    )


class Suite:
    """SimplerEnv."""

    scenarios = ("simpler-env/simplerenv",)

    def __init__(self, tasks: Sequence[str], *, images: bool = True) -> None:
        self._simpler = needed("simpler_env", _INSTALL)
        self.tasks = [task for named in tasks or ["widowx"] for task in (_WIDOWX if named == "widowx" else (named,))]
        self.harness = f"simpler-env {version_of('simpler_env', 'simpler_env')}"

    def open(self, task: str, scenario: str) -> World:
        # The package's own default of this argument is a tuple by a stray comma.
        return World(self._simpler.make(task, obs_mode="rgbd"), task)


class World:
    """One task."""

    #: The environment truncates an episode earlier.
    max_steps = 1000
    success_ends = False

    def __init__(self, env: Any, task: str) -> None:
        self._env = env
        self._task = task
        self.mapping = mapping_of(task)

    def _seen(self, obs: dict[str, Any]) -> dict[str, Any]:
        camera = self.mapping.cameras[0].name
        return {"images": {camera: np.ascontiguousarray(obs["image"][camera]["rgb"])}}

    def reset(self, trial: int) -> tuple[Any, str | None]:
        obs, _ = self._env.reset(seed=trial, options={"obj_init_options": {"episode_id": trial}})
        seen = self._seen(obs)
        height, width, _ = next(iter(seen["images"].values())).shape
        self.mapping = mapping_of(self._task, width, height)
        return seen, self._env.unwrapped.get_language_instruction()

    def step(self, action: NDArray[np.float64]) -> Moved:
        obs, reward, success, truncated, info = self._env.step(action)
        stats = {name: float(value) for name, value in info.get("episode_stats", {}).items() if isinstance(value, (bool, int, float, np.number, np.bool_))}
        return Moved(self._seen(obs), float(reward), bool(success), "max_steps" if truncated else "", stats)

    def fingerprint(self) -> bytes | None:
        return None

    def close(self) -> None:
        self._env.close()
