"""The loop against the fake gateway: it always ends with one exception or none, and the robot holds."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import limber
from limber import errors
from limber._gen.limber.v1 import control_loop_pb2, inference_service_pb2
from limber.testing import FakeGateway

Until = Callable[[Callable[[], object]], None]


class Robot:
    """Records commands in order: an action, or the reason of a hold."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def observe(self) -> list[float]:
        return [1.0, 2.0]

    def step(self, action: np.ndarray) -> None:
        self.told.append(action)

    def hold(self, why: str) -> None:
        self.told.append(why)

    @property
    def actions(self) -> int:
        return sum(not isinstance(each, str) for each in self.told)

    @property
    def holds(self) -> bool:
        """True if the last command is a hold."""
        return bool(self.told) and isinstance(self.told[-1], str)


@pytest.fixture
def robot() -> Robot:
    return Robot()


def test_a_run_moves_the_robot_and_makes_it_hold_at_the_end(client: limber.Limber, gateway: FakeGateway, robot: Robot) -> None:
    gateway.policy = lambda seen, horizon: np.tile([0.5, 0.1], (horizon, 1))
    with client.loop("a/b", rate_hz=100, robot="r", hold=robot.hold, action_space="base_twist_2d", deadline_ms=400) as loop:
        outcome = loop.run(robot.observe, robot.step, max_seconds=1)
    assert outcome.ended == "max_seconds"
    assert robot.told[-1] == "over"
    assert robot.actions == outcome.stats.actions > 10
    assert next(each for each in robot.told if not isinstance(each, str)).tolist() == [0.5, 0.1]
    assert outcome.stats.stale_actions == 0
    opening = gateway.received[0].open
    assert (opening.robot_id, opening.action_space, opening.provider.deadline_ms, opening.episode) == ("r", "base_twist_2d", 400, 1)


def test_a_fixed_hold_is_passed_to_step(client: limber.Limber, robot: Robot) -> None:
    with client.loop("a/b", rate_hz=50, hold=[9.0, 9.0]) as loop:
        loop.run(robot.observe, robot.step, max_seconds=0.2)
    assert robot.told[-1].tolist() == [9, 9]


def test_the_run_ends_if_observe_returns_none(client: limber.Limber, robot: Robot) -> None:
    seen = iter([[1.0], [1.0], None])
    with client.loop("a/b", rate_hz=50, hold=robot.hold) as loop:
        assert loop.run(lambda: next(seen), robot.step, max_seconds=9).ended == "done"
    assert robot.told[-1] == "done"


def test_tick_never_blocks_on_a_slow_gateway(client: limber.Limber, gateway: FakeGateway) -> None:
    gateway.delay_s = 1.5
    with client.loop("a/b", rate_hz=1000) as loop:
        ticks = [loop.tick([1.0]) for _ in range(200)]
    # If a tick waited for an answer, one would have arrived.
    assert {tick.hold for tick in ticks} <= {"connecting", "no_chunk"}


def test_only_the_newest_observation_is_sent(client: limber.Limber, gateway: FakeGateway, until: Until) -> None:
    gateway.delay_s = 0.3
    with client.loop("a/b", rate_hz=100) as loop:
        # While the loop is being opened, each observation replaces the previous one.
        until(lambda: loop.tick([1.0]).step >= 5)
        assert loop.stats.replaced >= 1
        until(lambda: loop.tick([1.0]) and any(message.HasField("observation") for message in gateway.received))
    steps = [message.observation.step for message in gateway.received if message.HasField("observation")]
    assert steps[0] >= 5
    assert steps == sorted(set(steps))


def test_buffers_can_be_reused_after_a_tick(client: limber.Limber, gateway: FakeGateway, until: Until) -> None:
    buffer = np.array([1.0, 2.0])
    with client.loop("a/b", rate_hz=50) as loop:
        loop.tick(buffer)
        buffer[:] = -1
        until(lambda: any(message.HasField("observation") for message in gateway.received))
    first = next(message.observation for message in gateway.received if message.HasField("observation"))
    assert list(first.observations[0].proprio) == [1, 2]


