"""The adapters of published benchmarks, without the benchmarks.

Meta-World and Gymnasium-Robotics replay traces of the real environments (`benchmarks.json` names their versions). LIBERO, SimplerEnv and ManiSkill get values
of the shapes that their sources document, because they can't be installed here; the harness and LeRobot's server are stand-ins for their protocols.
"""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from limber import Limber, errors
from limber.runners import Runner
from limber.runners import gymnasium_robotics as robotics
from limber.runners import libero, maniskill, metaworld, simpler_env, vla_eval
from limber.testing import FakeGateway

TRACES: dict[str, Any] = json.loads((Path(__file__).parent / "benchmarks.json").read_text())


def arrays(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: arrays(each) for key, each in value.items()}
    return np.array(value)


class Replayed:
    """An environment that returns a trace, and checks that the adapter's actions are the recorded ones."""

    def __init__(self, trace: dict[str, Any]) -> None:
        self._trace = trace
        self._steps = iter(trace["steps"])
        self.seeds: list[int] = []
        self.tasks: list[Any] = []
        self.unwrapped = self
        self.data = types.SimpleNamespace(qpos=np.arange(3.0), qvel=np.zeros(2))
        reset = arrays(trace["reset"])
        self.observation_space = {key: types.SimpleNamespace(shape=each.shape) for key, each in reset.items()} if isinstance(reset, dict) else {}

    def set_task(self, task: Any) -> None:
        self.tasks.append(task)

    def reset(self, *, seed: int) -> Any:
        self.seeds.append(seed)
        return arrays(self._trace["reset"]), {}

    def step(self, action: np.ndarray) -> Any:
        step = next(self._steps)
        assert action.dtype == np.float32 and action.tolist() == pytest.approx(step["action"])
        return arrays(step["obs"]), step["reward"], step["terminated"], step["truncated"], step["info"]

    def close(self) -> None:
        pass


@pytest.mark.parametrize(("task", "size"), [("FetchReach-v4", 13), ("FetchPush-v4", 28)])
def test_fetch_tasks_replay_a_recorded_episode(task: str, size: int) -> None:
    trace = TRACES[task]
    world = robotics.World(Replayed(trace), task)
    seen, words = world.reset(7)
    named = dict(zip(seen["state_names"], seen["state"], strict=True))
    assert len(named) == size and words is not None and world.mapping.state == seen["state_names"]
    assert [named[f"goal_{axis}"] for axis in "xyz"] == trace["reset"]["desired_goal"]
    achieved = "grip" if size == 13 else "object"
    assert [named[f"{achieved}_{axis}"] for axis in "xyz"] == pytest.approx(trace["reset"]["achieved_goal"])
    moves = [world.step(np.array(step["action"])) for step in trace["steps"]]
    assert [move.ended for move in moves] == ["", "", "max_steps"] and not world.success_ends
    # The reach ends at its goal; the push, driven by the same rule, does not touch its block.
    assert moves[-1].success == (size == 13) and (moves[-1].metrics["distance_m"] < 0.05) == (size == 13)
    assert moves[-1].reward == (0.0 if size == 13 else -1.0)


def test_metaworld_replays_a_recorded_episode() -> None:
    trace, env = TRACES["reach-v3"], Replayed(TRACES["reach-v3"])
    package: Any = types.SimpleNamespace(MT1=lambda task, seed: types.SimpleNamespace(train_tasks=[f"{task} {seed} {i}" for i in range(50)], train_classes={task: lambda: env}))
    world = metaworld.World(package, "reach-v3", images=False)
    see, words = world.reset(51)
    seen = see()
    named = dict(zip(seen["state_names"], seen["state"], strict=True))
    assert (len(named), words, env.tasks) == (39, "reach", ["reach-v3 42 1"])
    assert [named["goal_x"], named["goal_y"], named["goal_z"]] == trace["reset"][-3:] and 0 <= named["gripper_open"] <= 1
    assert [named["hand_x"], named["previous_hand_x"]] == [trace["reset"][0], trace["reset"][18]]
    moves = [world.step(np.array(step["action"])) for step in trace["steps"]]
    assert [move.success for move in moves] == [False, False, True] and world.success_ends and world.max_steps == 500
    last = moves[-1].seen()["state"]
    hand, goal = last[:3], last[-3:]
    # The benchmark's own rule for this task.
    assert np.linalg.norm(hand - goal) < 0.1 and moves[-1].reward > moves[0].reward
    assert world.fingerprint() == np.array([0.0, 1.0, 2.0, 0.0, 0.0]).tobytes()


