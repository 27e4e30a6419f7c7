"""Adapters to other programs: openpi's interface, policies as servers, and image sizes."""

from __future__ import annotations

import queue
import subprocess
import sys
from typing import Any

import grpc
import numpy as np
import pytest

import limber
import limber.openpi
from limber import errors
from limber._gen.limber.policy.v1 import policy_service_pb2 as wire
from limber._gen.limber.v1 import observation_pb2
from limber.serve import Asked, InvalidInput, PolicyServer, Served
from limber.testing import FakeGateway

PICTURE = np.zeros((12, 16, 3), np.uint8)


def test_reads_openpi_observations_by_key(client: limber.Limber, gateway: FakeGateway) -> None:
    policy = limber.openpi.Policy(client, "a/b", action_space="joint_pos_7", horizon=2)
    made = policy.infer(
        {
            "observation/wrist_image_left": PICTURE.transpose(2, 0, 1),
            "observation/joint_position": np.arange(7.0),
            "observation/gripper_position": np.array([0.5]),
            "prompt": "fold",
        }
    )
    assert made["actions"].shape == (2, 2) and made["policy_timing"]["infer_ms"] > 0
    sent = gateway.received[-1]
    assert sent.observations[0].frames[0].camera == "wrist_image_left"
    assert list(sent.observations[0].proprio) == [0, 1, 2, 3, 4, 5, 6, 0.5]
    assert (sent.instruction, sent.action_space) == ("fold", "joint_pos_7")
    session = sent.provider.session_id
    policy.reset()
    policy.infer({"state": [1.0]})
    assert gateway.received[-1].provider.session_id != session


def test_keys_override_the_names_of_an_observation(client: limber.Limber, gateway: FakeGateway) -> None:
    policy = limber.openpi.Policy(client, "a/b", keys={"state": "my/q", "wrist": "my/cam"})
    policy.infer({"my/q": [1, 2], "my/cam": PICTURE})
    assert gateway.received[-1].observations[0].frames[0].camera == "wrist"
    with pytest.raises(errors.BadInput, match="keys="):
        policy.infer({"something": "else"})


