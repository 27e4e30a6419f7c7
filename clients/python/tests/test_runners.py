"""The runner of external evaluations: leases, stops, resumption, refusals, and worlds and policies that fail."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any

import grpc
import numpy as np
import pytest

from limber import Limber, errors
from limber._frames import Observation
from limber._gen.limber.policy.v1 import policy_service_pb2 as wire
from limber._gen.limber.v1 import action_pb2, registry_pb2, registry_service_pb2
from limber._gen.limber.v1 import input_contract_pb2 as contract
from limber.runners import Camera, Gripper, Mapping, Moved, Runner, suite_of
from limber.runners import base
from limber.runners.base import leaving_by_signal
from limber.runners.mapping import Declared, conflicts
from limber.runners.policy import NativePolicy, OpenpiPolicy, PolicyFault
from limber.serve import PolicyServer, Served
from limber.testing import FakeEvaluation, FakeGateway

MAPPING = Mapping(
    action=("dx", "gripper"),
    low=(-1.0, -1.0),
    high=(1.0, 1.0),
    units=("1",),
    reference="relative",
    gripper=Gripper(1, -1.0, 1.0),
    cameras=(Camera("front", 8, 8),),
    state=("x", "goal"),
    action_space="base_twist_2d",
    dt_s=0.1,
)
Step = Callable[["Line", np.ndarray], Any]


class Line:
    """A world: a point that reaches 1 by positive actions."""

    mapping: Mapping | None = MAPPING
    max_steps = 6
    success_ends = True

    def __init__(self, task: str, step: Step | None = None) -> None:
        self.task = task
        self.trials: list[int] = []
        self.actions: list[np.ndarray] = []
        self.x = 0.0
        self.closed = False
        self.threads = {threading.current_thread()}
        self._step = step

    def _seen(self) -> dict[str, Any]:
        return {"state": [self.x, 1.0], "state_names": MAPPING.state}

    def reset(self, trial: int) -> tuple[Any, str | None]:
        self.threads.add(threading.current_thread())
        self.trials.append(trial)
        self.x = 0.0
        return self._seen(), f"do {self.task}"

    def step(self, action: np.ndarray) -> Moved:
        self.threads.add(threading.current_thread())
        self.actions.append(action)
        if self._step is not None:
            return self._step(self, action)  # type: ignore[no-any-return]
        self.x += float(action[0])
        return Moved(self._seen(), -abs(1 - self.x), self.x >= 1, metrics={"x": self.x, "words": "no", "nan": float("nan")})

    def fingerprint(self) -> bytes | None:
        return np.float64(self.x).tobytes()

    def close(self) -> None:
        self.threads.add(threading.current_thread())
        self.closed = True


class Lines:
    """The suite of these worlds."""

    harness = "lines 1.0"
    scenarios = ("bench/lines",)

    def __init__(self, tasks: tuple[str, ...] = ("a",), step: Step | None = None) -> None:
        self.tasks = tasks
        self.opened: list[Line] = []
        self._step = step

    def open(self, task: str, scenario: str) -> Line:
        self.opened.append(Line(task, self._step))
        return self.opened[-1]


@pytest.fixture
def gateway() -> Any:
    with FakeGateway(lambda seen, horizon: [0.5, 3.0]) as fake:
        yield fake


def run(client: Limber, suite: Lines, **options: Any) -> Runner:
    runner = Runner(client, suite, tell=lambda line: None, **options)
    runner.run()
    return runner


def test_episodes_go_through_the_tasks_by_their_seeds(client: Limber, gateway: FakeGateway) -> None:
    job, suite = gateway.queue("bench/lines", 5, seed=3), Lines(("a", "b"))
    run(client, suite)
    assert (job.status, job.harness, sorted(job.reports)) == ("completed", "lines 1.0", [0, 1, 2, 3, 4])
    # Seeds 3 to 7: task b has the odd ones. Each task is opened once.
    assert {line.task: line.trials for line in suite.opened} == {"a": [2, 3], "b": [1, 2, 3]} and all(line.closed for line in suite.opened)
    report = job.reports[0]
    assert (report.termination, report.steps, report.sim_time_s, dict(report.metrics)["task"]) == ("success", 2, 0.2, 1.0)
    assert getattr(report, "return") == pytest.approx(-0.5) and len(report.latencies_ms) == 1
    # Actions are clipped to the task's bounds, and counted.
    assert report.metrics["clipped_steps"] == 2 and suite.opened[0].actions[0].tolist() == [0.5, 1.0]
    assert set(report.metrics) == {"task", "clipped_steps", "wall_s", "x"}
    assert report.initial_state_sha256 == hashlib.sha256(np.float64(0).tobytes()).hexdigest()
    assert len({each.trajectory_sha256 for each in job.reports.values()}) == 1
    act = next(each for each in gateway.received if hasattr(each, "observations"))
    assert (act.instruction, act.action_space, act.horizon, list(act.observations[0].proprio_names)) == ("do a", "base_twist_2d", 4, ["x", "goal"])


def test_an_evaluation_chooses_its_tasks_by_metadata(client: Limber, gateway: FakeGateway) -> None:
    suite = Lines(("a", "b"))
    gateway.queue("bench/lines", 2, metadata={"tasks": ["b"]})
    refused = gateway.queue("bench/lines", 2, metadata={"tasks": ["c"]})
    run(client, suite)
    assert [(line.task, line.trials) for line in suite.opened] == [("b", [0, 1])]
    assert (refused.status, refused.error.code) == ("failed", "tasks_refused") and "has the tasks a, b" in refused.error.message


def test_the_lease_is_renewed_while_the_policy_computes(client: Limber, gateway: FakeGateway, until: Any) -> None:
    job = gateway.queue("bench/lines", 1, lease_s=1)
    gateway.policy = lambda seen, horizon: (until(lambda: job.renewals >= 2), [0.5, 0.0])[1]
    run(client, Lines())
    assert job.status == "completed" and job.renewals >= 2


def test_a_stopped_evaluation_is_finished_without_further_episodes(client: Limber, gateway: FakeGateway) -> None:
    job, suite = gateway.queue("bench/lines", 5), Lines()

    def policy(seen: Any, horizon: int) -> Any:
        job.stop = len(job.reports) == 1
        return [0.5, 0.0]

    gateway.policy = policy
    run(client, suite)
    assert job.status == "cancelled" and sorted(job.reports) == [0, 1]


def test_an_observation_is_made_only_for_the_policy(client: Limber, gateway: FakeGateway) -> None:
    made: list[float] = []

    def step(line: Line, action: np.ndarray) -> Moved:
        line.x += 0.1
        return Moved(lambda: (made.append(line.x), line._seen())[1], 0.0, line.x > 0.75)

    job, suite = gateway.queue("bench/lines", 1, horizon=3, replan_steps=3), Lines(step=step)
    run(client, suite)
    assert (job.reports[0].steps, made) == (6, [pytest.approx(0.3)])


def test_the_next_runner_continues_with_the_open_episodes(client: Limber, gateway: FakeGateway) -> None:
    job, first, second = gateway.queue("bench/lines", 4), Lines(), Lines()
    taken: list[str] = []

    def policy(seen: Any, horizon: int) -> Any:
        # The first runner loses its lease in its third episode, and another one ends the evaluation meanwhile.
        if len(job.reports) == 2 and not taken:
            taken.append("once")
            job.expire()
            with Limber(gateway.url, gateway.key) as other:
                run(other, second)
        return [0.5, 0.0]

    gateway.policy = policy
    run(client, first)
    assert job.status == "completed" and {index: report.epoch for index, report in job.reports.items()} == {0: 1, 1: 1, 2: 3, 3: 3}
    assert second.opened[0].trials == [2, 3] and first.opened[0].closed


def test_a_runner_that_leaves_keeps_the_evaluation_open(client: Limber, gateway: FakeGateway) -> None:
    job, suite = gateway.queue("bench/lines", 5), Lines()
    runner = Runner(client, suite, tell=lambda line: None)

    def policy(seen: Any, horizon: int) -> Any:
        if len(job.reports) == 1:
            os.kill(os.getpid(), signal.SIGTERM)
            assert runner.leave.wait(20)
        return [0.5, 0.0]

    gateway.policy = policy
    with leaving_by_signal(runner):
        assert runner.run(forever=True) == []
    assert (job.status, sorted(job.reports)) == ("running", [0]) and suite.opened[0].closed
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_a_waiting_runner_outlives_a_gateway_that_is_overloaded(client: Limber, gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "_LOOK_S", 0.001)
    said: list[str] = []
    gateway.refuse("overloaded")
    job = gateway.queue("bench/lines", 1)
    runner = Runner(client, Lines(), tell=lambda line: (said.append(line), job.status == "completed" and runner.leave.set())[0])
    assert [each.status for each in runner.run(forever=True)] == ["completed"] and "the test says no" in said[0]
    gateway.refuse("overloaded")
    with pytest.raises(errors.ServerError):
        runner.leave.clear()
        runner.run()


def declare(gateway: FakeGateway, **model: Any) -> None:
    gateway.put("GetModel", registry_service_pb2.GetModelResponse(model=registry_pb2.Model(id=gateway.model, **model)))


def test_a_policy_that_does_not_fit_is_refused_before_the_first_step(client: Limber, gateway: FakeGateway) -> None:
    job, suite = gateway.queue("bench/lines", 2), Lines()
    meaning = contract.ActionMeaning(reference=contract.ACTION_REFERENCE_ABSOLUTE, gripper=contract.GripperMeaning(indexes=[1], open=1, closed=0))
    camera = contract.CameraSpec(name="wrist", required=True)
    declare(gateway, input=contract.InputContract(cameras=contract.CameraSpecs(cameras=[camera])), actions=contract.ActionMeanings(actions=[meaning]))
    run(client, suite)
    assert (job.status, job.error.code) == ("failed", "mapping_mismatch") and suite.opened[0].actions == []
    for words in ("the cameras wrist; the task has front", "expects relative, the policy returns absolute", "opens at -1 and closes at 1 in value 1"):
        assert words in job.error.message


def test_an_evaluation_of_another_action_space_is_refused(client: Limber, gateway: FakeGateway) -> None:
    job = gateway.queue("bench/lines", 1, action_space="joint_pos_7")
    run(client, Lines())
    assert job.error.message == "the evaluation's action space is joint_pos_7, the task's base_twist_2d"


PROPRIO = contract.ProprioSpec


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        (Declared(), None),
        (Declared(action_dim=7), "the task's actions have 2 values (dx, gripper), the policy's 7"),
        (Declared(action_spaces=["joint_pos_7"]), "the task's action space is base_twist_2d, the policy's joint_pos_7"),
        (Declared(cameras=["front"], state=["x", "goal"]), None),
        (Declared(state=["goal", "x"]), "the policy reads the state goal, x; the task's is x, goal"),
        (Declared(contract.InputContract(proprio=[PROPRIO(names=["goal", "x"], any_order=True)])), None),
        (Declared(contract.InputContract(proprio=[PROPRIO(names=["x"], more_values=True)])), None),
        (Declared(contract.InputContract(proprio=[PROPRIO(names=["x"])])), "the policy reads the state x; the task's is x, goal"),
        (Declared(contract.InputContract(proprio=[PROPRIO(dimension=2)])), None),
        (Declared(contract.InputContract(proprio=[PROPRIO(dimension=8)])), "the policy reads the state of 8 values; the task's is x, goal"),
        (Declared(actions=[contract.ActionMeaning(units=["m", "1"])]), "units: the task expects 1, 1, the policy returns m, 1"),
        (Declared(actions=[contract.ActionMeaning(action_space="joint_pos_7", units=["rad"])]), None),
        (Declared(actions=[contract.ActionMeaning(rotation=contract.ROTATION_FORM_EULER_XYZ)]), None),
        (Declared(contract.InputContract(language=contract.LanguageSpec(need=contract.INPUT_NEED_REQUIRED))), "the policy needs an instruction, and the task has none; pass --instruction"),
    ],
)
def test_each_declared_property_is_compared(declared: Declared, words: str | None) -> None:
    assert conflicts(MAPPING, declared, instruction=False) == ([] if words is None else [words])


def test_undeclared_actions_mean_what_their_space_says() -> None:
    from limber.runners.libero import MAPPING as LIBERO

    found = conflicts(LIBERO, Declared(), instruction=True)
    assert "the policy opens at 1 and closes at 0 in 6" in found[1] and "pass --assume-actions" in found[-1]
    assert conflicts(LIBERO, Declared(), instruction=True, assume=True) == []
    # What the gateway's profile for LIBERO declares.
    gripper = contract.GripperMeaning(indexes=[6], open=-1, closed=1)
    meaning = contract.ActionMeaning(reference=contract.ACTION_REFERENCE_RELATIVE, rotation=contract.ROTATION_FORM_AXIS_ANGLE, gripper=gripper)
    assert conflicts(LIBERO, Declared(actions=[meaning]), instruction=True) == []


def test_chunks_of_another_width_end_episodes_before_their_first_step(client: Limber, gateway: FakeGateway) -> None:
    job, suite = gateway.queue("bench/lines", 9), Lines()
    gateway.policy = lambda seen, horizon: [0.0] * 7
    run(client, suite)
    assert suite.opened[0].actions == [] and (job.status, job.error.code) == ("failed", "action_dim_mismatch")
    assert len(job.reports) == 5 and "dx, gripper), the policy returned 7" in job.reports[0].error


def test_a_hanging_world_loses_only_its_episode_and_is_closed_once_it_returns(client: Limber, gateway: FakeGateway, until: Any) -> None:
    job, hang = gateway.queue("bench/lines", 3), threading.Event()

    def step(line: Line, action: np.ndarray) -> Moved:
        if line.trials == [0]:
            hang.wait(20)
        return Moved(line._seen(), 0.0, True)

    suite = Lines(step=step)
    try:
        run(client, suite, timeout_s=0.2)
        assert [line.closed for line in suite.opened] == [False, True]
    finally:
        hang.set()
    assert job.status == "completed" and [job.reports[i].termination for i in range(3)] == ["sim_unstable", "success", "success"]
    assert "step did not return within 0.2 s" in job.reports[0].error and len(suite.opened) == 2
    until(lambda: suite.opened[0].closed)
    # Each world has one thread for all its calls; the second one did not wait for the first one's.
    assert [len(line.threads) for line in suite.opened] == [1, 1] and suite.opened[0].threads != suite.opened[1].threads


def test_a_world_whose_opening_hangs_is_closed_once_it_is_open(client: Limber, gateway: FakeGateway, until: Any) -> None:
    job, hang = gateway.queue("bench/lines", 2), threading.Event()

    class Slow(Lines):
        def open(self, task: str, scenario: str) -> Line:
            line = super().open(task, scenario)
            if len(self.opened) == 1:
                hang.wait(20)
            return line

    suite = Slow()
    try:
        run(client, suite, timeout_s=0.05)
        assert [line.closed for line in suite.opened] == [False, True]
    finally:
        hang.set()
    assert [job.reports[i].termination for i in range(2)] == ["sim_unstable", "success"]
    until(lambda: suite.opened[0].closed)


def test_a_world_whose_closing_hangs_does_not_stop_the_runner(client: Limber, gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    job, hang = gateway.queue("bench/lines", 2), threading.Event()
    close = Line.close
    monkeypatch.setattr(Line, "close", lambda line: (hang.wait(20) if line.task == "a" else None, close(line)))
    suite = Lines(("a", "b"))
    try:
        run(client, suite, timeout_s=0.2)
        assert job.status == "completed" and [line.closed for line in suite.opened] == [False, True]
    finally:
        hang.set()


def test_all_worlds_of_a_runner_run_in_one_thread_which_ends_with_it(client: Limber, gateway: FakeGateway, until: Any) -> None:
    gateway.queue("bench/lines", 4)
    gateway.queue("bench/lines", 1)
    suite = Lines(("a", "b"))
    run(client, suite)
    threads = set.union(*(line.threads for line in suite.opened))
    assert len(suite.opened) == 3 and len(threads) == 1
    until(lambda: not any(each.is_alive() for each in threads))


@pytest.mark.parametrize("where", ["opening", "policy"])
def test_a_missing_package_refuses_the_evaluation_and_the_runner_continues(client: Limber, gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    policy = {} if where == "opening" else {"policy": "ws://127.0.0.1:1"}
    refused, suite = gateway.queue("bench/lines", 5, **policy), Lines()
    if where == "opening":
        monkeypatch.setattr(Lines, "open", lambda *_: suite_of("maniskill", []))
    else:
        monkeypatch.setattr(Line, "mapping", dataclasses.replace(MAPPING, openpi={"state": "state"}))
        monkeypatch.setitem(sys.modules, "msgpack", None)
    run(client, suite)
    assert (refused.status, refused.error.code, len(refused.reports)) == ("failed", "runner_refused", 0)
    assert ("mani_skill" if where == "opening" else "msgpack") in refused.error.message and "pip install" in refused.error.message


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        (ZeroDivisionError("the solver diverged"), "step raised ZeroDivisionError: the solver diverged"),
        (SystemExit(3), "step raised SystemExit: 3"),
        (Moved([0.0, 1.0], float("nan")), "the reward of step 1 is nan"),
        (Moved([float("nan"), 1.0], 0.0), "the world's observation is invalid: state[0] must be finite, got nan"),
    ],
)
def test_a_broken_world_is_replaced_and_ends_the_evaluation_at_its_third_fault(client: Limber, gateway: FakeGateway, returned: Any, words: str) -> None:
    def step(line: Line, action: np.ndarray) -> Moved:
        if isinstance(returned, BaseException):
            raise returned
        return returned  # type: ignore[no-any-return]

    job, suite = gateway.queue("bench/lines", 5, replan_steps=1), Lines(step=step)
    run(client, suite)
    assert len(suite.opened) == 3 and [each.termination for each in job.reports.values()] == ["sim_unstable"] * 2
    assert job.reports[0].error == words and (job.status, job.error.code, job.error.message) == ("failed", "harness_failed", words)


def test_policy_faults_are_reported_and_end_the_evaluation_if_they_continue(client: Limber, gateway: FakeGateway) -> None:
    job = gateway.queue("bench/lines", 9)
    gateway.policy = lambda seen, horizon: [float("nan"), 0.0]
    run(client, Lines())
    assert [each.termination for each in job.reports.values()] == ["invalid_action"] * 5 and job.error.code == "invalid_action"


def test_a_success_at_the_end_counts_only_at_the_last_step(client: Limber, gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Line, "success_ends", False)
    job = gateway.queue("bench/lines", 2)
    # Solved after two steps in both episodes; the second one leaves the goal again.
    gateway.policy = lambda seen, horizon: [0.5 if len(job.reports) == 0 or seen.proprio[0] < 1 else -1.0, 0.0]
    gateway.evaluations[0]._claim["replan_steps"] = 1
    run(client, Lines())
    assert [(job.reports[i].termination, job.reports[i].steps) for i in range(2)] == [("success", 6), ("max_steps", 6)]


def test_a_native_server_is_called_over_one_stream(client: Limber, gateway: FakeGateway) -> None:
    asked: list[Any] = []

    def policy(call: Any) -> Any:
        asked.append(call)
        return [0.5, 0.0]

    with PolicyServer(policy, Served(model="a/b", provider="a", action_space="base_twist_2d", state_names=("x", "goal"))) as server:
        job, wrong = gateway.queue("bench/lines", 2, policy=server.address), gateway.queue("bench/lines", 1, policy=server.address, action_space="joint_pos_7")
        run(client, Lines())
    assert (job.status, len(asked), wrong.error.code) == ("completed", 2, "mapping_mismatch")
    assert asked[0].instruction == "do a" and asked[0].state.tolist() == [0.0, 1.0]


def test_an_unreachable_policy_server_ends_the_evaluation_after_five_episodes(client: Limber, gateway: FakeGateway) -> None:
    job = gateway.queue("bench/lines", 9, policy="grpc://127.0.0.1:1")
    run(client, Lines())
    assert (job.status, job.error.code, len(job.reports)) == ("failed", "policy_disconnected", 5)


def test_a_policy_address_of_an_unknown_scheme_is_refused(client: Limber, gateway: FakeGateway) -> None:
    unknown = gateway.queue("bench/lines", 1, policy="tcp://127.0.0.1:1")
    run(client, Lines())
    assert unknown.error.code == "runner_refused" and "cannot call tcp://" in unknown.error.message


@contextlib.contextmanager
def serving(act: Callable[[Iterator[wire.ActRequest]], Iterator[wire.ActResponse]], timeout_ms: int = 20_000) -> Iterator[NativePolicy]:
    """A policy whose server answers a stream's calls by `act`."""
    handler = grpc.stream_stream_rpc_method_handler(lambda requests, _: act(each for each in requests if each.HasField("call")), wire.ActRequest.FromString, wire.ActResponse.SerializeToString)
    server = grpc.server(futures.ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("limber.policy.v1.PolicyService", {"Act": handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    policy = NativePolicy(FakeEvaluation("job_1", "s", 1, {"policy": f"grpc://127.0.0.1:{port}", "policy_timeout_ms": timeout_ms}).claimed("h", 60))
    try:
        yield policy
    finally:
        policy.close()
        server.stop(None)


def answered(call_id: int, value: float) -> wire.ActResponse:
    return wire.ActResponse(call_id=call_id, chunk=wire.ActChunk(steps=[action_pb2.ActionStep(values=[value])]))


def test_an_answer_to_a_call_that_timed_out_is_not_taken_for_the_next_one() -> None:
    def act(requests: Iterator[wire.ActRequest]) -> Iterator[wire.ActResponse]:
        late = next(requests)
        now = next(requests)
        yield answered(late.call_id, 9.0)
        yield answered(now.call_id, 1.0)

    with serving(act) as policy:
        policy._claim.policy_timeout_ms = 100
        with pytest.raises(PolicyFault) as fault:
            policy.act(Observation(state=np.zeros(1)), None, None, "e")
        assert fault.value.termination == "policy_timeout"
        policy._claim.policy_timeout_ms = 20_000
        assert policy.act(Observation(state=np.zeros(1)), None, None, "e").tolist() == [[1.0]]


def test_a_lost_stream_ends_the_call_and_the_next_call_opens_another_one(until: Any) -> None:
    streams: list[int] = []

    def act(requests: Iterator[wire.ActRequest]) -> Iterator[wire.ActResponse]:
        streams.append(1)
        call = next(requests)
        if len(streams) == 2:
            yield answered(call.call_id, 1.0)

    with serving(act) as policy:
        before = set(threading.enumerate())
        with pytest.raises(PolicyFault, match="the policy server disconnected: the stream ended") as fault:
            policy.act(Observation(state=np.zeros(1)), None, None, "e")
        assert fault.value.termination == "policy_disconnected"
        # No thread of the client waits for requests of the lost stream.
        until(lambda: all(each.name.startswith("ThreadPoolExecutor") for each in set(threading.enumerate()) - before))
        assert policy.act(Observation(state=np.zeros(1)), None, None, "e").tolist() == [[1.0]] and len(streams) == 2


def test_an_openpi_server_that_does_not_read_ends_the_call_in_time() -> None:
    msgpack = pytest.importorskip("msgpack")
    sync = pytest.importorskip("websockets.sync.server")
    from limber.probe import _packed
    from limber.runners.libero import MAPPING as LIBERO

    ended = threading.Event()

    def serve(connection: Any) -> None:
        connection.send(msgpack.packb({}))
        # Answers without reading: the connection stops reading after the first messages.
        for _ in range(4):
            connection.send(msgpack.packb({"actions": np.zeros((1, 7))}, default=_packed))
        ended.wait(40)

    picture = np.zeros((2048, 2048, 3), np.uint8)
    seen = Observation(images={"agentview": picture, "wrist": picture}, state=np.arange(8.0))
    faults: queue.Queue[PolicyFault] = queue.Queue()

    def call(policy: OpenpiPolicy) -> None:
        try:
            for _ in range(4):
                policy.act(seen, "stack", LIBERO, "e")
        except PolicyFault as fault:
            faults.put(fault)

    with sync.serve(serve, "127.0.0.1", 0, compression=None, max_size=None, max_queue=1, close_timeout=0.1) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        claim = FakeEvaluation("job_1", "s", 1, {"policy": f"ws://127.0.0.1:{server.socket.getsockname()[1]}", "policy_timeout_ms": 1000}).claimed("h", 60)
        try:
            threading.Thread(target=call, args=(OpenpiPolicy(claim),), daemon=True).start()
            fault = faults.get(timeout=20)
        finally:
            ended.set()
    assert (fault.termination, str(fault)) == ("policy_timeout", "the policy did not answer within 1000 ms")


def test_an_openpi_server_receives_the_keys_of_the_task() -> None:
    msgpack = pytest.importorskip("msgpack")
    sync = pytest.importorskip("websockets.sync.server")
    from limber.probe import _packed, _unpacked

    received: queue.Queue[Any] = queue.Queue()

    def serve(connection: Any) -> None:
        connection.send(msgpack.packb({}))
        for message in connection:
            received.put(msgpack.unpackb(message, object_hook=_unpacked, raw=False, strict_map_key=False))
            connection.send(msgpack.packb({"actions": np.full((2, 7), 0.25)}, default=_packed))

    from limber.runners.libero import MAPPING as LIBERO

    with sync.serve(serve, "127.0.0.1", 0, compression=None) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        policy = OpenpiPolicy(FakeEvaluation("job_1", "s", 1, {"policy": f"ws://127.0.0.1:{server.socket.getsockname()[1]}"}).claimed("h", 60))
        picture = np.arange(4 * 4 * 3, dtype=np.uint8).reshape(4, 4, 3)
        seen = Observation(images={"agentview": picture, "wrist": picture}, state=np.arange(8.0))
        assert policy.act(seen, "stack", LIBERO, "e").tolist() == [[0.25] * 7] * 2
        with pytest.raises(errors.BadInput, match="openpi"):
            policy.act(seen, "stack", MAPPING, "e")
        policy.close()
    got = received.get(timeout=20)
    assert set(got) == {"observation/image", "observation/wrist_image", "observation/state", "prompt"} and got["prompt"] == "stack"
    # Upright, as openpi's own client sends them.
    assert got["observation/image"].tolist() == picture[::-1, ::-1].tolist() and got["observation/state"].tolist() == list(range(8))


def test_a_missing_package_is_named_with_its_version() -> None:
    with pytest.raises(errors.MissingPackage, match=r"mani_skill.*pip install 'mani-skill"):
        suite_of("maniskill", [])
    with pytest.raises(errors.BadInput, match="metaworld, gymnasium-robotics"):
        suite_of("atari", [])