def test_libero_sends_rendered_images_and_keeps_the_sign_of_rotations() -> None:
    image = np.arange(2 * 2 * 3, dtype=np.uint8).reshape(2, 2, 3)
    obs = {
        "robot0_eef_pos": np.array([1.0, 2.0, 3.0]),
        "robot0_eef_quat": np.array([0.0, 0.0, np.sin(2.0), np.cos(2.0)]),
        "robot0_gripper_qpos": np.array([0.04, -0.04]),
        "agentview_image": image,
        "robot0_eye_in_hand_image": image + 1,
    }
    seen = libero.seen_of(obs)
    # 4 rad, not its equivalent of -2.28 rad: w is negative.
    assert seen["state"].tolist() == pytest.approx([1, 2, 3, 0, 0, 4, 0.04, -0.04])
    assert seen["images"]["agentview"].tolist() == image.tolist() and seen["images"]["wrist"].tolist() == (image + 1).tolist()
    assert libero.axis_angle(np.array([0.0, 0.0, 0.0, 1.0000001])).tolist() == [0, 0, 0]
    assert set(libero.MAPPING.openpi) == {camera.name for camera in libero.MAPPING.cameras} | {"state", "prompt"}


def test_libero_seeds_before_each_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    obs = {"robot0_eef_pos": np.zeros(3), "robot0_eef_quat": np.array([0.0, 0, 0, 1]), "robot0_gripper_qpos": np.zeros(2)}
    obs |= {name: np.zeros((2, 2, 3), np.uint8) for name in ("agentview_image", "robot0_eye_in_hand_image")}

    class Env:
        def __init__(self, **_: Any) -> None:
            pass

        def seed(self, seed: int) -> None:
            done.append(f"seed {seed}")

        def reset(self) -> None:
            done.append("reset")

        def set_init_state(self, start: str) -> Any:
            done.append(start)
            return obs

        def step(self, action: list[float]) -> Any:
            return obs, 0.0, False, {}

    modules = {"torch": {"load": lambda path, weights_only: ["start 0", "start 1"]}, "libero": {}, "libero.libero": {}, "libero.libero.envs": {"OffScreenRenderEnv": Env}}
    for name, content in modules.items():
        module = types.ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)
    task = types.SimpleNamespace(language="stack", problem_folder="a", init_states_file="b", bddl_file="c")
    world = libero.World(types.SimpleNamespace(get_libero_path=lambda kind: "."), task, 220)
    for trial in (0, 3):
        world.reset(trial)
    assert done == ["seed 7", "reset", "start 0", "seed 7", "reset", "start 1"]


def test_simpler_env_declares_each_robots_camera_and_gripper() -> None:
    picture = np.zeros((4, 6, 3), np.uint8)

    class Env:
        unwrapped = types.SimpleNamespace(get_language_instruction=lambda: "put carrot on plate")

        def reset(self, **asked: Any) -> Any:
            assert asked == {"seed": 3, "options": {"obj_init_options": {"episode_id": 3}}}
            return {"image": {"3rd_view_camera": {"rgb": picture}}}, {}

        def step(self, action: np.ndarray) -> Any:
            return {"image": {"3rd_view_camera": {"rgb": picture}}}, np.float32(0), True, True, {"episode_stats": {"moved": np.bool_(True), "who": "x"}}

    world = simpler_env.World(Env(), "widowx_carrot_on_plate")
    seen, words = world.reset(3)
    assert (words, seen["images"]["3rd_view_camera"].shape, world.mapping.cameras[0].width) == ("put carrot on plate", (4, 6, 3), 6)
    move = world.step(np.zeros(7))
    assert (move.success, move.ended, move.metrics) == (True, "max_steps", {"moved": 1.0}) and not world.success_ends
    google, widowx = simpler_env.mapping_of("google_robot_pick_coke_can").gripper, world.mapping.gripper
    assert google is not None and widowx is not None and (google.open, widowx.open) == (-1, 1)


