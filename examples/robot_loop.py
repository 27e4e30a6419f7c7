"""A robot's control loop in Python: a wheeled base drives around a square at 50 Hz.

Generate the stubs once, from the root of the repository. The Debian packages are protobuf-compiler, protobuf-compiler-grpc and
python3-grpcio. With pip's grpcio and grpcio-tools, run `python -m grpc_tools.protoc` instead of `protoc` and omit the line with
`--plugin`.

    mkdir -p stubs
    npx buf build --as-file-descriptor-set -o stubs/limber.binpb
    protoc --descriptor_set_in=stubs/limber.binpb --python_out=stubs --grpc_python_out=stubs \
        --plugin=protoc-gen-grpc_python="$(command -v grpc_python_plugin)" \
        $(cd proto && find limber/v1 limber/edge -name '*.proto') \
        buf/validate/validate.proto google/api/annotations.proto google/api/http.proto

Start the gateway (`npm start`), then

    PYTHONPATH=stubs LIMBER_KEY=lmb_sk_... python3 examples/robot_loop.py [seconds] [host:port]

It prints rate, age, holds and cost once per second, and resumes its session if the connection breaks. Each lap around the square is an
episode.
"""

import math
import os
import queue
import sys
import threading
import time

import grpc
from limber.v1 import action_pb2 as action
from limber.v1 import control_loop_pb2 as loop
from limber.v1 import inference_service_pb2 as inference
from limber.v1 import inference_service_pb2_grpc as stubs
from limber.v1 import observation_pb2 as sense
from limber.v1 import preferences_pb2 as preferences

SECONDS = float(sys.argv[1]) if len(sys.argv) > 1 else 300.0
TARGET = sys.argv[2] if len(sys.argv) > 2 else "127.0.0.1:8080"
KEY = os.environ.get("LIMBER_KEY", "")
PERIOD = 0.02
CORNERS = [(2.0, 0.0), (2.0, 2.0), (0.0, 2.0), (0.0, 0.0)]


class Base:
    """A wheeled base that moves by the action that is due. Brakes if there is none."""

    def __init__(self):
        self.x = self.y = self.yaw = 0.0
        self.corner = 0
        self.step = 0
        self.episode = 1
        self.chunk = None
        self.without = 0
        self.stale = 0

    def goal(self):
        return CORNERS[self.corner % len(CORNERS)]

    def tick(self):
        self.step += 1
        chunk = self.chunk
        # The chunk might have arrived just as the episode began.
        if chunk is not None and chunk.episode != self.episode:
            chunk = None
        valid = chunk is not None and chunk.start_step <= self.step < chunk.valid_until_step
        if chunk is not None and not valid:
            self.without += 1
        speed, turn = self.due(chunk.action, self.step - chunk.start_step) if valid else (0.0, 0.0)
        self.yaw += turn * PERIOD
        self.x += speed * math.cos(self.yaw) * PERIOD
        self.y += speed * math.sin(self.yaw) * PERIOD
        goal = self.goal()
        if math.hypot(goal[0] - self.x, goal[1] - self.y) < 0.15:
            self.corner += 1
            if self.corner % len(CORNERS) == 0:
                # The lap is complete: the old episode's plan must not be executed in the next one.
                self.episode += 1
                self.step = 0
                self.chunk = None

    def due(self, action, steps):
        """Returns the current action. A chunk's actions are dt_ms apart, which can be longer than a control step."""
        return action.steps[int(steps * PERIOD * 1000 // action.dt_ms)].values[:2]

    def observation(self):
        goal = self.goal()
        seen = sense.Observation(
            proprio=[self.x, self.y, self.yaw, goal[0], goal[1], self.yaw], t_ms=time.monotonic() * 1000
        )
        message = inference.ActStreamRequest(observation=loop.LoopObservation(step=self.step, observations=[seen]))
        return self.episode, message


def opening(episode):
    """Returns the first message of a stream."""
    return inference.ActStreamRequest(
        open=loop.LoopOpen(
            model="reference/potential-nav",
            action_space="base_twist_2d",
            horizon=16,
            robot_id="example-base",
            bounds=action.SafetyBounds(lowest=[-1, -3], highest=[1, 3]),
            provider=preferences.ProviderPreferences(session_id=f"example-{os.getpid()}", deadline_ms=150),
            episode=episode,
        )
    )


def messages(outbox, episode):
    """Yields the messages of one stream that begins in this episode, until the outbox yields None."""
    yield opening(episode)
    while (sensed := outbox.get()) is not None:
        now, message = sensed
        if now < episode:
            continue
        if now > episode:
            episode = now
            yield inference.ActStreamRequest(reset=loop.LoopReset(episode=episode))
        yield message


def main():
    base = Base()
    outbox = queue.Queue(maxsize=1)
    seen = {"chunks": 0, "holds": 0, "ages": 0.0, "cost": 0.0, "streams": 0}
    until = time.monotonic() + SECONDS

    def enqueue(message):
        try:
            outbox.get_nowait()  # keep only the newest observation
        except queue.Empty:
            pass
        outbox.put(message)

    def tick():
        due = time.monotonic()
        shown = due
        while due < until:
            base.tick()
            enqueue(base.observation())
            if due - shown >= 1:
                shown = due
                chunks = max(1, seen["chunks"])
                print(
                    f"{seen['chunks']} Hz, age {seen['ages'] / chunks:.1f} ms, {seen['holds']} holds, "
                    f"{base.without} steps without a valid chunk, {base.stale} stale chunks, ${seen['cost']:.6f}, stream {seen['streams']}, "
                    f"at {base.x:.2f} {base.y:.2f}",
                    flush=True,
                )
                seen.update(chunks=0, holds=0, ages=0.0)
                base.without = base.stale = 0
            due += PERIOD
            time.sleep(max(0.0, due - time.monotonic()))
        enqueue(None)

    threading.Thread(target=tick, daemon=True).start()
    channel = grpc.insecure_channel(TARGET)
    client = stubs.InferenceServiceStub(channel)
    while time.monotonic() < until:
        seen["streams"] += 1
        try:
            stream = client.ActStream(messages(outbox, base.episode), metadata=[("authorization", f"Bearer {KEY}")])
            for response in stream:
                kind = response.WhichOneof("event")
                if kind in ("chunk", "hold") and getattr(response, kind).episode != base.episode:
                    continue  # sent before the gateway received the reset
                if kind == "chunk":
                    base.chunk = response.chunk
                    # A gateway never sends expired chunks; the robot would not execute one either.
                    base.stale += base.step >= response.chunk.valid_until_step
                    seen["chunks"] += 1
                    seen["ages"] += response.chunk.observation_age_ms
                    seen["cost"] += response.chunk.usage.cost_usd
                    if response.chunk.HasField("route"):
                        print(f"served by {response.chunk.route.provider}, {response.chunk.route.model}", flush=True)
                elif kind == "hold":
                    base.chunk = None
                    seen["holds"] += 1
                elif kind == "ended":
                    print(f"ended {response.ended.code or 'ok'}: {response.ended.chunks} chunks", flush=True)
        except grpc.RpcError as error:
            base.chunk = None
            print(f"{error.code().name}: {error.details()}", flush=True)
            time.sleep(0.2)


main()
