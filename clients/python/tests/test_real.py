"""Tests against the gateway that `npm start` runs, with its database and its reference provider."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import limber
import limber.gym
import limber.openpi
import limber.serve
from limber import _calls as calls
from limber import errors
from limber._gen.limber.v1 import account_service_pb2 as account
from limber.aio import AsyncLimber
from limber.serve import PolicyServer, Served
from limber.sim import LIMITS, WheeledBase

NAV = "reference/potential-nav"
STATE = [0.0, 0.0, 0.0, 2.0, 0.0, 0.0]
BOUNDS = limber.Bounds([-LIMITS[0], -LIMITS[1]], LIMITS)
Until = Callable[[Callable[[], object]], None]

CREATE_KEY = calls.Call("AccountService", "CreateKey", account.CreateKeyRequest, account.CreateKeyResponse)
UPDATE_KEY = calls.Call("AccountService", "UpdateKey", account.UpdateKeyRequest, account.UpdateKeyResponse)


def test_an_act_is_answered_billed_and_listed(real: limber.Limber) -> None:
    chunk = real.act(NAV, STATE, action_space="base_twist_2d", horizon=4)
    assert chunk.steps.shape == (4, 2) and not chunk.route.simulated
    assert chunk.cost_usd > 0
    assert any(each.model == NAV for each in real.usage(limit=5))


def test_the_same_idempotency_key_gives_the_same_answer_once(real: limber.Limber) -> None:
    key = uuid.uuid4().hex
    first, second = (real.act(NAV, STATE, action_space="base_twist_2d", idempotency_key=key) for _ in range(2))
    assert first.id == second.id
    with pytest.raises(errors.IdempotencyConflict):
        real.act(NAV, [1.0] * 6, action_space="base_twist_2d", idempotency_key=key)


def test_an_unroutable_request_is_refused_with_suggestions(real: limber.Limber) -> None:
    with pytest.raises(errors.NoRouteAvailable) as caught:
        real.act(NAV, STATE, action_space="base_twist_2d", provider={"max_latency_ms": 1})
    assert caught.value.suggestions[0].field == "provider.max_latency_ms"
    assert caught.value.details.dropped and caught.value.request_id
    with pytest.raises(errors.ModelNotFound, match="reference/potential-nav"):
        real.act("reference/potentialnav", STATE)


def test_models_preview_and_predict_return_values(real: limber.Limber) -> None:
    assert any(model.id == NAV and "act" in model.contracts for model in real.models("potential"))
    assert real.preview(NAV, action_space="base_twist_2d").entries[0].estimated_cost_usd > 0
    worlds = [model.id for model in real.models(contract="predict") if model.providers]
    picture = np.zeros((64, 64, 3), np.uint8)
    frames = list(real.predict(worlds[0], {"images": {"front": picture}}, horizon=2))
    assert [frame.index for frame in frames] == [0, 1]
    assert frames[0].image.shape[2] == 3


def test_a_loop_drives_a_robot_around_a_square(real: limber.Limber) -> None:
    base = WheeledBase()
    with real.loop(NAV, action_space="base_twist_2d", rate_hz=50, hold=base.hold, bounds=BOUNDS, robot="py-driver") as loop:
        outcome = loop.run(lambda: None if base.corners else base.observe(), base.step, max_seconds=30)
    assert outcome.ended == "done"
    assert base.stands and base.beyond <= 1e-9
    assert outcome.stats.stale_actions == 0 and outcome.stats.cost_usd > 0
    assert outcome.stats.route is not None and outcome.stats.route.model == NAV


def test_a_stop_ends_the_loop_and_the_robot_holds(real: limber.Limber, until: Until) -> None:
    base, name = WheeledBase(), f"py-{uuid.uuid4().hex}"
    with real.loop(NAV, action_space="base_twist_2d", rate_hz=50, hold=base.hold, robot=name) as loop:
        stopping = threading.Thread(target=lambda: (until(lambda: loop.stats.actions > 5), real.stop(name, reason="a hand")))
        stopping.start()
        with pytest.raises(errors.RobotStopped):
            loop.run(base.observe, base.step, max_seconds=60)
    assert base.stands
    # The loop ends before the stop call itself is answered.
    stopping.join(20)
    real.release(name)

    def acts() -> bool:
        try:
            return len(real.act(NAV, STATE, action_space="base_twist_2d", robot=name).steps) > 0
        except errors.RobotStopped:
            return False

    # Replicas apply a release a moment later.
    until(acts)


def test_a_revoked_key_ends_the_loop(real: limber.Limber, until: Until) -> None:
    org = real.call(calls.GET_KEY, account.GetKeyRequest()).key.org_id
    key = real.call(CREATE_KEY, account.CreateKeyRequest(org_id=org, name="to be revoked")).key
    base = WheeledBase()
    revoke = account.UpdateKeyRequest(org_id=org, key_id=key.id, disabled=True)
    with limber.Limber(real.addresses[0].url, key.key) as client, client.loop(NAV, action_space="base_twist_2d", rate_hz=50, hold=base.hold) as loop:
        threading.Thread(target=lambda: (until(lambda: loop.stats.actions > 5), real.call(UPDATE_KEY, revoke))).start()
        with pytest.raises(errors.AuthenticationError):
            loop.run(base.observe, base.step, max_seconds=60)
    assert base.stands


def test_a_changed_state_shape_ends_the_loop(real: limber.Limber) -> None:
    base = WheeledBase()
    with real.loop(NAV, action_space="base_twist_2d", rate_hz=50, hold=base.hold) as loop:

        def observe() -> Any:
            return base.observe() if loop.stats.actions < 5 else [1.0, 2.0]

        with pytest.raises(errors.ObservationRejected, match="reset"):
            loop.run(observe, base.step, max_seconds=60)
    assert base.stands


def test_a_chunk_beyond_the_bounds_makes_the_robot_hold(real: limber.Limber, until: Until) -> None:
    with real.loop(NAV, action_space="base_twist_2d", rate_hz=50, bounds=limber.Bounds([-1e-6], [1e-6])) as loop:
        until(lambda: loop.tick(STATE).hold == "out_of_bounds")
        assert loop.stats.actions == 0


def test_episodes_continue_across_streams(real: limber.Limber, until: Until) -> None:
    session = f"py-{uuid.uuid4().hex}"
    with real.loop(NAV, action_space="base_twist_2d", rate_hz=50, session=session) as loop:
        until(lambda: loop.tick(STATE).action is not None)
        assert loop.reset() == 2
        until(lambda: loop.tick(STATE).action is not None)
    with real.loop(NAV, action_space="base_twist_2d", rate_hz=50, session=session, episode=3) as loop:
        until(lambda: loop.tick(STATE).action is not None)
        assert loop.tick(STATE).episode == 3


def test_an_evaluation_yields_its_episodes(real: limber.Limber) -> None:
    names = ["x", "y", "yaw", "goal_x", "goal_y", "goal_yaw", *(f"obstacle_{i}_{part}" for i in range(1, 6) for part in "xyr")]
    running = real.evaluate(NAV, "base-nav", 2, seed=3, state_map={name: name for name in names})
    episodes = list(running)
    assert sorted(each.index for each in episodes) == [0, 1]
    result = running.result()
    assert (result.status, result.completed, result.success_rate) == ("completed", 2, 1.0)
    assert result.interval is not None and result.interval[0] < 1


def test_an_evaluation_can_be_published_read_and_withdrawn(real: limber.Limber) -> None:
    running = real.evaluate(NAV, "base-nav", 1)
    running.result()
    assert real.publish(running.id, dry_run=True).discloses
    made = real.publish(running.id, title="one episode")
    assert (made.subject, made.title, real.publish(running.id).id) == (running.id, "one episode", made.id)
    document = real.publication(made.id)
    assert document["id"] == made.id and document["evaluations"][0]["episodes"][0]["seed"] == 0
    assert isinstance(document["published_at"], int)
    assert real.leaderboard("base-nav") == []
    assert real.withdraw(made.id, reason="a test").withdrawn_at is not None
    assert made.id in [each.id for each in real.publications() if each.withdrawn_at is not None]
    assert real.publication(made.id)["reason"] == "a test"
    with pytest.raises(limber.errors.NotFound):
        real.publication("pub_none")
    with pytest.raises(limber.errors.BadInput):
        real.publish()


class Corridor:
    """An environment with Gymnasium's interface: a base at a distance of 1 m from its goal."""

    def reset(self, *, seed: int | None = None) -> tuple[Any, dict[str, Any]]:
        self.x, self.yaw = 0.0, 0.0
        return self._seen(), {}

    def _seen(self) -> np.ndarray:
        return np.array([self.x, 0.0, self.yaw, 1.0, 0.0, 0.0])

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.yaw += action[1] * 0.1
        self.x += action[0] * 0.1
        near = abs(1 - self.x) < 0.15
        return self._seen(), -abs(1 - self.x), near, False, {"is_success": near, "distance": abs(1 - self.x)}


