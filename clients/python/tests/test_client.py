"""Calls against the fake gateway: requests, answers, retries and refusals."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import grpc
import numpy as np
import pytest

import limber
from limber import errors
from limber._gen.limber.v1 import action_pb2, inference_service_pb2
from limber.aio import AsyncLimber
from limber.errors import Suggestion
from limber.testing import FakeGateway


def test_act_sends_an_array_and_returns_a_chunk(client: limber.Limber, gateway: FakeGateway) -> None:
    gateway.policy = lambda seen, horizon: np.arange(horizon * 2).reshape(horizon, 2)
    chunk = client.act("a/b", np.array([1, 2], dtype=np.float32), horizon=3, action_space="base_twist_2d")
    assert chunk.steps.dtype == np.float64
    assert chunk.steps.tolist() == [[0, 1], [2, 3], [4, 5]]
    assert (chunk.dt_s, chunk.space, chunk.route.provider) == (0.05, "base_twist_2d", "fake")
    assert list(gateway.received[-1].observations[0].proprio) == [1, 2]


def test_all_fields_of_an_observation_are_sent(client: limber.Limber, gateway: FakeGateway) -> None:
    seen = limber.Observation(
        images={"wrist": np.zeros((40, 60, 3), np.uint8)},
        state=[0.5],
        state_names=["x"],
        gripper=0.2,
        tactile=[1, 2],
        depth={"wrist": np.full((4, 4), 700, np.uint16)},
        t_ms=12.5,
    )
    client.act("a/b", seen, provider={"sort": "latency", "max_latency_ms": 200, "hedge": 30}, preference="fastest", seed=7)
    sent = gateway.received[-1]
    first = sent.observations[0]
    assert first.frames[0].camera == "wrist" and first.frames[0].data.startswith(b"\xff\xd8\xff")
    assert first.depth[0].data.startswith(b"\x89PNG")
    assert (first.gripper, list(first.tactile), first.t_ms, list(first.proprio_names)) == (0.2, [1, 2], 12.5, ["x"])
    assert (sent.provider.sort, sent.provider.max_latency_ms, sent.provider.hedge.after_ms) == (2, 200, 30)
    assert (sent.preference, sent.seed) == (2, 7)


def test_several_observations_are_sent_oldest_first(client: limber.Limber, gateway: FakeGateway) -> None:
    client.act("a/b", [{"state": [1]}, {"state": [2]}])
    assert [list(each.proprio) for each in gateway.received[-1].observations] == [[1], [2]]


def test_images_are_scaled_to_the_declared_size() -> None:
    import io

    from PIL import Image

    from limber._frames import FrameHint, encoded

    picture = np.full((480, 640, 3), 255, np.uint8)
    made = Image.open(io.BytesIO(encoded(picture, FrameHint(224, 224), "images")))
    assert made.size == (224, 224)
    # The aspect ratio is kept, so there is black above and below.
    assert np.asarray(made)[0].max() < 16 and np.asarray(made)[112].min() > 240


def test_predict_yields_frames_one_by_one(client: limber.Limber) -> None:
    frames = client.predict("a/b", [1.0], horizon=3)
    first = next(frames)
    assert (first.index, first.t_s, first.image.shape) == (0, 0.05, (1, 1, 3))
    assert [frame.index for frame in frames] == [1, 2]


def test_ground_preview_models_and_stops_return_values(client: limber.Limber) -> None:
    assert client.ground({"images": {"": np.zeros((8, 8, 3), np.uint8)}}, "the mug").points[0].label == "the mug"
    assert client.preview("a/b", contract="act").entries[0].provider == "fake"
    assert [model.id for model in client.models()] == ["test/policy"]
    stop = client.stop("arm-1", reason="a test")
    with pytest.raises(errors.RobotStopped):
        client.act("a/b", [1], robot="arm-1")
    assert client.stops()[0].id == stop.id
    assert client.release("arm-1").released


@pytest.mark.parametrize("code", sorted(errors.BY_CODE))
def test_every_reason_has_its_own_class(gateway: FakeGateway, code: str) -> None:
    gateway.refuse(code, "said so", retry_after_s=0.5)
    with limber.Limber(gateway.url, gateway.key, retries=0) as client, pytest.raises(errors.Refused) as caught:
        client.act("a/b", [1])
    assert type(caught.value) is errors.BY_CODE[code]
    assert (caught.value.code, caught.value.message, caught.value.retry_after_s) == (code, "said so", 0.5)
    assert caught.value.request_id == "req_fake"


SUGGESTIONS = (
    Suggestion("provider.max_latency_ms", 400, 2),
    Suggestion("provider.only", None, 1),
    Suggestion("observations.0.frames", None, 1, "add the picture of agentview"),
)


def test_a_refusal_contains_its_suggestions(client: limber.Limber, gateway: FakeGateway) -> None:
    gateway.refuse("no_route_available", suggestions=SUGGESTIONS)
    with pytest.raises(errors.NoRouteAvailable) as caught:
        client.act("a/b", [1])
    assert caught.value.suggestions == SUGGESTIONS
    assert (
        "set provider.max_latency_ms to 400 to admit 2 offerings; remove provider.only to admit 1 offering; "
        "add the picture of agentview to admit 1 offering" in str(caught.value)
    )


def test_a_retryable_refusal_is_retried_with_one_idempotency_key(client: limber.Limber, gateway: FakeGateway) -> None:
    gateway.refuse("overloaded", retry_after_s=0.01)
    gateway.refuse("capacity_exhausted", retry_after_s=0.01)
    assert client.act("a/b", [1]).model == "test/policy"
    assert len(gateway.received) == 3


def test_a_permanent_refusal_is_not_retried(client: limber.Limber, gateway: FakeGateway) -> None:
    gateway.refuse("model_not_found")
    with pytest.raises(errors.NotFoundError):
        client.act("a/b", [1])
    assert len(gateway.received) == 1


def test_a_stream_is_never_retried(client: limber.Limber, gateway: FakeGateway) -> None:
    gateway.refuse("overloaded", retry_after_s=0.01)
    with pytest.raises(errors.Overloaded):
        list(client.predict("a/b", [1]))
    assert len(gateway.received) == 1


def test_the_next_address_is_tried_if_one_does_not_answer(gateway: FakeGateway) -> None:
    with limber.Limber(["http://127.0.0.1:9", gateway.url], gateway.key) as client:
        assert client.act("a/b", [1]).model == "test/policy"
        assert client.act("a/b", [1]).model == "test/policy"


def test_an_unreachable_gateway_is_reported_with_its_address() -> None:
    with limber.Limber("http://127.0.0.1:9", "key", retries=0) as client, pytest.raises(errors.ConnectionFailed, match="127.0.0.1:9"):
        client.act("a/b", [1])


def test_a_wrong_key_raises_invalid_api_key(gateway: FakeGateway) -> None:
    with limber.Limber(gateway.url, "another") as client, pytest.raises(errors.InvalidApiKey):
        client.act("a/b", [1])


GARBAGE = [
    (b"\xff\xff\xff\xff", "not a Limber gateway"),
    (inference_service_pb2.ActResponse(), "no steps"),
    (inference_service_pb2.ActResponse(action=action_pb2.Action(steps=[action_pb2.ActionStep(values=[1]), action_pb2.ActionStep()])), "different lengths"),
    (inference_service_pb2.ActResponse(action=action_pb2.Action(steps=[action_pb2.ActionStep(values=[float("nan")])])), "finite"),
    (inference_service_pb2.ActResponse(action=action_pb2.Action(steps=[action_pb2.ActionStep(values=[1])] * 5)), "5 steps; 4 were requested"),
]


@pytest.mark.parametrize(("answer", "words"), GARBAGE)
def test_a_malformed_answer_is_reported(client: limber.Limber, gateway: FakeGateway, answer: object, words: str) -> None:
    gateway.put("Act", answer)
    with pytest.raises(errors.MalformedAnswer, match=words):
        client.act("a/b", [1], horizon=4)


def test_a_web_server_is_reported_as_not_a_gateway() -> None:
    import http.server
    import threading

    server = http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        url = f"http://127.0.0.1:{server.server_port}"
        with limber.Limber(url, "key", retries=0, timeout_s=5) as client, pytest.raises((errors.ConnectionFailed, errors.MalformedAnswer)):
            client.act("a/b", [1])
    finally:
        server.shutdown()
        server.server_close()


def test_the_asyncio_client_returns_the_same_results(gateway: FakeGateway) -> None:
    async def main() -> None:
        async with AsyncLimber(["http://127.0.0.1:9", gateway.url], gateway.key) as client:
            gateway.refuse("overloaded", retry_after_s=0.01)
            assert (await client.act("a/b", [1], horizon=2)).steps.shape == (2, 2)
            assert [frame.index async for frame in client.predict("a/b", [1], horizon=2)] == [0, 1]
            assert (await client.ground([1.0], "x")).points[0].x == 0.5
            assert [model.id async for model in client.models()] == ["test/policy"]
            assert (await client.preview("a/b")).entries[0].provider == "fake"
            gateway.refuse("robot_stopped")
            with pytest.raises(errors.RobotStopped):
                await client.act("a/b", [1])
            acted: list[object] = []

            async def step(action: object) -> None:
                acted.append(action)

            outcome = await client.loop("a/b", rate_hz=50).arun(lambda: [1.0], step, max_seconds=0.5)
            assert outcome.ended == "max_seconds" and len(acted) == outcome.stats.actions > 0

    asyncio.run(main())


def test_a_key_is_never_shown(gateway: FakeGateway) -> None:
    with limber.Limber(gateway.url, "lmb_sk_verysecret") as client:
        assert "verysecret" not in repr(client)
        with pytest.raises(errors.InvalidApiKey) as caught:
            client.act("a/b", [1])
        assert "verysecret" not in str(caught.value)


def test_other_stubs_of_the_same_files_do_not_conflict() -> None:
    # A file with the same name and other contents, in protobuf's default pool.
    code = """