def test_maniskill_unpacks_batches_of_one_world() -> None:
    class Tensor:
        """A batched tensor, as far as the adapter uses it."""

        def __init__(self, values: Any) -> None:
            self._values = np.asarray(values)

        def cpu(self) -> np.ndarray:
            return self._values

    def obs() -> dict[str, Any]:
        extra = {"is_grasped": Tensor([True]), "tcp_pose": Tensor([[0, 0, 0.2, 1, 0, 0, 0]])}
        return {"agent": {"qpos": Tensor([[0.1, 0.2]])}, "extra": extra, "sensor_data": {"base_camera": {"rgb": Tensor(np.zeros((1, 4, 6, 3), np.uint8))}}}

    class Env:
        unwrapped = types.SimpleNamespace(get_state=lambda: Tensor([[1.0, 2.0]]))

        def reset(self, seed: int) -> Any:
            return obs(), {}

        def step(self, action: np.ndarray) -> Any:
            assert action.shape == (1, 7)
            return obs(), Tensor([0.5]), Tensor([True]), Tensor([False]), {"success": Tensor([False]), "elapsed_steps": Tensor([1])}

    world = maniskill.World(Env(), 50)
    assert world.mapping.state == ("agent.qpos.0", "agent.qpos.1", "extra.is_grasped", *(f"extra.tcp_pose.{i}" for i in range(7)))
    assert (world.mapping.cameras[0].name, world.mapping.cameras[0].width) == ("base_camera", 6)
    move = world.step(np.zeros(7))
    assert (move.reward, move.success, move.ended, move.metrics) == (0.5, False, "fell", {"success": 0.0})
    assert world.fingerprint() == np.array([1.0, 2.0]).tobytes()


class Spec:
    """A `DimSpec` of the harness."""

    def __init__(self, dims: int, format: str, range: tuple[float, float] | None = None) -> None:
        self.dims, self.format, self.range = dims, format, range


class Drawer:
    """A benchmark of the harness: asynchronous, with one task, solved by three equal actions."""

    spec = {"position": Spec(3, "delta_xyz", (-1, 1)), "rotation": Spec(3, "axis_angle"), "gripper": Spec(1, "binary_close_positive", (-1, 1))}

    def __init__(self, suite: str = "", limit: int = 5) -> None:
        self.suite, self.limit, self.calls = suite, limit, 0

    def get_tasks(self) -> list[dict[str, Any]]:
        return [{"name": "open it"}, {"name": "close it"}]

    def get_metadata(self) -> dict[str, Any]:
        return {"max_steps": self.limit}

    def get_action_spec(self) -> dict[str, Any]:
        return self.spec

    async def start_episode(self, task: dict[str, Any], recorder: Any) -> None:
        self.task, self.calls = task, 0

    async def get_observation(self) -> dict[str, Any]:
        return {"images": {"agentview": np.zeros((4, 6, 3), np.uint8)}, "states": np.arange(2.0), "task_description": self.task["name"]}

    async def apply_action(self, action: dict[str, Any]) -> None:
        assert action["actions"].shape == (7,)
        self.calls += 1

    async def is_done(self) -> bool:
        return self.calls >= 3

    async def get_result(self) -> dict[str, Any]:
        return {"success": self.calls == 3, "drawers": 1}

    def cleanup(self) -> None:
        pass


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch) -> None:
    """The harness's modules, as far as the adapter imports them."""
    modules = {"vla_eval": {"__version__": "0.8.0"}, "vla_eval.benchmarks": {}, "vla_eval.benchmarks.base": {"Benchmark": Drawer}, "vla_eval.recording": {"NullEpisodeRecorder": object}, "drawers": {"Drawer": Drawer}}
    for name, content in modules.items():
        module = types.ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)


def test_a_benchmark_of_the_harness_declares_its_mapping(harness: None) -> None:
    suite = vla_eval.Suite(["drawers:Drawer?suite=a_b&limit=2", "drawers:Drawer#1"])
    assert (suite.harness, suite.tasks) == ("vla-eval 0.8.0", ["drawers:Drawer?suite=a_b&limit=2#0", "drawers:Drawer?suite=a_b&limit=2#1", "drawers:Drawer#1"])
    world = suite.open(suite.tasks[2], "")
    seen, words = world.reset(4)
    mapping = world.mapping
    assert mapping is not None and words == "close it" and world._task["name"] == "close it"
    assert (mapping.action_space, mapping.reference, mapping.rotation) == ("ee_delta_6d_grip", "relative", "axis_angle")
    assert (mapping.gripper.index, mapping.gripper.closed, mapping.high[3], mapping.high[0]) == (6, 1, float("inf"), 1)  # type: ignore[union-attr]
    moves = [world.step(np.zeros(7)) for _ in range(3)]
    assert [(move.success, move.ended) for move in moves] == [(False, ""), (False, ""), (True, "max_steps")] and moves[2].metrics["drawers"] == 1
    short = suite.open(suite.tasks[0], "")
    short.reset(0)
    assert [short.step(np.zeros(7)).ended for _ in range(2)] == ["", "max_steps"]
    world.close()
    short.close()
    with pytest.raises(errors.BadInput, match="not a benchmark"):
        vla_eval.Suite(["drawers:Spec"])


msgpack = pytest.importorskip("msgpack")