def test_an_external_runner_runs_episodes_in_a_gymnasium_environment(real: limber.Limber) -> None:
    asked = real.evaluate(NAV, "1x/1x-world-model-challenge", 2, external=True, action_space="base_twist_2d", replan_steps=4)
    ended = limber.gym.run(real, lambda scenario: Corridor(), to_observation=lambda obs, info: {"state": obs}, tell=lambda line: None)
    mine = next(each for each in ended if each.id == asked.id)
    assert (mine.status, mine.completed, mine.success_rate) == ("completed", 2, 1.0)
    assert mine.message.per_episode[0].metrics["distance"] < 0.15


def test_a_failing_environment_ends_its_evaluation(real: limber.Limber) -> None:
    class Broken(Corridor):
        def step(self, action: np.ndarray) -> Any:
            raise RuntimeError("the simulator fell over")

    asked = real.evaluate(NAV, "1x/1x-world-model-challenge", 1, external=True, action_space="base_twist_2d")
    with pytest.raises(RuntimeError, match="fell over"):
        limber.gym.run(real, lambda scenario: Broken(), to_observation=lambda obs, info: {"state": obs}, tell=lambda line: None)
    assert real.evaluation(asked.id).status == "failed"


def test_a_python_policy_becomes_supply_by_dialing(real: limber.Limber, until: Until) -> None:
    name, stop, said = f"py-{uuid.uuid4().hex[:8]}", threading.Event(), []

    def policy(asked: limber.serve.Asked) -> np.ndarray:
        if asked.state.size == 0:
            raise limber.serve.InvalidInput("there is no state")
        return np.tile([0.1 + 0.01 * asked.state[0], 0.1 * asked.state[-1]], (asked.horizon, 1))

    options = {"model": f"{name}/cruise", "action_space": "base_twist_2d", "state_names": ["x", "y"], "cameras": ["wrist"], "stop": stop, "tell": said.append}
    picture = np.zeros((32, 32, 3), np.uint8)

    def seen(state: list[float], camera: str = "wrist") -> limber.Observation:
        return limber.Observation(images={camera: picture}, state=state)

    serving = threading.Thread(target=limber.serve.serve, args=(policy,), kwargs={**options, "url": real.addresses[0].url, "key": real._key})
    serving.start()
    try:
        until(lambda: any(line.endswith("is live") for line in said) or not serving.is_alive())
        chunk = real.act(f"{name}/cruise", seen([1.0, 2.0]), action_space="base_twist_2d", horizon=3)
        assert chunk.steps.tolist() == [[0.11, 0.2]] * 3
        with real.loop(f"{name}/cruise", action_space="base_twist_2d", rate_hz=50) as loop:
            until(lambda: loop.tick(seen([1.0, 2.0])).action is not None)
        # Input that the policy refuses is reported as the caller's error.
        with pytest.raises(errors.InputContract):
            real.act(f"{name}/cruise", seen([1.0]), action_space="base_twist_2d")
        # An unknown camera is named in the error, ends the loop, and makes the robot hold.
        with pytest.raises(errors.InputContract, match="nose"):
            real.act(f"{name}/cruise", seen([1.0, 2.0], "nose"), action_space="base_twist_2d")
        told: list[np.ndarray] = []
        with real.loop(f"{name}/cruise", action_space="base_twist_2d", rate_hz=50, hold=[0, 0]) as loop, pytest.raises(errors.LimberError, match="nose"):
            loop.run(lambda: seen([1.0, 2.0], "nose"), told.append, max_seconds=30)
        assert told and all(action.tolist() == [0, 0] for action in told)
    finally:
        stop.set()
        serving.join(20)
    assert not serving.is_alive()


