"""The carrier of LeRobot's remote inference over WebSockets, between a gateway's messages and a stand-in for LeRobot's transport.

No LeRobot and no Zenoh is here: the stand-in has the methods and the meaning of `lerobot.transport.zenoh.ZenohTransport`, with a server behind it
that keeps the rules of LeRobot's own (one session; both subscriptions before the first reset is confirmed; presence).
"""

from __future__ import annotations

import queue
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

msgpack = pytest.importorskip("msgpack")
pytest.importorskip("websockets")

from websockets.exceptions import ConnectionClosed  # noqa: E402
from websockets.sync.client import connect  # noqa: E402

from limber import cli, errors  # noqa: E402
from limber.lerobot import Carrier, CarrierFault, header_of  # noqa: E402

BASE = "lerobot/inference/v1/deployments/arm"


def envelope(kind: str, *, session: str = "", generation: int = 0, request: str = "r1", instance: str = "boot", version: int = 1, **body: Any) -> bytes:
    packed = msgpack.packb(
        {
            "version": version,
            "message_type": kind,
            "instance_id": instance,
            "session_id": session,
            "generation": generation,
            "request_id": request,
            "body": body,
        }
    )
    assert isinstance(packed, bytes)
    return packed


def read(payload: bytes | str) -> dict[str, Any]:
    assert isinstance(payload, bytes), payload
    record = msgpack.unpackb(payload)
    assert isinstance(record, dict)
    return record


class _Channel:
    def __init__(self, on_close: Callable[[], None]) -> None:
        self.items: queue.Queue[bytes] = queue.Queue()
        self.dropped = self.oversized = 0
        self.close = on_close

    def get(self, timeout: float | None = 0) -> bytes:
        return self.items.get(timeout=timeout)


class _Token:
    def __init__(self, undeclare: Callable[[], None]) -> None:
        self.undeclare = undeclare


class StandIn:
    """A transport with a server at its other end."""

    def __init__(self) -> None:
        self.subscribed: dict[str, _Channel] = {}
        self.tokens: set[str] = set()
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.session = ""
        self.sessions = 0
        self.silent = False
        #: Messages published before the answer to an observation.
        self.before: list[bytes] = []
        self.instances = 1

    def query(self, key: str, payload: bytes, timeout: float) -> list[bytes]:
        record = read(payload)
        self.asked.append((key, record))
        kind, request = record["message_type"], record["request_id"]
        if key == f"{BASE}/describe" and kind == "describe":
            return [envelope("descriptor", request=request, deployment="arm")] * self.instances
        if key == f"{BASE}/instances/boot/open" and kind == "open":
            if self.session:
                return [envelope("error", request=request, code="busy", message="owned")]
            self.sessions += 1
            self.session = f"s{self.sessions}"
            return [envelope("accepted", request=request, session=self.session)]
        at = f"{BASE}/instances/boot/sessions/{self.session}"
        if self.session and key == f"{at}/control" and kind == "control":
            operation, generation = record["body"]["operation"], record["generation"]
            if operation == "reset" and generation == 0:
                assert {f"{at}/act", f"{at}/language/result"} <= set(self.subscribed)
                assert f"{at}/alive" in self.tokens
            reply = envelope("ack", session=self.session, generation=generation, request=request, operation=operation)
            if operation == "close":
                self.session = ""
            return [reply]
        raise TimeoutError(f"no queryable for {key}")

    def publish(self, key: str, payload: bytes) -> None:
        at = f"{BASE}/instances/boot/sessions/{self.session}"
        assert key == f"{at}/obs"
        record = read(payload)
        self.asked.append((key, record))
        if self.silent:
            return
        answer = envelope(
            "action", session=self.session, generation=record["generation"], request=record["request_id"], steps=record["body"]["steps"]
        )
        for each in [*self.before, answer]:
            self.subscribed[f"{at}/act"].items.put(each)

    def subscribe(self, key: str, capacity: int = 2) -> _Channel:
        self.subscribed[key] = _Channel(lambda: self.subscribed.pop(key, None) and None)
        return self.subscribed[key]

    def declare_token(self, key: str) -> _Token:
        self.tokens.add(key)
        return _Token(lambda: self.tokens.discard(key))

    def wait_for_subscriber(self, key: str, timeout: float) -> None:
        assert key == f"{BASE}/instances/boot/sessions/{self.session}/obs"


@pytest.fixture
def server() -> StandIn:
    return StandIn()


@pytest.fixture
def carrier(server: StandIn) -> Iterator[Carrier]:
    with Carrier(server, "arm", action_s=1.0) as made:
        yield made


def ask(socket: Any, payload: bytes) -> dict[str, Any]:
    socket.send(payload)
    return read(socket.recv(timeout=20))


def admitted(socket: Any) -> str:
    session = str(ask(socket, envelope("open"))["session_id"])
    assert ask(socket, envelope("control", session=session, operation="reset"))["message_type"] == "ack"
    return session