class EnvServer:
    """An environment server, at the keys and with the rules of LeRobot's. Its world is solved when the sum of the first values reaches 1."""

    feature = {"kind": "tensor", "dtype": "float32", "semantics": "toy-delta-v1"}

    def __init__(self) -> None:
        self.tokens: list[str] = []
        self.log: list[str] = []
        self.seeds: list[int] = []
        self.break_step = 0
        self.session_descriptor: Any = self.descriptor
        self.closed = False
        self._session, self._generation, self._seen = "", 0, set[str]()
        self._x, self._steps = 0.0, 0

    @property
    def descriptor(self) -> dict[str, Any]:
        state = {**self.feature, "name": "observation.state", "shape": [2], "names": ["a", "b"]}
        image = {"name": "observation.images.top", "shape": [4, 6, 3], "dtype": "uint8", "kind": "rgb", "names": [], "semantics": "toy-delta-v1"}
        action = {**self.feature, "name": "action", "shape": [2], "names": ["da", "db"]}
        more = {"sim_type": "toy", "control": "delta", "fps": 20.0, "clocks": ["lockstep", "realtime"], "tasks": {"reach": ["0", "1"]}, "max_episode_steps": 5}
        return {"features": [state, image], "action_feature": action, "sim_build": {"numpy": "2"}, **more}

    @staticmethod
    def _tensor(values: Any, dtype: str) -> dict[str, Any]:
        array = np.asarray(values, dtype)
        return {"__lerobot_type__": "tensor", "dtype": dtype, "shape": list(array.shape), "endianness": "little", "data": array.tobytes()}

    def _result(self) -> dict[str, Any]:
        solved = self._x >= 1
        obs = {"observation.state": self._tensor([[self._x, 0]], "float32"), "observation.images.top": self._tensor(np.full((1, 4, 6, 3), 9), "uint8")}
        flags = {name: self._tensor([value], "bool") for name, value in (("terminated", solved), ("truncated", self._steps >= 5), ("is_success", solved))}
        return {"obs": obs, "task": ["move to the target"], "reward": self._tensor([float(solved)], "float32"), **flags, "sim_time": 0.0, "step": self._tensor([self._steps], "int64")}

    def query(self, key: str, payload: bytes, timeout: float) -> list[bytes]:
        sent = msgpack.unpackb(payload)
        root = "lerobot/env/v1/deployments/bench/"
        assert key.startswith(root) and sent["version"] == 1
        operation = key.rpartition("/")[2] if not key.endswith("/control") else sent["body"]["operation"]
        self.log.append(operation)
        kind, body = "accepted", self._answer(operation, sent)
        if self._session and sent["session_id"]:
            kind = "ack"
        if body is None:
            kind, body = "error", {"code": "stale", "message": "Duplicate request"}
        if operation == "step" and self.break_step == 2:
            sent["request_id"] = "another"
        return [msgpack.packb({**sent, "message_type": kind, "body": body})] if operation != "step" or self.break_step != 1 else []

    def _answer(self, operation: str, sent: dict[str, Any]) -> dict[str, Any] | None:
        if operation == "describe":
            return {"instance": "boot1", "descriptor": self.descriptor}
        if operation == "open":
            assert sent["instance_id"] == "boot1" and sent["body"]["clock"] == "lockstep"
            self._session, self._generation = "s1", 0
            return {"session": "s1", "generation": 0, "descriptor": self.session_descriptor, "result": self._result()}
        if sent["generation"] != self._generation or sent["request_id"] in self._seen or sent["session_id"] != self._session:
            return None
        self._seen.add(sent["request_id"])
        if operation == "reset":
            self._generation, self._x, self._steps = self._generation + 1, 0.0, 0
            self.seeds += sent["body"]["seeds"]
            return {"generation": self._generation, "result": self._result()}
        if operation == "step":
            actions = sent["body"]["actions"]
            assert (actions["dtype"], actions["shape"]) == ("float32", [1, 2])
            self._x += float(np.frombuffer(actions["data"], "<f4")[0])
            self._steps += 1
            return {"result": self._result()}
        return {}

    def close(self) -> None:
        self.closed = True

    def declare_token(self, key: str) -> Any:
        self.tokens.append(key)
        return types.SimpleNamespace(undeclare=lambda: self.tokens.remove(key))


@pytest.fixture
def env_server() -> Iterator[EnvServer]:
    yield EnvServer()


