"""ManiSkill 3: tabletop tasks of a Panda arm in SAPIEN, such as `PickCube-v1`. It needs Vulkan to render.

Sources, in haosulab/ManiSkill: `mani_skill/envs/tasks/tabletop/pick_cube.py` at 0a78153: observations are `agent.qpos`, `agent.qvel` and `extra`
(`tcp_pose` as position and quaternion w, x, y, z; with `state_dict`, the objects' poses too), and the camera `base_camera` of 128 x 128 pixels;
`info["success"]`; 50 steps. `mani_skill/agents/controllers/pd_ee_pose.py` at 0a78153: `pd_ee_delta_pose` reads numbers from -1 to 1, an offset and Euler
angles XYZ, and multiplies the angles by `rot_lower`, whose sign depends on the version. `mani_skill/agents/robots/panda/panda.py` at 0ade688: 0.1 m and
0.1 rad, and a gripper from -0.01 (closed) to 0.04. `mani_skill/utils/registration.py` at 1337dea: the step limit is registered with the task, and all
values are tensors with a leading batch axis. The baselines report success at any step (`success_once`), which is used here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limber.runners.base import Moved
from limber.runners.mapping import Camera, Gripper, Mapping
from limber.runners.suites import needed, version_of

_INSTALL = "pip install 'mani-skill>=3.0.0b20'"
#: ManiSkill controls at 20 Hz unless a task says otherwise.
_RATE_HZ = 20


def plain(value: Any) -> NDArray[Any]:
    """Converts a batched tensor of one world to an array without the batch axis."""
    array = np.asarray(value.cpu() if hasattr(value, "cpu") else value)
    return array[0] if array.ndim > 0 else array


def fields_of(value: Any, prefix: str = "") -> Iterator[tuple[str, float]]:
    """Yields the numbers of a nested observation by name, in the order of the observation."""
    for key, each in value.items():
        if hasattr(each, "items"):
            yield from fields_of(each, f"{prefix}{key}.")
            continue
        row = np.atleast_1d(plain(each)).ravel()
        yield from ((f"{prefix}{key}" + (f".{i}" if row.size > 1 else ""), float(number)) for i, number in enumerate(row))


def seen_of(obs: dict[str, Any]) -> dict[str, Any]:
    """Converts ManiSkill's observation: the numbers of `agent` and `extra`, and the images of `sensor_data`."""
    numbers = dict(fields_of({part: obs[part] for part in ("agent", "extra") if part in obs}))
    images = {name: np.ascontiguousarray(plain(data["rgb"])) for name, data in obs.get("sensor_data", {}).items() if "rgb" in data}
    return {"state": list(numbers.values()), "state_names": list(numbers), "images": images}


class Suite:
    """ManiSkill 3."""

    scenarios = ("haosulab/maniskill3", "haosulab/maniskill")

    def __init__(self, tasks: Sequence[str], *, images: bool = False) -> None:
        needed("mani_skill.envs", _INSTALL)
        self._gymnasium = needed("gymnasium", _INSTALL)
        self.tasks = list(tasks or ["PickCube-v1"])
        self.harness = f"mani_skill {version_of('mani_skill', 'mani_skill')}"
        self._images = images

    def open(self, task: str, scenario: str) -> World:
        env = self._gymnasium.make(task, num_envs=1, obs_mode="rgb" if self._images else "state_dict", control_mode="pd_ee_delta_pose")
        return World(env, env.spec.max_episode_steps or 1000)


class World:
    """One task."""

    success_ends = True

    def __init__(self, env: Any, max_steps: int) -> None:
        self._env = env
        self.max_steps = max_steps
        first = seen_of(env.reset(seed=0)[0])
        self.mapping = Mapping(
            action=("dx", "dy", "dz", "roll", "pitch", "yaw", "gripper"),
            low=(-1.0,) * 7,
            high=(1.0,) * 7,
            units=("1",),
            reference="relative",
            rotation="euler_xyz",
            gripper=Gripper(6, 1.0, -1.0),
            cameras=tuple(Camera(name, image.shape[1], image.shape[0]) for name, image in first["images"].items()),
            state=tuple(first["state_names"]),
            dt_s=1 / _RATE_HZ,
        )

    def reset(self, trial: int) -> tuple[Any, str | None]:
        return seen_of(self._env.reset(seed=trial)[0]), None

    def step(self, action: NDArray[np.float64]) -> Moved:
        obs, reward, terminated, truncated, info = self._env.step(action.astype(np.float32)[None])
        success = bool(plain(info["success"]))
        ended = "max_steps" if plain(truncated) else "fell" if plain(terminated) and not success else ""
        return Moved(seen_of(obs), float(plain(reward)), success, ended, dict(fields_of({k: v for k, v in info.items() if k != "elapsed_steps"})))

    def fingerprint(self) -> bytes | None:
        state = self._env.unwrapped.get_state()
        return plain(state).astype(np.float64).tobytes()

    def close(self) -> None:
        self._env.close()
