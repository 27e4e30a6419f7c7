"""A carrier for LeRobot's remote inference. It runs beside a LeRobot policy server and connects it to a gateway (`limber lerobot-carrier`).

LeRobot's protocol runs over Zenoh, has no keys, and is not implemented by gateways. The carrier opens LeRobot's own transport
(`lerobot.transport.zenoh`, of `lerobot[remote]`) and listens for WebSockets. Each WebSocket message is one unchanged envelope of the protocol.
The carrier routes by the envelope's header and does not read tensors or images. Each WebSocket has at most one session of the server, which is
closed when the WebSocket closes.

Source: huggingface/lerobot, src/lerobot/remote_inference/protocol.py and src/lerobot/transport/zenoh.py at 0c72316, client.py at 0b20ce1.
"""

from __future__ import annotations

import hmac
import importlib
import queue
import re
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from limber.errors import BadInput, LimberError, MissingPackage

#: Maximum message size in bytes, set by the protocol.
MAX_MESSAGE_BYTES = 32 * 1024 * 1024
_MAX_TEXT_BYTES = 16_384
_MAX_ITEMS = 4_096
#: A valid segment of a LeRobot key.
SEGMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}\Z")
#: Time limits, in seconds: of a handshake request, and of an action beyond the server's own estimate.
_HANDSHAKE_S = 10.0
_ACTION_S = 30.0
#: Interval at which the carrier checks that the gateway is still connected while an action is pending.
_LOOK_S = 0.05


class Channel(Protocol):
    """A subscription of LeRobot's transport."""

    dropped: int
    oversized: int

    def get(self, timeout: float | None = 0) -> bytes:
        """Returns the next message. Raises `queue.Empty` if none arrives in time."""

    def close(self) -> None:
        """Ends the subscription."""


class Token(Protocol):
    """Declares that this end of a session is present."""

    def undeclare(self) -> None:
        """Withdraws the declaration."""


class Transport(Protocol):
    """The methods of `lerobot.transport.zenoh.ZenohTransport` that the carrier uses."""

    def query(self, key: str, payload: bytes, timeout: float) -> list[bytes]:
        """Returns every reply to a query. Raises `TimeoutError` if there is none."""

    def publish(self, key: str, payload: bytes) -> None:
        """Sends a message without a reply."""

    def subscribe(self, key: str, capacity: int = 2) -> Channel:
        """Subscribes to published messages."""

    def declare_token(self, key: str) -> Token:
        """Declares presence."""

    def wait_for_subscriber(self, key: str, timeout: float) -> None:
        """Waits for a subscriber. Raises `TimeoutError` if there is none."""


class CarrierFault(LimberError):
    """A message cannot be forwarded. The connection ends with this text."""


@dataclass(frozen=True)
class Header:
    """The header of an envelope."""

    message_type: str
    instance_id: str
    session_id: str
    generation: int
    request_id: str


def header_of(payload: bytes) -> Header:
    """Parses an envelope's header. Raises CarrierFault if it is invalid."""
    msgpack = needed("msgpack", "lerobot")
    if len(payload) > MAX_MESSAGE_BYTES:
        raise CarrierFault("the message is larger than 32 MiB")
    try:
        record = msgpack.unpackb(
            payload,
            raw=False,
            strict_map_key=True,
            max_str_len=_MAX_TEXT_BYTES,
            max_bin_len=MAX_MESSAGE_BYTES,
            max_array_len=_MAX_ITEMS,
            max_map_len=_MAX_ITEMS,
            max_ext_len=0,
        )
    except Exception as error:  # noqa: BLE001 (msgpack raises ValueError, TypeError, and exceptions of its own)
        raise CarrierFault(f"the message is not an envelope ({type(error).__name__})") from None
    if not isinstance(record, dict) or record.get("version") != 1:
        raise CarrierFault("the message is not an envelope of version 1")
    kind, generation = record.get("message_type"), record.get("generation")
    names = [record.get(name) for name in ("instance_id", "session_id", "request_id")]
    if not isinstance(kind, str) or type(generation) is not int or not 0 <= generation < 2**63:
        raise CarrierFault("the envelope has no type or no generation")
    if any(not isinstance(name, str) or (name and not SEGMENT.fullmatch(name)) for name in names):
        raise CarrierFault("the envelope has a name that is not a single key segment")
    return Header(kind, str(names[0]), str(names[1]), generation, str(names[2]))