def test_a_key_without_supply_permission_is_refused(real: limber.Limber) -> None:
    with pytest.raises(errors.InvalidApiKey):
        limber.serve.serve(lambda asked: [0, 0], model="acme/x", url=real.addresses[0].url, key="lmb_sk_wrong", tell=lambda line: None)


def test_a_listening_policy_answers_a_gateways_evaluations(real: limber.Limber) -> None:
    def policy(asked: limber.serve.Asked) -> np.ndarray:
        return np.zeros((asked.horizon, 2))

    with PolicyServer(policy, Served(model="acme/still", provider="acme", action_space="base_twist_2d")) as server:
        result = real.evaluate(server.address, "base-nav", 1).result()
    assert (result.completed, result.success_rate) == (1, 0.0)


def test_openpi_clients_can_use_a_gateway_model(real: limber.Limber) -> None:
    policy = limber.openpi.Policy(real, NAV, action_space="base_twist_2d", horizon=4)
    actions = policy.infer({"state": np.array(STATE, np.float32), "prompt": "go"})["actions"]
    assert actions.shape == (4, 2)
    policy.reset()


def test_the_asyncio_client_works_with_a_gateway(real: limber.Limber) -> None:
    async def main() -> None:
        async with AsyncLimber(real.addresses[0].url, real._key) as client:
            chunk, plan = await asyncio.gather(client.act(NAV, STATE, action_space="base_twist_2d"), client.preview(NAV, action_space="base_twist_2d"))
            assert chunk.steps.shape[1] == 2 and plan.entries
            running = await client.evaluate(NAV, "base-nav", 1)
            assert [each.index async for each in running] == [0]
            assert (await running.result()).success_rate == 1
            made = await client.publish(running.id)
            assert (await client.publication(made.id))["id"] == made.id
            assert await client.leaderboard("base-nav") == []
            assert (await client.withdraw(made.id)).withdrawn_at is not None
            assert made.id in [each.id async for each in client.publications()]

    asyncio.run(main())