def run(client: Limber, gateway: FakeGateway, server: EnvServer, policy: Any, tasks: list[str]) -> Any:
    from limber.runners import lerobot_env

    gateway.policy = policy
    job = gateway.queue("bench/toy", 3, action_space="continuous_nd", replan_steps=1)
    suite = lerobot_env.Suite(tasks, deployment="bench", transport=server)
    Runner(client, suite, tell=lambda line: None).run()
    return job


def test_episodes_run_over_an_environment_server(client: Limber, gateway: FakeGateway, env_server: EnvServer) -> None:
    job = run(client, gateway, env_server, lambda seen, horizon: [0.5, 0.0], ["reach"])
    assert job.status == "completed" and job.harness == "lerobot env server toy (numpy 2)"
    assert [(job.reports[i].termination, job.reports[i].steps, getattr(job.reports[i], "return")) for i in range(3)] == [("success", 2, 1.0)] * 3
    # Two tasks, each in a session of its own, which ends.
    assert env_server.seeds == [0, 1, 0] and env_server.log.count("open") == 2 and env_server.log[-1] == "close" and env_server.tokens == []
    seen = next(each.observations[0] for each in gateway.received if hasattr(each, "observations"))
    assert (list(seen.proprio_names), seen.frames[0].camera) == (["a", "b"], "top")


def test_an_unsolved_episode_ends_at_the_servers_limit(client: Limber, gateway: FakeGateway, env_server: EnvServer) -> None:
    job = run(client, gateway, env_server, lambda seen, horizon: [0.0, 0.0], ["reach/1"])
    assert [(each.termination, each.steps) for each in job.reports.values()] == [("max_steps", 5)] * 3


@pytest.mark.parametrize(("how", "words"), [(1, "0 servers answered"), (2, "answered another request")])
def test_a_step_whose_answer_is_lost_is_never_repeated(client: Limber, gateway: FakeGateway, env_server: EnvServer, how: int, words: str) -> None:
    env_server.break_step = how
    job = run(client, gateway, env_server, lambda seen, horizon: [0.5, 0.0], ["reach/0"])
    assert (job.status, job.error.code) == ("failed", "harness_failed") and words in job.error.message
    # Each fault opens another session instead of a second attempt.
    assert env_server.log.count("step") == env_server.log.count("open") == 3 and "close" not in env_server.log


@pytest.mark.parametrize("descriptor", [None, {"features": []}])
def test_a_session_that_cannot_be_used_is_closed(env_server: EnvServer, descriptor: Any) -> None:
    from limber.runners import lerobot_env

    suite = lerobot_env.Suite([], deployment="bench", transport=env_server)
    env_server.session_descriptor = descriptor
    with pytest.raises(lerobot_env.EnvFault, match="descriptor"):
        suite.open("reach/0", "")
    assert env_server.log[-2:] == ["open", "close"] and env_server.tokens == []


def test_a_suite_that_cannot_be_used_closes_its_transport(env_server: EnvServer, monkeypatch: pytest.MonkeyPatch) -> None:
    from limber.runners import lerobot_env

    monkeypatch.setattr(lerobot_env, "open_transport", lambda connect: env_server)
    lerobot_env.Suite([], deployment="bench")
    assert not env_server.closed
    with pytest.raises(errors.BadInput):
        lerobot_env.Suite(["push"], deployment="bench")
    assert env_server.closed


def test_libero_images_of_both_servers_reach_policies_as_rendered(harness: None) -> None:
    from limber.runners import lerobot_env

    turned = np.arange(4 * 6 * 3, dtype=np.uint8).reshape(4, 6, 3)
    server = EnvServer()
    client = lerobot_env.EnvClient(server, "bench")
    client.descriptor = {**server.descriptor, "sim_type": "libero", "features": [{"name": "observation.images.image", "shape": [4, 6, 3], "dtype": "uint8", "kind": "rgb", "names": [], "semantics": "x"}]}
    world = lerobot_env.World(client)
    assert [camera.name for camera in world.mapping.cameras] == ["agentview"]
    assert world._seen({"obs": {"observation.images.image": turned[None]}})["images"]["agentview"].tolist() == turned[::-1, ::-1].tolist()
    drawer = vla_eval.World(Drawer(), Drawer().get_tasks()[0], "vla_eval.benchmarks.libero.benchmark:LIBEROBenchmark")
    assert vla_eval.seen_of({"images": {"agentview": turned}}, drawer._turned)["images"]["agentview"].tolist() == turned[::-1, ::-1].tolist()
    drawer.close()


def test_an_unknown_task_of_a_server_is_refused(env_server: EnvServer) -> None:
    from limber.runners import lerobot_env

    with pytest.raises(errors.BadInput, match="groups are reach"):
        lerobot_env.Suite(["push"], deployment="bench", transport=env_server)