from google.protobuf import descriptor_pb2, descriptor_pool
for name in ("limber/v1/action.proto", "google/rpc/status.proto"):
    descriptor_pool.Default().Add(descriptor_pb2.FileDescriptorProto(name=name, package="other"))
import limber, limber.testing
with limber.testing.FakeGateway() as gateway, limber.Limber(gateway.url, gateway.key) as client:
    client.act("a/b", [1], metadata={"why": "a test"})
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_an_unknown_reason_raises_a_refusal(client: limber.Limber) -> None:
    from limber._gen.google.rpc import error_details_pb2, status_pb2

    class Newer(grpc.RpcError):
        answer = grpc.StatusCode.FAILED_PRECONDITION

        def code(self) -> grpc.StatusCode:
            return self.answer

        def details(self) -> str:
            return "said so"

        def trailing_metadata(self) -> list[tuple[str, bytes]]:
            status = status_pb2.Status(code=9, message="said so")
            info = error_details_pb2.ErrorInfo(reason="moon_is_full")
            status.details.add(type_url="type.googleapis.com/google.rpc.ErrorInfo", value=info.SerializeToString())
            return [("grpc-status-details-bin", status.SerializeToString())]

    error = errors.of_rpc(Newer(), "act")
    assert isinstance(error, errors.Refused) and str(error) == "moon_is_full: said so"
    # A key may have been sent to another gateway than its own.
    newer = Newer()
    newer.answer = grpc.StatusCode.UNAUTHENTICATED
    assert str(errors.of_rpc(newer, "act at http://arm:8080")) == "moon_is_full: said so (act at http://arm:8080)"
