"""A gateway model as a LeRobot server: the protocol's rules, over a stand-in for LeRobot's transport whose client end is the carrier's.

No LeRobot and no Zenoh is here; the observation of one test is bytes that LeRobot's own codec wrote (`test/golden/wire-samples`).
"""

from __future__ import annotations

import json
import os
import queue
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

msgpack = pytest.importorskip("msgpack")

from limber import Limber, cli, errors  # noqa: E402
from limber.lerobot import Carried, Carrier, CarrierFault  # noqa: E402
from limber.lerobot_server import Contract, Feature, Malformed, ModelServer, Worker, body_of  # noqa: E402
from limber.testing import FakeGateway  # noqa: E402

HERE = Path(__file__).resolve().parent
#: The repository shares the samples with the gateway; the source package includes them beside its tests.
SAMPLES = HERE / "wire-samples" if (HERE / "wire-samples").exists() else HERE.parents[2] / "test" / "golden" / "wire-samples"
MOTORS = ("motor_1.pos", "motor_2.pos", "motor_3.pos")
STATE = Feature("observation.state", (3,), "float32", names=MOTORS, semantics="test")
FRONT = Feature("observation.images.front", (6, 8, 3), "uint8", "rgb", semantics="test")
ACTION = Feature("action", (2,), "float32", semantics="test")
CONTRACT = Contract("test/policy", (STATE, FRONT), ACTION, "radians", 0.05, 4, "base_twist_2d", "arm")
PIXELS = (37 * np.arange(144) % 256).astype(np.uint8)


def tensor(values: Any, **more: Any) -> dict[str, Any]:
    array = np.asarray(values, np.float32)
    return {"__lerobot_type__": "tensor", "dtype": "float32", "shape": list(array.shape), "endianness": "little", "data": array.tobytes(), **more}


def rgb(**more: Any) -> dict[str, Any]:
    return {
        "__lerobot_type__": "rgb",
        "encoding": "raw",
        "shape": [6, 8, 3],
        "dtype": "uint8",
        "channel_order": "RGB",
        "data": PIXELS.tobytes(),
        **more,
    }


class Talk:
    """The client's end of the protocol."""

    def __init__(self, worker: Worker, answer: Any = None) -> None:
        self.worker = worker
        self.send = answer or worker.answer
        self.session = ""
        self.count = 0

    def say(self, kind: str, generation: int = 0, instance: str | None = None, request: str | None = None, **body: Any) -> tuple[str, dict[str, Any]]:
        self.count += 1
        record = {
            "version": 1,
            "message_type": kind,
            "instance_id": self.worker.instance if instance is None else instance,
            "session_id": "" if kind in ("describe", "open") else self.session,
            "generation": generation,
            "request_id": request or f"r{self.count}",
            "body": body,
        }
        answer = msgpack.unpackb(self.send(msgpack.packb(record)))
        assert answer["request_id"] == record["request_id"] and answer["generation"] == generation
        if answer["message_type"] == "accepted":
            self.session = answer["session_id"]
        return answer["message_type"], answer["body"]

    def open(self, **more: Any) -> tuple[str, dict[str, Any]]:
        contract = self.worker.contract
        asked = {
            "expected_artifact": self.worker.artifact,
            "features": [each.plain() for each in contract.features],
            "action_feature": contract.action.plain(),
            "semantics": contract.semantics,
            "action_interval": contract.interval_s,
            "mode": "chunk",
            "encoding": "raw",
        }
        return self.say("open", **{**asked, **more})

    def observe(self, sequence: int, generation: int = 0, request: str | None = None, **more: Any) -> tuple[str, dict[str, Any]]:
        seen = {
            "sequence": sequence,
            "artifact_identity": self.worker.artifact,
            "observation_id": "o1",
            "capture_time": 12.5,
            "task": "fold",
            "task_version": 0,
            "features": {STATE.name: tensor([1, 2, 3]), FRONT.name: rgb()},
            "delay": 0,
        }
        return self.say("observation", generation, request=request, **{**seen, **more})


@pytest.fixture
def worker(gateway: FakeGateway, client: Limber) -> Worker:
    gateway.policy = lambda seen, horizon: np.arange(horizon * 2).reshape(horizon, 2)
    return Worker(client, CONTRACT, "arm")


def refused(answer: tuple[str, dict[str, Any]]) -> str:
    assert answer[0] == "error", answer
    return str(answer[1]["code"])