def needed(package: str, extra: str) -> Any:
    """Imports an optional package. Raises MissingPackage with the install command."""
    try:
        return importlib.import_module(package)
    except ImportError:
        raise MissingPackage(f"{package} is not installed: pip install 'limber[{extra}]'") from None


@dataclass
class _Open:
    """A session that this connection opened."""

    key: str
    instance: str
    session: str
    actions: Channel
    language: Channel
    token: Token
    generation: int = 0
    is_ready: bool = False


@dataclass
class Carried:
    """One gateway connection. Not thread-safe."""

    transport: Transport
    deployment: str
    #: Returns whether the gateway is still connected; called while an action is pending.
    is_there: Callable[[], bool] = field(default=lambda: True)
    action_s: float = _ACTION_S
    handshake_s: float = _HANDSHAKE_S
    _open: _Open | None = field(default=None, init=False)

    def answer(self, payload: bytes) -> bytes:
        """Forwards a message and returns the server's unchanged answer. Raises CarrierFault for unsupported messages and for timeouts."""
        header = header_of(payload)
        prefix = f"lerobot/inference/v1/deployments/{self.deployment}"
        if header.message_type == "describe":
            return self._query(f"{prefix}/describe", payload)
        instance = f"{prefix}/instances/{header.instance_id}"
        if header.message_type == "open":
            return self._opened(instance, header, payload)
        mine = self._open
        if mine is None or (header.instance_id, header.session_id) != (mine.instance, mine.session):
            raise CarrierFault("this connection has no such session")
        if header.message_type == "control":
            return self._controlled(mine, header, payload)
        if header.message_type == "observation":
            return self._acted(mine, header, payload)
        raise CarrierFault(f"a message of the type {header.message_type[:32]} is not supported")

    def close(self) -> None:
        """Closes the session, if there is one, so that the server can accept another client."""
        mine, self._open = self._open, None
        if mine is None:
            return
        msgpack = needed("msgpack", "lerobot")
        close = {
            "version": 1,
            "message_type": "control",
            "instance_id": mine.instance,
            "session_id": mine.session,
            "generation": mine.generation,
            "request_id": uuid.uuid4().hex,
            "body": {"operation": "close"},
        }
        try:
            # If the server misses this message, it notices the missing token and closes the session after its grace period.
            self.transport.query(f"{mine.key}/control", msgpack.packb(close, use_bin_type=True), 1.0)
        except Exception:  # noqa: BLE001 (transports raise different types, and the connection ends in any case)
            pass
        finally:
            _release(mine)

    def _opened(self, instance: str, header: Header, payload: bytes) -> bytes:
        if not header.instance_id:
            raise CarrierFault("a session must be opened at one instance")
        if self._open is not None:
            raise CarrierFault("this connection already has a session")
        reply = self._query(f"{instance}/open", payload)
        accepted = header_of(reply)
        if accepted.message_type != "accepted" or not accepted.session_id:
            return reply
        key = f"{instance}/sessions/{accepted.session_id}"
        # The server checks for both before it confirms the first reset.
        actions = self.transport.subscribe(f"{key}/act", 4)
        language = self.transport.subscribe(f"{key}/language/result", 4)
        token = self.transport.declare_token(f"{key}/alive")
        self._open = _Open(key, header.instance_id, accepted.session_id, actions, language, token)
        return reply

    def _controlled(self, mine: _Open, header: Header, payload: bytes) -> bytes:
        # The policy's single worker answers after the call that it is processing.
        reply = self._query(f"{mine.key}/control", payload, self.handshake_s + self.action_s)
        acked = header_of(reply)
        if acked.message_type == "ack":
            mine.generation = max(mine.generation, header.generation)
            if not mine.is_ready:
                self.transport.wait_for_subscriber(f"{mine.key}/obs", self.handshake_s)
                mine.is_ready = True
        if _operation(payload) == "close":
            self._open = None
            _release(mine)
        return reply

    def _acted(self, mine: _Open, header: Header, payload: bytes) -> bytes:
        self.transport.publish(f"{mine.key}/obs", payload)
        over = time.monotonic() + self.action_s
        while time.monotonic() < over:
            if not self.is_there():
                raise CarrierFault("the gateway has disconnected")
            if mine.actions.dropped or mine.actions.oversized:
                raise CarrierFault("answers were lost, or were larger than 32 MiB")
            try:
                reply = mine.actions.get(timeout=_LOOK_S)
            except queue.Empty:
                continue
            # Discard answers to earlier requests.
            if header_of(reply).request_id == header.request_id:
                return reply
        raise CarrierFault("the server sent no action in time")

    def _query(self, key: str, payload: bytes, timeout: float | None = None) -> bytes:
        try:
            replies = self.transport.query(key, payload, self.handshake_s if timeout is None else timeout)
        except TimeoutError:
            raise CarrierFault("the server did not answer in time") from None
        if len(replies) != 1:
            raise CarrierFault(f"{len(replies)} servers answered; exactly one must")
        return replies[0]


