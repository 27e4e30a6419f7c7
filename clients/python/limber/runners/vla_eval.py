"""The vla-evaluation-harness of AllenAI, which has adapters for LIBERO, SimplerEnv, CALVIN, RoboCasa and others. A task is the import path of a benchmark and
its parameters: `vla_eval.benchmarks.libero.benchmark:LIBEROBenchmark?suite=libero_spatial&send_state=true`; `#3` at the end is one of its tasks.

Sources, in allenai/vla-evaluation-harness at e1ee9ad (vla-eval 0.8.0 on PyPI): `src/vla_eval/benchmarks/base.py`: the asynchronous methods of a benchmark,
and `max_steps` in its metadata; `src/vla_eval/runners/sync_runner.py`: the order of the calls; `src/vla_eval/types.py`: observations have `images`, `states`
or `state`, and `task_description`, and actions `actions`; `src/vla_eval/specs.py`: the declared components and their formats;
`src/vla_eval/benchmarks/*/benchmark.py`: `episode_idx` in the task chooses the start. The harness reports no rewards; the return of an episode is 1 if it
succeeded.
"""

from __future__ import annotations

import asyncio
import importlib
import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qsl

import numpy as np
from numpy.typing import NDArray

from limber.errors import BadInput
from limber.runners.base import Moved
from limber.runners.mapping import Camera, Gripper, Mapping
from limber.runners.suites import needed, version_of

_INSTALL = "pip install 'vla-eval==0.8.0', and the benchmark's own packages"
_REFERENCE = {"delta_xyz": "relative", "absolute_xyz": "absolute", "joint_positions": "absolute"}
_ROTATION = {"axis_angle": "axis_angle", "euler_xyz": "euler_xyz", "quaternion_xyzw": "quaternion_xyzw"}
#: Values that open and close, by format.
_GRIPPER = {"binary_close_positive": (-1.0, 1.0), "binary_close_negative": (1.0, -1.0), "binary_close_01": (0.0, 1.0)}


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def mapping_of(action: dict[str, Any], seen: dict[str, Any], task: str) -> Mapping:
    """Returns the mapping that a benchmark's action spec and its first observation declare. Raises BadInput if it declares no dimensions."""
    names: list[str] = []
    low: list[float] = []
    high: list[float] = []
    reference = rotation = ""
    gripper = None
    for name, spec in action.items():
        if spec.dims < 1:
            raise BadInput(f"{task} does not declare how many values its action's {name} has")
        if name == "gripper" and spec.format in _GRIPPER:
            gripper = Gripper(len(names), *_GRIPPER[spec.format])
        reference = reference or _REFERENCE.get(spec.format, "")
        rotation = rotation or _ROTATION.get(spec.format, "")
        names += [name] if spec.dims == 1 else [f"{name}_{i}" for i in range(spec.dims)]
        low += [spec.range[0] if spec.range else -float("inf")] * spec.dims
        high += [spec.range[1] if spec.range else float("inf")] * spec.dims
    is_hand = list(action) == ["position", "rotation", "gripper"] and len(names) == 7 and reference == "relative"
    return Mapping(
        action=tuple(names),
        low=tuple(low),
        high=tuple(high),
        reference=reference,
        rotation=rotation,
        gripper=gripper,
        cameras=tuple(Camera(name, image.shape[1], image.shape[0]) for name, image in seen["images"].items()),
        state=tuple(f"state_{i}" for i in range(len(seen["state"]) if seen["state"] is not None else 0)),
        action_space="ee_delta_6d_grip" if is_hand else "continuous_nd",
    )


def seen_of(obs: dict[str, Any], turned: bool) -> dict[str, Any]:
    """Converts the harness's observation. With `turned`, rotates its images by 180 degrees."""
    state = obs.get("states", obs.get("state"))
    images = {name: np.ascontiguousarray(image[::-1, ::-1] if turned else image) for name, image in obs.get("images", {}).items()}
    return {"images": images, "state": None if state is None else np.asarray(state, np.float64).ravel()}


class Suite:
    """Benchmarks of the harness."""

    scenarios: Sequence[str] = ()

    def __init__(self, tasks: Sequence[str], *, images: bool = True) -> None:
        needed("vla_eval.benchmarks.base", _INSTALL)
        if not tasks:
            raise BadInput("vla-eval needs --tasks, such as vla_eval.benchmarks.libero.benchmark:LIBEROBenchmark?suite=libero_spatial")
        self.tasks = []
        for named in tasks:
            spec, _, number = named.partition("#")
            self.tasks += [named] if number else [f"{spec}#{i}" for i in range(len(self._made(spec).get_tasks()))]
        self.harness = f"vla-eval {version_of('vla_eval', 'vla-eval')}"

    def _made(self, spec: str) -> Any:
        path, _, query = spec.partition("?")
        module, _, name = path.partition(":")
        made = getattr(needed(module, _INSTALL), name, None)
        base = importlib.import_module("vla_eval.benchmarks.base").Benchmark
        if not (isinstance(made, type) and issubclass(made, base)):
            raise BadInput(f"{path} is not a benchmark of the harness; its form is package.module:Class")
        return made(**{key: _value(value) for key, value in parse_qsl(query)})

    def open(self, task: str, scenario: str) -> World:
        spec, _, number = task.partition("#")
        benchmark = self._made(spec)
        return World(benchmark, benchmark.get_tasks()[int(number)], spec)


class World:
    """One task of a benchmark."""

    mapping: Mapping | None = None
    success_ends = False

    def __init__(self, benchmark: Any, task: dict[str, Any], name: str) -> None:
        self._benchmark = benchmark
        self._task = task
        self._name = name
        self._loop = asyncio.new_event_loop()
        self._steps = 0
        # The harness rotates LIBERO's images for its servers, and so do the gateway's profiles for LIBERO: policies get them as in `libero`.
        self._turned = "libero" in name.lower()
        self.max_steps = int(benchmark.get_metadata().get("max_steps", 1000))

    def _await(self, work: Any) -> Any:
        return self._loop.run_until_complete(work)

    def reset(self, trial: int) -> tuple[Any, str | None]:
        self._steps = 0
        recorder = importlib.import_module("vla_eval.recording").NullEpisodeRecorder()
        self._await(self._benchmark.start_episode({**self._task, "episode_idx": trial}, recorder=recorder))
        obs = self._await(self._benchmark.get_observation())
        seen = seen_of(obs, self._turned)
        self.mapping = mapping_of(self._benchmark.get_action_spec(), seen, self._name)
        return seen, obs.get("task_description") or None

    def step(self, action: NDArray[np.float64]) -> Moved:
        self._steps += 1
        self._await(self._benchmark.apply_action({"actions": action.astype(np.float32)}))
        done = self._await(self._benchmark.is_done()) or self._steps >= self.max_steps
        result = dict(self._await(self._benchmark.get_result())) if done else {}
        success = bool(result.get("success", False))
        return Moved(seen_of(self._await(self._benchmark.get_observation()), self._turned), float(success), success, "max_steps" if done else "", result)

    def fingerprint(self) -> bytes | None:
        return None

    def close(self) -> None:
        self._benchmark.cleanup()
        self._loop.close()