def test_a_client_opens_acts_and_leaves(worker: Worker, gateway: FakeGateway) -> None:
    talk = Talk(worker)
    assert talk.say("describe", instance="")[1]["capabilities"]["features"][0]["names"] == list(MOTORS)
    assert talk.open()[0] == "accepted"
    assert talk.say("control", operation="reset")[1] == {"operation": "reset", "applied_generation": 0}
    kind, body = talk.observe(1)
    assert (kind, body["sequence"], body["task"], body["execution_steps"]) == ("action", 1, "fold", 4)
    steps = body["canonical_actions"]
    assert np.frombuffer(steps["data"], np.float32).reshape(steps["shape"]).tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    asked = gateway.received[-1]
    assert (asked.instruction, asked.horizon, asked.robot_id, asked.action_space) == ("fold", 4, "arm", "base_twist_2d")
    assert list(asked.observations[0].proprio) == [1, 2, 3] and asked.observations[0].frames[0].camera == "front"
    assert talk.say("control", operation="close")[0] == "ack"
    assert talk.open()[0] == "accepted"


def test_a_reset_begins_an_episode_and_makes_earlier_requests_stale(worker: Worker, gateway: FakeGateway) -> None:
    talk = Talk(worker)
    talk.open()
    talk.observe(1)
    first = gateway.received[-1].provider.session_id
    assert talk.say("control", 3, operation="reset")[1]["applied_generation"] == 3
    assert refused(talk.observe(2, 0)) == "stale"
    assert refused(talk.say("control", 1, operation="reset")) == "stale"
    assert talk.observe(2, 3)[0] == "action"
    assert gateway.received[-1].provider.session_id != first


def test_no_observation_runs_twice(worker: Worker, gateway: FakeGateway) -> None:
    talk = Talk(worker)
    talk.open()
    assert talk.observe(5, request="same")[0] == "action"
    before = len(gateway.received)
    assert [refused(talk.observe(6, request="same")), refused(talk.observe(5)), refused(talk.observe(4))] == ["stale"] * 3
    assert len(gateway.received) == before


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"features": []}, "incompatible"),
        ({"semantics": "degrees"}, "incompatible"),
        ({"action_interval": 0.1}, "incompatible"),
        ({"action_interval": "soon"}, "incompatible"),
        ({"expected_artifact": "sha256:1"}, "incompatible"),
        ({"mode": "rtc_guided"}, "unsupported"),
        ({"encoding": "png"}, "unsupported"),
        ({"required_capabilities": ["chunk_blending_v1"]}, "unsupported"),
    ],
)
def test_a_different_contract_is_refused_when_the_session_opens(worker: Worker, more: dict[str, Any], code: str) -> None:
    assert refused(Talk(worker).open(**more)) == code
    assert worker.session is None


@pytest.mark.parametrize(
    ("features", "code"),
    [
        ({}, "incompatible"),
        ({STATE.name: tensor([1, 2]), FRONT.name: rgb()}, "incompatible"),
        ({STATE.name: rgb(), FRONT.name: rgb()}, "incompatible"),
        ({STATE.name: [1, 2, 3], FRONT.name: rgb()}, "incompatible"),
        ({STATE.name: tensor([1, 2, np.nan]), FRONT.name: rgb()}, "malformed"),
        ({STATE.name: tensor([1, 2, 3], dtype="object"), FRONT.name: rgb()}, "malformed"),
        ({STATE.name: tensor([1, 2, 3], shape=[10**6]), FRONT.name: rgb()}, "malformed"),
        ({STATE.name: tensor([1, 2, 3], shape=[True]), FRONT.name: rgb()}, "malformed"),
        ({STATE.name: tensor([1, 2, 3]), FRONT.name: rgb(data=b"")}, "malformed"),
        ({STATE.name: tensor([1, 2, 3]), FRONT.name: rgb(channel_order="BGR")}, "malformed"),
        ({STATE.name: tensor([1, 2, 3]), FRONT.name: rgb(encoding="jpeg", data=b"no picture")}, "execution"),
    ],
)
def test_an_observation_that_differs_from_the_contract_is_refused(worker: Worker, gateway: FakeGateway, features: dict[str, Any], code: str) -> None:
    talk = Talk(worker)
    talk.open()
    assert refused(talk.observe(1, features=features)) == code
    assert not gateway.received
    assert talk.observe(2)[0] == "action"


@pytest.mark.parametrize("more", [{"capture_time": tensor([1])}, {"observation_id": None}, {"task_version": rgb()}, {"task": 7}, {"task": "x" * 5000}, {"features": 1}])
def test_invalid_metadata_of_an_observation_is_refused(worker: Worker, gateway: FakeGateway, more: dict[str, Any]) -> None:
    talk = Talk(worker)
    talk.open()
    assert refused(talk.observe(1, **more)) == "malformed"
    assert not gateway.received