def _operation(payload: bytes) -> object:
    body = needed("msgpack", "lerobot").unpackb(payload, raw=False).get("body")
    return body.get("operation") if isinstance(body, dict) else None


def _release(mine: _Open) -> None:
    mine.token.undeclare()
    mine.actions.close()
    mine.language.close()


def open_transport(connect: str | None = None, *, listen: str | None = None, mode: str = "peer", config_file: str | None = None) -> Any:
    """Opens LeRobot's own transport. Addresses are Zenoh endpoints, such as `tcp/192.0.2.7:7447`. Raises MissingPackage without LeRobot."""
    try:
        zenoh = importlib.import_module("lerobot.transport.zenoh")
    except ImportError:
        raise MissingPackage("LeRobot's transport is not installed: pip install 'lerobot[remote]', in a version with remote inference") from None
    ends = {"connect_endpoints": [connect] if connect else [], "listen_endpoints": [listen] if listen else []}
    return zenoh.ZenohTransport(zenoh.ZenohConfig(mode=mode, config_file=config_file, **ends)).open()


class Carrier:
    """Listens for gateways and forwards their messages to one deployment. Use it as a context manager, or call `close`."""

    def __init__(self, transport: Transport, deployment: str, *, host: str = "127.0.0.1", port: int = 0, token: str = "", action_s: float = _ACTION_S) -> None:
        """`token` is required as `Authorization: Bearer` from gateways. Without a token, the carrier listens only on the loopback interface."""
        if not SEGMENT.fullmatch(deployment):
            raise BadInput(f"deployment must consist of letters, digits, '_', '.' and '-', got {deployment!r}")
        if not token and host not in ("127.0.0.1", "::1", "localhost"):
            raise BadInput(f"a carrier at {host} needs a token, because every client that reaches it controls the policy; set LIMBER_CARRIER_TOKEN")
        needed("msgpack", "lerobot")
        needed("websockets", "lerobot")
        server = importlib.import_module("websockets.sync.server")
        self._transport = transport
        self._deployment = deployment
        self._token = token
        self._action_s = action_s
        self._server = server.serve(
            self._serve, host, port, process_request=self._admit, max_size=MAX_MESSAGE_BYTES, compression=None, ping_interval=None
        )
        self._thread = threading.Thread(target=self._server.serve_forever, name="limber-carrier", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self._server.socket.getsockname()[1])

    def close(self) -> None:
        """Closes every connection and its session."""
        self._server.shutdown()
        self._thread.join(5)

    def __enter__(self) -> Carrier:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def wait(self) -> None:
        """Blocks until it is closed."""
        self._thread.join()

    def _admit(self, connection: Any, request: Any) -> Any:
        shown = request.headers.get("Authorization", "")
        if self._token and not hmac.compare_digest(shown.encode(), f"Bearer {self._token}".encode()):
            return connection.respond(401, "the token is missing or wrong\n")
        # Browsers send an origin. Web pages must not reach a robot's policy.
        if "Origin" in request.headers:
            return connection.respond(403, "not for browsers\n")
        if request.path == "/healthz":
            return connection.respond(200, "OK\n")
        return None

    def _serve(self, connection: Any) -> None:
        closed = importlib.import_module("websockets.exceptions").ConnectionClosed
        is_open = importlib.import_module("websockets.protocol").State.OPEN
        carried = Carried(self._transport, self._deployment, lambda: connection.state is is_open, self._action_s)
        try:
            for message in connection:
                if not isinstance(message, bytes):
                    raise CarrierFault("messages must be binary")
                connection.send(carried.answer(message))
        except CarrierFault as fault:
            try:
                connection.send(str(fault))
                connection.close(1011)
            except closed:
                pass
        except closed:
            pass
        finally:
            carried.close()
