"""Compares the cost of a control step with bare stubs: `python bench.py [STEPS]`, with the package installed or PYTHONPATH set.

It prints this process's CPU time in microseconds per step. `core` only decides; `tick` accepts an observation of seven numbers, decides and passes it
to the sender; `stubs` builds and serializes the same message by hand. The same again with an image of 224 x 224, which `tick` copies and the sender
encodes; then with chunks of sixteen rows, one for eight steps, which stubs parse, and of which `tick` returns one row each. No gateway is used,
because the cost of a stream is equal in both cases. `clients/cpp/bench` measures the same in C++.
"""

import sys
import time

import numpy as np

import limber
from limber._gen.limber.v1 import action_pb2, control_loop_pb2, inference_service_pb2, observation_pb2
from limber.core import LoopCore
from limber.loop import _Stream

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000


def cost(name: str, step: object) -> None:
    for i in range(100):
        step(i)  # type: ignore[operator]
    began = time.process_time()
    for i in range(100, 100 + STEPS):
        step(i)  # type: ignore[operator]
    print(f"{name:<36} {(time.process_time() - began) / STEPS * 1e6:8.2f} us")


class Still:
    """A client whose loop is never opened, so only the cost of `tick` remains."""

    addresses = ()


def main() -> None:
    state, picture = np.arange(7.0), np.zeros((224, 224, 3), np.uint8)
    core = LoopCore(1000)
    core.opened(0, deadline_ms=100)
    core.tick(0)

    def decide(i: int) -> None:
        if i % 8 == 0:
            core.chunk(i, episode=1, start_step=i - 1, valid_until_step=i + 15, dt_ms=1, rows=16)
        core.tick(i)

    cost("core", decide)

    def stubs(i: int) -> None:
        seen = observation_pb2.Observation(proprio=state.tolist(), t_ms=i)
        message = inference_service_pb2.ActStreamRequest(observation=control_loop_pb2.LoopObservation(step=i, observations=[seen]))
        message.SerializeToString()

    cost("stubs, seven numbers", stubs)
    for name, sensed in (("seven numbers", state), ("and a picture", {"state": state, "images": {"a": picture}})):
        now = [0.0]
        loop = limber.Loop(Still(), "a/b", rate_hz=1000, clock=lambda now=now: now[0])  # type: ignore[arg-type,misc]
        loop.start = lambda: None  # type: ignore[method-assign]

        def tick(i: int, loop: limber.Loop = loop, now: list[float] = now, sensed: object = sensed) -> None:
            now[0] = i / 1000
            loop.tick(sensed)  # type: ignore[arg-type]

        cost(f"tick, {name}", tick)

    answer = inference_service_pb2.ActStreamResponse
    rows = [action_pb2.ActionStep(values=[0.0] * 7)] * 16

    def chunk(step: int) -> bytes:
        action = action_pb2.Action(space="joint_pos_7", steps=rows, dt_ms=1)
        made = control_loop_pb2.LoopChunk(action=action, start_step=step, valid_until_step=step + 16, episode=1)
        return answer(chunk=made).SerializeToString()

    # The gateway's messages are built before the measurement.
    chunks = {step: chunk(step) for step in range(0, STEPS + 100, 8)}

    def answered(i: int) -> None:
        stubs(i)
        if i % 8 == 0:
            [list(row.values) for row in answer.FromString(chunks[i]).chunk.action.steps]

    cost("stubs, seven numbers, and chunks", answered)
    later = [0.0]
    loop = limber.Loop(Still(), "a/b", rate_hz=1000, clock=lambda: later[0])  # type: ignore[arg-type]
    loop.start = lambda: None  # type: ignore[method-assign]
    stream = _Stream(1, 1, 0.0)
    loop._receive(stream, answer(opened=control_loop_pb2.LoopOpened(deadline_ms=1000, episode=1)))

    def acted(i: int) -> None:
        later[0] = i / 1000
        loop.tick(state)
        if i % 8 == 0:
            loop._receive(stream, answer.FromString(chunks[i]))

    cost("tick, seven numbers, and chunks", acted)
    assert loop.stats.actions > STEPS // 2


if __name__ == "__main__":
    main()