def test_a_broken_transport_ends_the_session_but_not_the_server(worker: Worker, bus: Bus, until: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    talk = Talk(worker, Carried(bus, "arm", handshake_s=20, action_s=20).answer)
    talk.open()
    breaking = threading.Event()

    def publish(key: str, payload: bytes) -> None:
        if key.endswith("/act") and not breaking.is_set():
            breaking.set()
            raise RuntimeError("no route")
        Bus.publish(bus, key, payload)

    monkeypatch.setattr(bus, "publish", publish)
    threading.Thread(target=lambda: pytest.raises(CarrierFault, talk.observe, 1), daemon=True).start()
    until(lambda: breaking.is_set() and worker.session is None)
    assert Talk(worker, Carried(bus, "arm", handshake_s=20).answer).open()[0] == "accepted"


def test_a_refusal_of_the_gateway_is_an_error_without_an_action(worker: Worker, gateway: FakeGateway) -> None:
    talk = Talk(worker)
    talk.open()
    gateway.refuse("no_route_available")
    kind, body = talk.observe(1)
    assert (kind, body["code"]) == ("error", "execution") and "no_route_available" in body["message"]
    gateway.policy = lambda seen, horizon: np.zeros((horizon, 5))
    assert refused(talk.observe(2)) == "execution"


def test_messages_of_other_sessions_are_refused(worker: Worker) -> None:
    talk, other = Talk(worker), Talk(worker)
    talk.open()
    other.count = 100
    assert refused(other.open()) == "busy"
    other.session = "guessed"
    assert [refused(other.observe(1)), refused(other.say("control", operation="close"))] == ["stale", "stale"]
    assert refused(talk.say("observation", instance="another-boot")) == "stale"
    assert refused(talk.say("language_request", text="what?")) == "unsupported"
    assert refused(talk.say("control", operation="explode")) == "malformed"
    with pytest.raises(CarrierFault):
        worker.answer(b"\xc1")


def test_a_message_that_lerobot_wrote_is_read() -> None:
    body = body_of((SAMPLES / "lerobot_remote_observation.msgpack").read_bytes())
    assert body["features"]["observation.state"].tolist() == [-9.25, 91.5, -34.75]
    assert (body["features"]["observation.images.front"].image.ravel() == PIXELS).all()
    tensors = body_of((SAMPLES / "lerobot_remote_tensors.msgpack").read_bytes())
    for name in ("float16", "float64", "big", "int64"):
        assert tensors[name].ravel().tolist() == [0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11], name
    with pytest.raises(Malformed):
        body_of(msgpack.packb({"body": {"a": {"__lerobot_type__": "pickle", "data": b"", "shape": [1]}}}))


class _Pending:
    def __init__(self, payload: bytes) -> None:
        self.payload = payload
        self.answered: queue.Queue[bytes | None] = queue.Queue()

    def reply(self, payload: bytes) -> bool:
        self.answered.put(payload)
        return True

    def drop(self) -> None:
        self.answered.put(None)


class _End:
    """A queue of the messages for one key."""

    def __init__(self, ends: set[_End]) -> None:
        self.items: queue.Queue[Any] = queue.Queue()
        self.dropped = self.oversized = 0
        self._ends = ends
        ends.add(self)

    def get(self, timeout: float | None = 0) -> Any:
        return self.items.get_nowait() if timeout == 0 else self.items.get(timeout=timeout)

    def close(self) -> None:
        self._ends.discard(self)

    undeclare = close


class _Presence:
    def __init__(self, alive: bool) -> None:
        self.alive = alive


class _Token:
    def __init__(self, bus: Bus, key: str) -> None:
        self.bus, self.key = bus, key
        bus.tell(key, True)

    def undeclare(self) -> None:
        self.bus.tell(self.key, False)


class Bus:
    """Both ends of a transport in one process."""

    def __init__(self) -> None:
        self.ends: dict[tuple[str, str], set[_End]] = {}
        self.alive: set[str] = set()
        self.lock = threading.RLock()

    def _at(self, kind: str, key: str) -> set[_End]:
        with self.lock:
            return self.ends.setdefault((kind, key), set())

    def declare_queryable(self, key: str, capacity: int = 8, reply_timeout: float = 30.0) -> Any:
        return _End(self._at("query", key))

    def subscribe(self, key: str, capacity: int = 2) -> Any:
        return _End(self._at("topic", key))

    def subscribe_liveliness(self, key: str, capacity: int = 8) -> Any:
        with self.lock:
            end = _End(self._at("alive", key))
            if key in self.alive:
                end.items.put(_Presence(True))
            return end

    def declare_token(self, key: str) -> Any:
        return _Token(self, key)

    def tell(self, key: str, alive: bool) -> None:
        with self.lock:
            (self.alive.add if alive else self.alive.discard)(key)
            for end in self._at("alive", key):
                end.items.put(_Presence(alive))

    def publish(self, key: str, payload: bytes) -> None:
        for end in list(self._at("topic", key)):
            end.items.put(payload)

    def query(self, key: str, payload: bytes, timeout: float) -> list[bytes]:
        waiting = [_Pending(payload) for _ in self._at("query", key)]
        for end, pending in zip(list(self._at("query", key)), waiting, strict=True):
            end.items.put(pending)
        try:
            answers = [pending.answered.get(timeout=timeout) for pending in waiting]
        except queue.Empty:
            raise TimeoutError(key) from None
        return [answer for answer in answers if answer is not None]

    def wait_for_subscriber(self, key: str, timeout: float) -> None:
        if not self._at("topic", key):
            raise TimeoutError(key)


@pytest.fixture
def bus(worker: Worker) -> Iterator[Bus]:
    made = Bus()
    with ModelServer(made, worker):
        yield made


def test_clients_can_use_the_server_one_after_the_other(worker: Worker, bus: Bus, until: Any) -> None:
    for turn in range(2):
        carried = Carried(bus, "arm", handshake_s=20, action_s=20)
        talk = Talk(worker, carried.answer)
        assert talk.say("describe", instance="")[0] == "descriptor"
        assert talk.open()[0] == "accepted", turn
        assert talk.say("control", operation="reset")[0] == "ack"
        for i in range(3):
            assert talk.observe(i)[0] == "action"
        other = Carried(bus, "arm", handshake_s=20)
        assert refused(Talk(worker, other.answer).open()) == "busy"
        # The connection closes without a close message.
        carried.close()
        until(lambda: worker.session is None)
        until(lambda: not any(ends for (_, key), ends in list(bus.ends.items()) if "/sessions/" in key))


def test_the_gateways_own_client_reaches_it_through_the_carrier(worker: Worker, bus: Bus, gateway: FakeGateway, capfd: pytest.CaptureFixture[str]) -> None:
    folder = os.environ.get("LIMBER_GATEWAY")
    if folder is None:
        pytest.skip("LIMBER_GATEWAY names no folder; check.sh does")
    gateway.policy = lambda seen, horizon: np.tile(np.tanh(list(seen.proprio)[:2]), (horizon, 1))
    with Carrier(bus, "arm", token="sesame") as carrier:
        address = f"ws://127.0.0.1:{carrier.port}"
        options = ["--runtime", "lerobot-remote", "--action-space", "base_twist_2d", "--max-horizon", "4", "--gateway", folder]
        assert cli.main(["probe", address, *options]) == 1
        assert "| descriptor | passed |" not in capfd.readouterr().out
    with Carrier(bus, "arm") as carrier:
        assert cli.main(["probe", f"ws://127.0.0.1:{carrier.port}", *options]) == 0
    said = capfd.readouterr().out
    assert "| descriptor | passed |" in said and "| answers_differ | passed |" in said


def test_the_server_declares_and_withdraws_its_presence(worker: Worker) -> None:
    bus = Bus()
    key = f"lerobot/inference/v1/deployments/arm/instances/{worker.instance}/alive"
    with ModelServer(bus, worker):
        assert key in bus.alive
    assert key not in bus.alive and not any(bus.ends.values())


def test_a_contract_is_read_from_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    told = {
        "model": "test/policy",
        "action_space": "base_twist_2d",
        "robot": "arm",
        "features": [STATE.plain(), FRONT.plain()],
        "action_feature": ACTION.plain(),
        "semantics": "radians",
        "action_interval": 0.05,
        "execution_steps": 4,
    }
    file = tmp_path / "contract.json"
    file.write_text(json.dumps(told))
    assert Contract.read(file) == CONTRACT
    for wrong in ({"features": [{"name": "a"}]}, {"action_interval": 0}, {"execution_steps": 300}, {"model": None, "features": 1}, {"features": [{**STATE.plain(), "dtype": "int64"}]}):
        file.write_text(json.dumps({**told, **wrong}))
        with pytest.raises(errors.BadInput):
            Contract.read(file)
    file.write_text(json.dumps(told))
    monkeypatch.setenv("LIMBER_KEY", "lmb_sk_test")
    try:
        import lerobot.transport.zenoh  # type: ignore[import-not-found]  # noqa: F401
    except ImportError:
        assert cli.main(["lerobot-server", "--deployment", "arm", "--contract", str(file)]) == 3
        assert "lerobot[remote]" in capsys.readouterr().err
    assert cli.main(["lerobot-server", "--deployment", "../arm", "--contract", str(file)]) == 2


ALIGNED = {"chunk_settings": {"chunk_merge": "aligned"}, "required_capabilities": ["chunk_alignment_v2"]}
FIRST_ALIGNED = {
    "chunk_settings": {"chunk_merge": "aligned", "blend_steps": 0, "blend_weight": 0.5, "blend_components": []},
    "required_capabilities": ["chunk_alignment_v1"],
}


@pytest.mark.parametrize("asked", [ALIGNED, FIRST_ALIGNED])
def test_aligned_chunks_repeat_the_cursors_of_their_observation(worker: Worker, asked: dict[str, Any]) -> None:
    talk = Talk(worker)
    described = talk.say("describe", instance="")[1]
    assert asked["required_capabilities"][0] in described["execution_contracts"] and described["limits"]["max_input_chars"] > 0
    kind, accepted = talk.open(**asked)
    assert kind == "accepted" and accepted["chunk_settings"] == asked["chunk_settings"]
    kind, body = talk.observe(1, observation_cursor=5, cursor=2**63 - 1)
    assert (kind, body["observation_cursor"], body["cursor"]) == ("action", 5, 2**63 - 1)


@pytest.mark.parametrize("cursors", [(None, 2), (2, None), (-1, 2), (3, 2), (True, 2), (2, 2**63), (1.0, 2)])
def test_invalid_cursors_are_refused_before_the_model_runs(worker: Worker, gateway: FakeGateway, cursors: tuple[Any, Any]) -> None:
    talk = Talk(worker)
    talk.open(**ALIGNED)
    seen, asked = cursors
    assert refused(talk.observe(1, observation_cursor=seen, cursor=asked)) == "malformed"
    assert not gateway.received


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({**ALIGNED, "required_capabilities": []}, "incompatible"),
        ({**ALIGNED, "required_capabilities": ["chunk_alignment_v1"]}, "incompatible"),
        ({**ALIGNED, "required_capabilities": ["chunk_alignment_v2", "chunk_alignment_v1"]}, "incompatible"),
        ({**ALIGNED, "required_capabilities": ["rtc_model_space_v1"]}, "unsupported"),
        ({**ALIGNED, "required_capabilities": "chunk_alignment_v2"}, "unsupported"),
        ({**ALIGNED, "required_capabilities": [{}]}, "unsupported"),
        ({**ALIGNED, "chunk_settings": {"chunk_merge": "append"}}, "incompatible"),
        ({**ALIGNED, "chunk_settings": {"chunk_merge": "blended"}}, "incompatible"),
        ({**ALIGNED, "chunk_settings": {"chunk_merge": ["aligned"]}}, "incompatible"),
        ({**ALIGNED, "chunk_settings": ["aligned"]}, "incompatible"),
        ({**ALIGNED, "chunk_settings": {"chunk_merge": "aligned", "blend_steps": 2}}, "incompatible"),
        ({**FIRST_ALIGNED, "chunk_settings": {**FIRST_ALIGNED["chunk_settings"], "blend_steps": 2}}, "incompatible"),
    ],
)
def test_settings_must_match_the_required_capabilities(worker: Worker, more: dict[str, Any], code: str) -> None:
    assert refused(Talk(worker).open(**more)) == code
    assert worker.session is None


def test_appended_chunks_carry_no_cursor(worker: Worker) -> None:
    talk = Talk(worker)
    assert talk.open(chunk_settings={"chunk_merge": "append"})[1]["chunk_settings"] == {"chunk_merge": "append"}
    assert not {"cursor", "observation_cursor"} & talk.observe(1, cursor=4)[1].keys()


def test_a_repeated_open_receives_the_same_answer(worker: Worker) -> None:
    sent: list[bytes] = []

    def answer(payload: bytes) -> bytes:
        sent.append(payload)
        return worker.answer(payload)

    talk = Talk(worker, answer)
    accepted = talk.open(**ALIGNED)
    again = msgpack.unpackb(worker.answer(sent[0]))
    assert ((again["message_type"], again["body"]), again["session_id"]) == (accepted, talk.session)
    assert refused(talk.open(**ALIGNED)) == "busy"