@pytest.mark.parametrize("reason", ["late", "out_of_bounds", "no_provider", "rate_limited"])
def test_a_hold_of_the_gateway_is_reported_with_its_reason(client: limber.Limber, gateway: FakeGateway, robot: Robot, until: Until, reason: str) -> None:
    with client.loop("a/b", rate_hz=50) as loop:
        until(lambda: loop.tick([1.0]).action is not None)
        gateway.hold(reason, 1000)
        until(lambda: loop.tick([1.0]).hold == reason)
        assert loop.stats.holds[reason] >= 1


def test_finish_chunks_executes_the_remaining_rows_only_after_a_soft_hold(client: limber.Limber, gateway: FakeGateway, until: Until) -> None:
    gateway.dt_ms = 20
    with client.loop("a/b", rate_hz=50, horizon=100, finish_chunks=True) as loop:
        until(lambda: loop.tick([1.0]).action is not None)
        gateway.hold("late", 3)
        gateway.hold("out_of_bounds", 1000)
        until(lambda: loop.tick([1.0]).action is None)
        assert loop.tick([1.0]).hold == "out_of_bounds"


def test_a_broken_connection_is_reopened_in_the_same_session_and_episode(client: limber.Limber, gateway: FakeGateway, until: Until) -> None:
    with client.loop("a/b", rate_hz=50) as loop:
        until(lambda: loop.tick([1.0]).action is not None)
        gateway.drop()
        until(lambda: loop.tick([1.0]).hold == "disconnected" or loop.stats.streams > 1)
        until(lambda: loop.tick([1.0]).action is not None)
        assert loop.stats.streams > 1
    opened = [message.open for message in gateway.received if message.HasField("open")]
    assert len({each.provider.session_id for each in opened}) == 1
    assert {each.episode for each in opened} == {1}


def test_two_addresses_are_tried_in_turn(gateway: FakeGateway, until: Until) -> None:
    with FakeGateway() as second, limber.Limber([gateway.url, second.url], gateway.key) as client, client.loop("a/b", rate_hz=50) as loop:
        until(lambda: loop.tick([1.0]).action is not None)
        assert gateway.received
        gateway.end_loops("not_ready", "it drains")
        until(lambda: loop.tick([1.0]).action is not None and bool(second.received))


