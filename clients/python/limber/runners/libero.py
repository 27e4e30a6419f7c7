"""LIBERO: language-conditioned tabletop tasks of a Franka arm. `libero_spatial`, `libero_object`, `libero_goal` and `libero_10` have 10 tasks each and
`libero_90` has 90; `libero_spatial/3` is one task. It needs a GPU, or EGL or OSMesa, to render.

Sources: Physical-Intelligence/openpi at 04a8d0c, `examples/libero/main.py`: images of 256 x 256 pixels, rotated by 180 degrees for the server, the state of 8 numbers with
the rotation as an axis-angle vector without a preferred sign of the quaternion, 10 settling steps of the action (0, 0, 0, 0, 0, 0, -1), 50 stored starts
per task, the environment's seed 7, at most 220, 280, 300, 520 and 400 steps, and success when the environment is done.
Lifelong-Robot-Learning/LIBERO at 4f0dd18, `libero/libero/envs/env_wrapper.py`: the controller OSC_POSE at 20 Hz, relative by default, which scales numbers
from -1 to 1; `libero/libero/benchmark/__init__.py`: names, instructions and files of the tasks.
allenai/vla-evaluation-harness at e1ee9ad, `docs/reproductions/common-pitfalls.md`: 1 closes the gripper and -1 opens it.
The gateway's profiles for LIBERO rotate the images themselves, so policies get them as the simulator renders them, upside down.
huggingface/lerobot at a8401e9, `src/lerobot/sims/native/libero.py`: PyTorch 2.6 and later read the stored starts only with `weights_only=False`.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limber.errors import BadInput
from limber.runners.base import Moved
from limber.runners.mapping import Camera, Gripper, Mapping
from limber.runners.suites import needed, version_of

_INSTALL = "pip install 'hf-libero==0.1.4'"
_MOST_STEPS = {"libero_spatial": 220, "libero_object": 280, "libero_goal": 300, "libero_10": 520, "libero_90": 400}
_SETTLING = [0.0] * 6 + [-1.0]
MAPPING = Mapping(
    action=("dx", "dy", "dz", "rx", "ry", "rz", "gripper"),
    low=(-1.0,) * 7,
    high=(1.0,) * 7,
    units=("1",),
    reference="relative",
    rotation="axis_angle",
    gripper=Gripper(6, -1.0, 1.0),
    cameras=(Camera("agentview", 256, 256), Camera("wrist", 256, 256)),
    state=("x", "y", "z", "rx", "ry", "rz", "left_finger", "right_finger"),
    action_space="ee_delta_6d_grip",
    dt_s=0.05,
    openpi={"agentview": "observation/image", "wrist": "observation/wrist_image", "state": "observation/state", "prompt": "prompt"},
    openpi_turned=True,
)


def axis_angle(quaternion: NDArray[np.float64]) -> NDArray[np.float64]:
    """Converts a quaternion (x, y, z, w) to an axis-angle vector of a length from 0 to 2 pi, in radians."""
    w = min(1.0, max(-1.0, float(quaternion[3])))
    sine = math.sqrt(1.0 - w * w)
    return np.zeros(3) if sine < 1e-9 else np.asarray(quaternion[:3], np.float64) * (2.0 * math.acos(w) / sine)


def seen_of(obs: dict[str, Any]) -> dict[str, Any]:
    """Converts LIBERO's observation to the mapping's."""
    state = np.concatenate([obs["robot0_eef_pos"], axis_angle(obs["robot0_eef_quat"]), obs["robot0_gripper_qpos"]])
    images = {"agentview": obs["agentview_image"], "wrist": obs["robot0_eye_in_hand_image"]}
    return {"state": state, "state_names": MAPPING.state, "images": {name: np.ascontiguousarray(image) for name, image in images.items()}}


class Suite:
    """LIBERO."""

    scenarios = ("lifelong-robot-learning/libero",)

    def __init__(self, tasks: Sequence[str], *, images: bool = True) -> None:
        self._libero = needed("libero.libero", _INSTALL)
        self._benchmarks = importlib.import_module("libero.libero.benchmark").get_benchmark_dict()
        self.tasks = []
        for named in tasks or ["libero_spatial"]:
            suite, _, number = named.partition("/")
            if suite not in _MOST_STEPS:
                raise BadInput(f"{named} is not a LIBERO task; suites are {', '.join(_MOST_STEPS)}, and tasks such as libero_spatial/3")
            self.tasks += [named] if number else [f"{suite}/{i}" for i in range(self._benchmarks[suite]().n_tasks)]
        self.harness = f"libero {version_of('libero', 'hf-libero', 'libero')}"

    def open(self, task: str, scenario: str) -> World:
        suite, _, number = task.partition("/")
        return World(self._libero, self._benchmarks[suite]().get_task(int(number)), _MOST_STEPS[suite])


class World:
    """One task."""

    mapping: Mapping = MAPPING
    success_ends = True

    def __init__(self, libero: Any, task: Any, max_steps: int) -> None:
        self.max_steps = max_steps
        self._words = task.language
        starts = Path(libero.get_libero_path("init_states")) / task.problem_folder / task.init_states_file
        self._starts = importlib.import_module("torch").load(starts, weights_only=False)
        scene = Path(libero.get_libero_path("bddl_files")) / task.problem_folder / task.bddl_file
        make = importlib.import_module("libero.libero.envs").OffScreenRenderEnv
        self._env = make(bddl_file_name=str(scene), camera_heights=256, camera_widths=256)

    def reset(self, trial: int) -> tuple[Any, str | None]:
        # Each time, because a reset draws from the generator: an episode must not depend on those that ran before it.
        self._env.seed(7)
        self._env.reset()
        obs = self._env.set_init_state(self._starts[trial % len(self._starts)])
        for _ in range(10):
            obs, _, _, _ = self._env.step(_SETTLING)
        return seen_of(obs), self._words

    def step(self, action: NDArray[np.float64]) -> Moved:
        obs, reward, done, _ = self._env.step(action.tolist())
        return Moved(seen_of(obs), float(reward), bool(done))

    def fingerprint(self) -> bytes | None:
        return np.asarray(self._env.get_sim_state(), np.float64).tobytes()

    def close(self) -> None:
        self._env.close()