@pytest.mark.parametrize("module", ["limber.openpi", "limber.gym", "limber.runners", "limber.runners.libero", "limber.serve", "limber.testing", "limber.aio", "limber.cli", "limber.probe"])
def test_every_module_imports_without_optional_frameworks(module: str) -> None:
    code = f"""
import sys
for name in ("PIL", "gymnasium", "websockets", "msgpack", "openpi_client", "lerobot"):
    sys.modules[name] = None
import {module}
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


class Line:
    """The gateway's end of a policy server's stream."""

    def __init__(self, address: str) -> None:
        self._said: queue.Queue[wire.ActRequest | None] = queue.Queue()
        self._channel = grpc.insecure_channel(address.removeprefix("grpc://"))
        self.answers = self._channel.stream_stream(
            "/limber.policy.v1.PolicyService/Act",
            request_serializer=wire.ActRequest.SerializeToString,
            response_deserializer=wire.ActResponse.FromString,
        )(iter(self._said.get, None))

    def ask(self, call_id: int, **call: Any) -> None:
        self._said.put(wire.ActRequest(call_id=call_id, call=wire.ActCall(horizon=2, **call)))

    def cancel(self, call_id: int) -> None:
        self._said.put(wire.ActRequest(call_id=call_id, cancel=wire.CancelCall()))

    def close(self) -> None:
        self._said.put(None)
        self._channel.close()


def answer_of(policy: Any, **call: Any) -> wire.ActResponse:
    with PolicyServer(policy, Served(model="a/b", provider="a", dt_ms=20)) as server:
        line = Line(server.address)
        try:
            line.ask(7, **call)
            answer = next(iter(line.answers))
            assert answer.call_id == 7
            return answer
        finally:
            line.close()


SEEN = [observation_pb2.Observation(proprio=[1, 2])]


def test_a_policy_function_returns_its_rows() -> None:
    made = answer_of(lambda asked: [[1, 2], [3, 4], [5, 6]], observations=SEEN).chunk
    assert [list(step.values) for step in made.steps] == [[1, 2], [3, 4]]
    assert made.dt_ms == 20


def test_a_policy_whose_chunks_are_shorter_returns_its_complete_chunk(capsys: pytest.CaptureFixture[str]) -> None:
    made = answer_of(lambda asked: [[1, 2]], observations=SEEN).chunk
    assert [list(step.values) for step in made.steps] == [[1, 2]]
    assert "the policy returned 1 of 2 requested steps" in capsys.readouterr().err


def test_a_failed_call_is_logged_in_the_policys_process(capsys: pytest.CaptureFixture[str]) -> None:
    answer_of(lambda asked: 1 / 0, observations=SEEN)
    assert "serve: call failed: ZeroDivisionError: division by zero" in capsys.readouterr().err


def test_a_policy_with_openpis_interface_answers() -> None:
    class Policy:
        def infer(self, obs: dict[str, Any]) -> dict[str, Any]:
            return {"actions": np.tile(obs["state"], (4, 1))}

    made = answer_of(Policy(), observations=SEEN, instruction="go").chunk
    assert [list(step.values) for step in made.steps] == [[1, 2], [1, 2]]


@pytest.mark.parametrize(
    ("policy", "code", "words"),
    [
        (lambda asked: 1 / 0, wire.CALL_ERROR_CODE_INTERNAL, "division"),
        (lambda asked: np.zeros((0, 2)), wire.CALL_ERROR_CODE_INTERNAL, "(0, 2)"),
        (lambda asked: [float("nan")], wire.CALL_ERROR_CODE_INTERNAL, "finite"),
        (lambda asked: asked.images["wrist"], wire.CALL_ERROR_CODE_INVALID_INPUT, "wrist"),
    ],
)
def test_an_exception_of_the_policy_fails_only_its_call(policy: Any, code: int, words: str) -> None:
    answer = answer_of(policy, observations=SEEN)
    assert answer.error.code == code and words in answer.error.message


def test_a_cancelled_call_does_not_run() -> None:
    turn = queue.Queue[float]()
    asked: list[float] = []

    def policy(call: Asked) -> Any:
        asked.append(call.state[0])
        turn.get(timeout=20)
        return [0.0]

    with PolicyServer(policy, Served(model="a/b", provider="a")) as server:
        line = Line(server.address)
        try:
            for call_id in (1, 2, 3):
                line.ask(call_id, observations=[observation_pb2.Observation(proprio=[call_id])])
            line.cancel(2)
            line.ask(4, observations=[observation_pb2.Observation(proprio=[4])])
            answers = iter(line.answers)
            # The fourth call follows the cancellation, so the cancellation was read before the third call is answered.
            for _ in range(3):
                turn.put(0)
            assert next(answers).call_id == 1
            assert {next(answers).call_id, next(answers).call_id} <= {2, 3, 4}
        finally:
            turn.put(0)
            line.close()
    assert asked[0] == 1


def test_a_state_of_the_wrong_length_is_refused_before_the_policy_runs() -> None:
    with PolicyServer(lambda asked: [0.0], Served(model="a/b", provider="a", state_names=("x",))) as server:
        line = Line(server.address)
        line.ask(1, observations=SEEN)
        assert next(iter(line.answers)).error.code == wire.CALL_ERROR_CODE_INVALID_INPUT
        line.close()
    assert issubclass(InvalidInput, errors.BadInput)


def test_images_are_encoded_as_the_gateway_declares() -> None:
    from limber._frames import FrameHint
    from limber._gen.limber.v1 import control_loop_pb2, input_contract_pb2, observation_pb2
    from limber.loop import hints_of

    spec = input_contract_pb2.CameraSpec
    cameras = [
        spec(name="wrist", aliases=["cam_wrist"], width=224, height=224),
        spec(name="front", any_size=True, width=320, height=240, formats=[observation_pb2.IMAGE_FORMAT_PNG]),
    ]

    def told(*specs: Any) -> dict[str, FrameHint]:
        contract = input_contract_pb2.InputContract(cameras=input_contract_pb2.CameraSpecs(cameras=specs))
        return hints_of(control_loop_pb2.LoopOpened(input=contract))

    wrist, front = FrameHint(224, 224), FrameHint(320, 240, False, "PNG")
    assert told(*cameras) == {"wrist": wrist, "cam_wrist": wrist, "front": front}
    assert told(spec(width=8, height=8), spec(width=8, height=8)) == {"": FrameHint(8, 8)}
    assert told(spec(width=8, height=8), spec(width=9, height=9)) == {}
    assert hints_of(control_loop_pb2.LoopOpened()) == {}


@pytest.mark.parametrize(
    ("hint", "size", "kind"),
    [
        ((224, 224, True, "JPEG"), (224, 224), "JPEG"),
        ((224, 224, False, "PNG"), (224, 168), "PNG"),
        ((2000, 2000, False, "WEBP"), (640, 480), "WEBP"),
        ((0, 0, True, "JPEG"), (640, 480), "JPEG"),
    ],
)
def test_an_image_fits_the_declared_size(hint: tuple[int, int, bool, str], size: tuple[int, int], kind: str) -> None:
    import io

    from PIL import Image

    from limber._frames import FrameHint, encoded

    made = Image.open(io.BytesIO(encoded(np.zeros((480, 640, 3), np.uint8), FrameHint(*hint), "images")))
    assert (made.size, made.format) == (size, kind)


def test_a_loop_encodes_images_as_the_gateway_declares(client: limber.Limber, gateway: FakeGateway) -> None:
    import io
    import threading

    from PIL import Image

    from limber._gen.limber.v1 import input_contract_pb2

    gateway.input = input_contract_pb2.InputContract(
        cameras=input_contract_pb2.CameraSpecs(cameras=[input_contract_pb2.CameraSpec(name="wrist", width=64, height=64)])
    )
    acted = threading.Event()
    with client.loop("a/b", rate_hz=50) as loop:
        loop.run(lambda: None if acted.is_set() else {"images": {"wrist": np.zeros((480, 640, 3), np.uint8)}}, lambda action: acted.set(), max_seconds=20)
    sent = next(message.observation for message in gateway.received if message.HasField("observation"))
    assert Image.open(io.BytesIO(sent.observations[0].frames[0].data)).size == (64, 64)


def test_a_caller_that_closed_its_side_still_receives_its_answers() -> None:
    go_on = queue.Queue[int]()

    def policy(asked: Asked) -> Any:
        go_on.get(timeout=20)
        return [0.0]

    with PolicyServer(policy, Served(model="a/b", provider="a")) as server:
        line = Line(server.address)
        line.ask(1, observations=SEEN)
        line.ask(2, observations=SEEN)
        line._said.put(None)
        go_on.put(0)
        go_on.put(0)
        assert [answer.call_id for answer in line.answers] == [1, 2]
        line.close()