def test_every_address_is_dialed_before_the_first_pause(gateway: FakeGateway, until: Until, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("limber.loop._WAITS", (0.0, 3600.0))
    with FakeGateway() as gone:
        nobody = gone.url
    addresses = [nobody, nobody, gateway.url]
    with limber.Limber(addresses, gateway.key) as client, client.loop("a/b", rate_hz=50) as loop:
        until(lambda: loop.tick([1.0]).action is not None)
        assert loop.stats.streams == 3


def test_a_reset_discards_the_previous_episodes_chunk(client: limber.Limber, gateway: FakeGateway, until: Until) -> None:
    gateway.policy = lambda seen, horizon: np.tile([seen.proprio[0]], (horizon, 1))
    with client.loop("a/b", rate_hz=100, horizon=64) as loop:
        until(lambda: loop.tick([1.0]).action is not None)
        for value in (2.0, 3.0, 4.0):
            assert loop.reset("go on") == value
            tick = loop.tick([value])
            assert tick.action is None and tick.step == 0
            acted: list[float] = []

            def moved(value: float = value, acted: list[float] = acted) -> bool:
                action = loop.tick([value]).action
                if action is not None:
                    acted.append(action[0])
                return len(acted) > 5

            until(moved)
            assert set(acted) == {value}
    resets = [message.reset for message in gateway.received if message.HasField("reset")]
    assert [each.episode for each in resets] == [2, 3, 4]
    # The instruction stays in effect.
    assert [each.instruction for each in resets] == ["go on", "", ""]


def test_a_second_run_begins_a_new_episode(client: limber.Limber, gateway: FakeGateway, robot: Robot) -> None:
    with client.loop("a/b", rate_hz=50, hold=robot.hold) as loop:
        loop.run(robot.observe, robot.step, max_seconds=0.3)
        loop.run(robot.observe, robot.step, max_seconds=0.3)
    assert [message.reset.episode for message in gateway.received if message.HasField("reset")] == [2]


def test_interrupt_from_another_thread_ends_the_run_without_an_exception(client: limber.Limber, robot: Robot, until: Until) -> None:
    with client.loop("a/b", rate_hz=50, hold=robot.hold) as loop:
        threading.Thread(target=lambda: (until(lambda: robot.actions > 3), loop.interrupt())).start()
        outcome = loop.run(robot.observe, robot.step, max_seconds=30)
        assert outcome.ended == "interrupted"
        assert robot.told[-1] == "interrupted"
        assert loop.tick([1.0]).hold == "interrupted"


@pytest.mark.parametrize("where", ["observe", "step"])
def test_an_exception_of_a_callback_is_raised_and_the_robot_holds(client: limber.Limber, robot: Robot, where: str) -> None:
    def broken(*_: object) -> Any:
        raise ZeroDivisionError("the camera fell off")

    callbacks = {"observe": robot.observe, "step": robot.step, where: broken}
    with client.loop("a/b", rate_hz=50, hold=robot.hold) as loop, pytest.raises(ZeroDivisionError, match="fell off"):
        loop.run(callbacks["observe"], callbacks["step"], max_seconds=20)
    assert robot.told[-1] == "failed"


def test_a_hanging_callback_makes_the_robot_hold_and_ends_the_run(client: limber.Limber, robot: Robot, until: Until) -> None:
    def hang(action: object) -> None:
        # It returns only after the robot was told to hold, so another thread must have done it.
        until(lambda: "hung" in robot.told)

    with client.loop("a/b", rate_hz=50, hold=robot.hold, hang_s=0.2) as loop, pytest.raises(errors.CallbackHung, match="step has not returned"):
        loop.run(robot.observe, hang, max_seconds=30)
    assert robot.told[-1] == "failed"


def test_an_isolated_run_ends_even_if_a_callback_never_returns(client: limber.Limber, robot: Robot) -> None:
    forever = threading.Event()
    try:
        with client.loop("a/b", rate_hz=50, hold=robot.hold, hang_s=0.2) as loop, pytest.raises(errors.CallbackHung, match="observe"):
            loop.run(forever.wait, robot.step, max_seconds=30, isolate=True)  # type: ignore[arg-type]
        assert "hung" in robot.told
    finally:
        forever.set()


def test_an_isolated_run_raises_callback_exceptions_and_returns_its_outcome(client: limber.Limber, robot: Robot) -> None:
    with client.loop("a/b", rate_hz=50, hold=robot.hold) as loop:
        assert loop.run(robot.observe, robot.step, max_seconds=0.2, isolate=True).ended == "max_seconds"
        with pytest.raises(ZeroDivisionError):
            loop.run(lambda: 1 / 0, robot.step, max_seconds=1, isolate=True)


@pytest.mark.parametrize("code", ["key_disabled", "robot_stopped", "session_taken_over", "key_budget_exhausted"])
def test_a_refusal_that_ends_the_loop_is_raised(client: limber.Limber, gateway: FakeGateway, robot: Robot, until: Until, code: str) -> None:
    with client.loop("a/b", rate_hz=50, hold=robot.hold, finish_chunks=True) as loop:
        threading.Thread(target=lambda: (until(lambda: robot.actions > 3), gateway.end_loops(code))).start()
        with pytest.raises(errors.BY_CODE[code]):
            loop.run(robot.observe, robot.step, max_seconds=60)
        assert robot.told[-1] == "failed"
        with pytest.raises(errors.BY_CODE[code]):
            loop.tick([1.0])


def test_an_emergency_stop_makes_the_robot_hold(client: limber.Limber, robot: Robot, until: Until) -> None:
    with client.loop("a/b", rate_hz=50, robot="arm", hold=robot.hold) as loop:
        threading.Thread(target=lambda: (until(lambda: robot.actions > 3), client.stop("arm", reason="a hand"))).start()
        with pytest.raises(errors.RobotStopped, match="a hand"):
            loop.run(robot.observe, robot.step, max_seconds=60)
    assert robot.holds


def test_a_wrong_key_and_an_unreachable_gateway_are_reported_at_once(gateway: FakeGateway, robot: Robot) -> None:
    with limber.Limber(gateway.url, "another") as client, pytest.raises(errors.InvalidApiKey):
        client.loop("a/b", rate_hz=50, hold=robot.hold).run(robot.observe, robot.step, max_seconds=30)
    assert robot.actions == 0 and robot.holds
    with limber.Limber("http://127.0.0.1:9", "key") as client, pytest.raises(errors.ConnectionFailed, match="127.0.0.1:9"):
        client.loop("a/b", rate_hz=50, connect_timeout_s=0.3).run(robot.observe, robot.step, max_seconds=30)


def test_an_observation_that_cannot_be_sent_ends_the_run(client: limber.Limber, robot: Robot) -> None:
    seen = iter([[1.0], [float("nan")]])
    with client.loop("a/b", rate_hz=50, hold=robot.hold) as loop, pytest.raises(errors.BadInput, match="nan"):
        loop.run(lambda: next(seen), robot.step, max_seconds=30)
    assert robot.told[-1] == "failed"


def test_an_unreadable_image_ends_the_run(client: limber.Limber, robot: Robot, tmp_path: Any) -> None:
    seen = {"images": {"a": tmp_path / "none.jpg"}}
    with client.loop("a/b", rate_hz=50, hold=robot.hold) as loop, pytest.raises(errors.BadInput, match="No such file"):
        loop.run(lambda: seen, robot.step, max_seconds=30)
    assert robot.holds


def test_rejected_observations_end_the_run(client: limber.Limber, gateway: FakeGateway, robot: Robot) -> None:
    gateway.hold("invalid_observation", 1000)
    with client.loop("a/b", rate_hz=50, hold=robot.hold) as loop, pytest.raises(errors.ObservationRejected, match="the test says so"):
        loop.run(robot.observe, robot.step, max_seconds=30)
    assert robot.actions == 0 and robot.holds


@pytest.mark.parametrize("jump", [-5.0, float("nan")])
def test_a_clock_jump_ends_the_run(client: limber.Limber, robot: Robot, jump: float) -> None:
    ahead = [0.0]
    with client.loop("a/b", rate_hz=50, hold=robot.hold, clock=lambda: time.monotonic() + ahead[0]) as loop:

        def step(action: object) -> None:
            robot.told.append(action)
            if robot.actions == 3:
                ahead[0] = jump

        with pytest.raises(errors.ClockJumped):
            loop.run(robot.observe, step, max_seconds=30)
    assert robot.actions == 3 and robot.holds


def test_a_forward_clock_jump_makes_the_robot_hold_until_the_next_chunk(client: limber.Limber, until: Until) -> None:
    ahead = [0.0]
    with client.loop("a/b", rate_hz=50, clock=lambda: time.monotonic() + ahead[0]) as loop:
        until(lambda: loop.tick([1.0]).action is not None)
        ahead[0] = 3600
        assert loop.tick([1.0]).hold in ("expired", "late")
        until(lambda: loop.tick([1.0]).action is not None)
        assert loop.stats.stale_actions == 0


def nan_chunk(seen: Any, horizon: int) -> np.ndarray:
    return np.full((horizon, 2), np.nan)


def test_a_malformed_chunk_ends_the_run(client: limber.Limber, gateway: FakeGateway, robot: Robot) -> None:
    gateway.policy = nan_chunk
    with client.loop("a/b", rate_hz=50, hold=robot.hold) as loop, pytest.raises(errors.MalformedAnswer, match="finite"):
        loop.run(robot.observe, robot.step, max_seconds=30)
    assert robot.actions == 0 and robot.holds


@pytest.mark.parametrize(
    "answer",
    [
        b"\xff\xff\xff",
        inference_service_pb2.ActStreamResponse(chunk=control_loop_pb2.LoopChunk(start_step=0, valid_until_step=9, episode=1)),
        inference_service_pb2.ActStreamResponse(opened=control_loop_pb2.LoopOpened(episode=77)),
    ],
    ids=["bytes", "an empty chunk", "another episode"],
)
def test_a_malformed_stream_ends_the_run(client: limber.Limber, gateway: FakeGateway, robot: Robot, answer: object) -> None:
    gateway.put("ActStream", answer)
    with pytest.raises(errors.MalformedAnswer):
        client.loop("a/b", rate_hz=50, hold=robot.hold).run(robot.observe, robot.step, max_seconds=30)
    assert robot.actions == 0 and robot.holds


CTRL_C = """
import signal, sys, limber
signal.signal(signal.SIGINT, signal.default_int_handler)  # the parent process might ignore it
from limber.testing import FakeGateway
with FakeGateway() as gateway, limber.Limber(gateway.url, gateway.key) as client:
    acted = []
    def step(action):
        acted.append(action)
        if len(acted) == 3:
            print("moving", flush=True)
    try:
        client.loop("a/b", rate_hz=50, hold=lambda why: print("held", why, flush=True)).run(
            lambda: [1.0], step, max_seconds=60, isolate=sys.argv[1] == "apart")
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""


@pytest.mark.parametrize("where", ["here", "apart"])
def test_ctrl_c_makes_the_robot_hold(where: str) -> None:
    process = subprocess.Popen([sys.executable, "-c", CTRL_C, where], stdout=subprocess.PIPE, text=True, env=dict(os.environ))
    assert process.stdout is not None
    said: list[str] = []
    for line in process.stdout:
        said.append(line.strip())
        if line.startswith("moving"):
            process.send_signal(signal.SIGINT)
        if line.startswith("interrupted"):
            break
    assert process.wait(20) == 0
    assert said[-2:] == ["held interrupted", "interrupted"]


def test_a_reset_before_the_loop_is_open_is_accepted(client: limber.Limber, gateway: FakeGateway, until: Until) -> None:
    gateway.delay_s = 0.2
    with client.loop("a/b", rate_hz=50, instruction="sit") as loop:
        loop.tick([1.0])
        assert loop.reset("stand") == 2
        until(lambda: loop.tick([1.0]).action is not None)
        assert loop.tick([1.0]).episode == 2


def test_the_instruction_is_sent_again_after_a_broken_connection(client: limber.Limber, gateway: FakeGateway, until: Until) -> None:
    with client.loop("a/b", rate_hz=50, instruction="sit") as loop:
        until(lambda: loop.tick([1.0]).action is not None)
        loop.reset("stand")
        until(lambda: loop.tick([1.0]).action is not None)
        gateway.drop()
        until(lambda: loop.stats.streams > 1 and loop.tick([1.0]).action is not None)
        loop.tick({"state": [1.0], "instruction": "lie down"})
        until(lambda: loop.tick([1.0]) and any(message.observation.instruction == "lie down" for message in gateway.received))
        streams = loop.stats.streams
        gateway.drop()
        until(lambda: loop.stats.streams > streams and loop.tick([1.0]).action is not None)
    opened = [message.open for message in gateway.received if message.HasField("open")]
    assert [opened[0].instruction, opened[0].episode] == ["sit", 1]
    assert ("stand", 2) in [(each.instruction, each.episode) for each in opened]
    assert (opened[-1].instruction, opened[-1].episode) == ("lie down", 2)


def test_a_robot_can_timestamp_its_observations_with_another_clock(client: limber.Limber, gateway: FakeGateway, until: Until) -> None:
    with client.loop("a/b", rate_hz=50) as loop:
        until(lambda: loop.tick({"state": [1.0], "t_ms": 5.0}).action is not None)
        assert loop.stats.age_ms < 10_000


def test_a_loop_leaves_a_silent_gateway(gateway: FakeGateway, robot: Robot, until: Until) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with limber.Limber(url, "key") as client, pytest.raises(errors.ConnectionFailed):
            client.loop("a/b", rate_hz=50, hold=robot.hold, connect_timeout_s=0.5).run(robot.observe, robot.step, max_seconds=60)
    assert robot.actions == 0 and robot.holds
    # A gateway that falls silent after it opened is left for the next address.
    with FakeGateway() as second, limber.Limber([gateway.url, second.url], gateway.key) as client:
        gateway.deadline_ms = 50
        with client.loop("a/b", rate_hz=50) as loop:
            until(lambda: loop.tick([1.0]).action is not None)
            gateway.delay_s = 10
            until(lambda: loop.tick([1.0]).action is not None and bool(second.received))
