"""A program that uses the package as it is on the path, at the gateway of LIMBER_URL: either of them may be of another version.

It uses what was released, and prints the version of the package. An exception ends it.
"""

from __future__ import annotations

import asyncio
import sys
import time

import numpy as np

import limber
from limber import errors
from limber.aio import AsyncLimber
from limber.sim import WheeledBase

NAV = "reference/potential-nav"
STATE = [0.0, 0.0, 0.0, 2.0, 0.0, 0.0]


def calls(client: limber.Limber) -> None:
    chunk = client.act(NAV, STATE, action_space="base_twist_2d", horizon=4)
    assert chunk.steps.shape == (4, 2) and chunk.cost_usd > 0 and chunk.route.provider == "reference"
    assert client.preview(NAV, action_space="base_twist_2d").entries[0].estimated_cost_usd > 0
    assert any(model.id == NAV for model in client.models("potential"))
    assert client.usage(limit=1)[0].model == NAV
    picture = np.zeros((64, 64, 3), np.uint8)
    picture[10:30, 10:30, 0] = 255
    seen = {"images": {"front": picture}}
    assert [frame.index for frame in client.predict("reference/block-flow", seen, horizon=2)] == [0, 1]
    assert len(client.ground(seen, "the red square", model="reference/colour-shape").points) == 1
    evaluation = client.evaluate(NAV, "base-nav", 2)
    assert sorted(episode.index for episode in evaluation) == [0, 1]
    assert evaluation.result().status == "completed"


def refusals(client: limber.Limber) -> None:
    try:
        client.act("reference/no-such", STATE, action_space="base_twist_2d")
    except errors.ModelNotFound as refusal:
        assert refusal.request_id
    else:
        raise AssertionError("a model that there is not was served")


def loops(client: limber.Limber) -> None:
    base, robot = WheeledBase(), "py-one-apart"
    stops: list[limber.Stop] = []

    def observe() -> np.ndarray:
        if loop.stats.actions >= 20 and not stops:
            stops.append(client.stop(robot, reason="a test"))
        return base.observe()

    with client.loop(NAV, action_space="base_twist_2d", rate_hz=50, hold=base.hold, robot=robot) as loop:
        try:
            loop.run(observe, base.step, max_seconds=50)
        except errors.RobotStopped:
            assert base.stands and base.driven_m > 0 and loop.stats.stale_actions == 0
        else:
            raise AssertionError(f"the emergency stop did not end the loop: {loop.stats}")
    assert released(client, robot).id == stops[0].id


def released(client: limber.Limber, robot: str) -> limber.Stop:
    """A stop is in force before it is on record."""
    until = time.monotonic() + 30
    while True:
        try:
            return client.release(robot)
        except errors.NotFound:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)


async def concurrently() -> None:
    async with AsyncLimber() as client:
        chunks = await asyncio.gather(*(client.act(NAV, STATE, action_space="base_twist_2d", horizon=2) for _ in range(3)))
        assert [chunk.steps.shape for chunk in chunks] == [(2, 2)] * 3


if __name__ == "__main__":
    began = time.monotonic()
    with limber.Limber() as made:
        calls(made)
        refusals(made)
        loops(made)
    asyncio.run(concurrently())
    print(f"limber {limber.__version__} of {limber.__file__}, in {time.monotonic() - began:.1f} s", file=sys.stderr)