def test_a_gateway_describes_opens_acts_and_leaves(server: StandIn, carrier: Carrier, until: Callable[[Callable[[], object]], None]) -> None:
    with connect(f"ws://127.0.0.1:{carrier.port}/") as socket:
        assert ask(socket, envelope("describe", instance=""))["message_type"] == "descriptor"
        session = admitted(socket)
        for i in range(3):
            answer = ask(socket, envelope("observation", session=session, request=f"o{i}", steps=[i]))
            assert (answer["message_type"], answer["request_id"], answer["body"]["steps"]) == ("action", f"o{i}", [i])
        assert ask(socket, envelope("control", session=session, generation=4, operation="reset"))["generation"] == 4
    until(lambda: server.session == "")
    key, closing = server.asked[-1]
    assert (key.endswith(f"/sessions/{session}/control"), closing["body"], closing["generation"]) == (True, {"operation": "close"}, 4)
    until(lambda: not server.subscribed and not server.tokens)


def test_another_gateway_can_use_the_server_after_the_session_closes(server: StandIn, carrier: Carrier) -> None:
    with connect(f"ws://127.0.0.1:{carrier.port}/") as first, connect(f"ws://127.0.0.1:{carrier.port}/") as second:
        session = admitted(first)
        assert ask(second, envelope("open"))["body"]["code"] == "busy"
        assert ask(first, envelope("control", session=session, operation="close"))["message_type"] == "ack"
        assert admitted(second) == "s2"


def test_answers_to_earlier_requests_are_discarded(server: StandIn, carrier: Carrier) -> None:
    with connect(f"ws://127.0.0.1:{carrier.port}/") as socket:
        session = admitted(socket)
        server.before = [envelope("action", session=session, request="old")]
        assert ask(socket, envelope("observation", session=session, request="new", steps=[]))["request_id"] == "new"


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (b"\xc1", "not an envelope"),
        (msgpack.packb([1]), "version 1"),
        (envelope("describe", version=2), "version 1"),
        (envelope("describe", request="../x"), "single key segment"),
        (envelope("open", instance=""), "one instance"),
        (envelope("open", instance="other"), "did not answer"),
        (envelope("control", session="s9", operation="close"), "no such session"),
        (envelope("observation", session="s9"), "no such session"),
        (envelope("kill"), "no such session"),
        ("a text", "binary"),
    ],
)
def test_an_unsupported_message_ends_the_connection_with_a_reason(carrier: Carrier, message: bytes | str, words: str) -> None:
    with connect(f"ws://127.0.0.1:{carrier.port}/") as socket:
        socket.send(message)
        assert words in str(socket.recv(timeout=20))
        with pytest.raises(ConnectionClosed):
            socket.recv(timeout=20)


def test_a_connection_cannot_use_the_session_of_another(server: StandIn, carrier: Carrier) -> None:
    with connect(f"ws://127.0.0.1:{carrier.port}/") as owner, connect(f"ws://127.0.0.1:{carrier.port}/") as other:
        session = admitted(owner)
        other.send(envelope("observation", session=session, steps=[]))
        assert "no such session" in str(other.recv(timeout=20))
        assert ask(owner, envelope("observation", session=session, steps=[7]))["body"]["steps"] == [7]


def test_a_hanging_policy_times_out_and_its_session_is_closed(server: StandIn, carrier: Carrier, until: Callable[[Callable[[], object]], None]) -> None:
    server.silent = True
    with connect(f"ws://127.0.0.1:{carrier.port}/") as socket:
        session = admitted(socket)
        socket.send(envelope("observation", session=session, steps=[]))
        assert "no action in time" in str(socket.recv(timeout=20))
    until(lambda: server.session == "")


def test_several_servers_with_one_name_are_refused(server: StandIn, carrier: Carrier) -> None:
    server.instances = 2
    with connect(f"ws://127.0.0.1:{carrier.port}/") as socket:
        socket.send(envelope("describe", instance=""))
        assert "2 servers answered" in str(socket.recv(timeout=20))


def _status(port: int, headers: dict[str, str]) -> int:
    try:
        with urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{port}/healthz", headers=headers), timeout=20) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_a_token_is_required_and_browsers_are_refused(server: StandIn) -> None:
    with Carrier(server, "arm", token="sesame") as carrier:
        shown = {"Authorization": "Bearer sesame"}
        statuses = [_status(carrier.port, each) for each in ({}, {"Authorization": "Bearer wrong"}, shown, {**shown, "Origin": "https://example.com"})]
        assert statuses == [401, 401, 200, 403]


@pytest.mark.parametrize(("deployment", "host"), [("../arm", "127.0.0.1"), ("a b", "127.0.0.1"), ("", "127.0.0.1"), ("arm", "0.0.0.0")])
def test_it_does_not_start_with_an_invalid_name_or_without_a_token_on_a_network(server: StandIn, deployment: str, host: str) -> None:
    before = threading.active_count()
    with pytest.raises(errors.BadInput):
        Carrier(server, deployment, host=host)
    assert threading.active_count() == before


def test_an_oversized_or_inconsistent_header_is_refused() -> None:
    for payload in (b"", b"\xdd\xff\xff\xff\xff", msgpack.packb({"version": 1}), envelope("x", generation=2**64 - 1)):
        with pytest.raises(CarrierFault):
            header_of(payload)


def test_without_lerobot_the_command_names_the_package_to_install(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("limber.lerobot")
    try:
        import lerobot.transport.zenoh  # type: ignore[import-not-found]  # noqa: F401
    except ImportError:
        assert cli.main(["lerobot-carrier", "--deployment", "arm", "--connect", "tcp/127.0.0.1:1"]) == 3
        assert "lerobot[remote]" in capsys.readouterr().err
