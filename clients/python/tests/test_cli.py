"""The `limber` command."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import limber
from limber.cli import credentials_file, main
from limber.serve import Asked, InvalidInput, PolicyServer, Served
from limber.testing import FakeGateway


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("LIMBER_URL", raising=False)
    monkeypatch.delenv("LIMBER_KEY", raising=False)


@pytest.fixture
def known(gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch) -> FakeGateway:
    monkeypatch.setenv("LIMBER_URL", gateway.url)
    monkeypatch.setenv("LIMBER_KEY", gateway.key)
    return gateway


def test_act_models_and_stop_print_their_results(known: FakeGateway, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["act", "a/b", "--state", "1,2", "--horizon", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["steps"] == [[0, 0], [0, 0]]
    assert main(["models"]) == 0
    assert capsys.readouterr().out.startswith("test/policy  act")
    assert main(["stop", "arm", "--reason", "a hand"]) == 0
    assert main(["act", "a/b", "--robot", "arm", "--state", "1"]) == 3
    assert "robot_stopped" in capsys.readouterr().err
    assert main(["stop", "arm", "--release"]) == 0


def test_misuse_exits_with_2(known: FakeGateway, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["stop"]) == 2
    assert main(["loop"]) == 2
    assert main(["act", "a/b", "--image", "wrist=/nonexistent.jpg"]) == 2
    assert "No such file" in capsys.readouterr().err
    assert main(["probe", "tcp://127.0.0.1:5555"]) == 2
    assert "npx limber probe" in capsys.readouterr().err
    monkeypatch.delenv("LIMBER_KEY")
    assert main(["models"]) == 2
    assert "limber login" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main(["act", "a/b", "--state", "one"])


def test_the_loop_command_drives_a_simulated_robot(known: FakeGateway, capsys: pytest.CaptureFixture[str]) -> None:
    known.policy = lambda seen, horizon: np.tile([0.5, 0.0], (horizon, 1))
    assert main(["loop", "--sim", "--seconds", "1", "--json"]) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert told["driven_m"] > 0 and told["stale_actions"] == 0


def test_login_stores_the_key_readable_only_by_the_user(real: limber.Limber, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("getpass.getpass", lambda prompt: real._key)
    assert main(["login", "--url", real.addresses[0].url]) == 0
    assert credentials_file().stat().st_mode & 0o777 == 0o600
    assert real._key not in capsys.readouterr().out
    assert main(["models", "potential"]) == 0
    assert "reference/potential-nav" in capsys.readouterr().out


def test_login_does_not_store_a_refused_key(gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("getpass.getpass", lambda prompt: "lmb_sk_wrong")
    assert main(["login", "--url", gateway.url]) == 3
    assert not credentials_file().exists()


def policy(asked: Asked) -> Any:
    if len(asked.state) != 2:
        raise InvalidInput("two numbers are needed")
    return np.tile([asked.state[0], 0.1], (asked.horizon, 1))


SERVED = Served(model="acme/x", provider="acme", action_space="base_twist_2d", state_names=("x", "y"))


def probed(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, dict[str, Any]]:
    code = main(["probe", *args, "--json", "--timeout-s", "5"])
    report = json.loads(capsys.readouterr().out)
    return code, {check["name"]: check for check in report["checks"]}


def test_a_policy_of_this_package_passes_the_probe(capsys: pytest.CaptureFixture[str]) -> None:
    with PolicyServer(policy, SERVED) as server:
        code, checks = probed(capsys, server.address, "--action-space", "base_twist_2d")
        assert code == 0 and all(check["passed"] for check in checks.values())
        assert {"reachable", "action_shape", "answers_differ", "steady", "longest_horizon", "latency", "wrong_input_refused"} == set(checks)
        assert main(["probe", server.address, "--action-space", "base_twist_2d"]) == 0
        assert "| action_shape | passed |" in capsys.readouterr().out


def test_a_policy_with_shorter_chunks_passes_the_probe_with_its_chunk_length(capsys: pytest.CaptureFixture[str]) -> None:
    with PolicyServer(lambda asked: np.tile([asked.state[0], 0.1], (8, 1)), SERVED) as server:
        code, checks = probed(capsys, server.address, "--action-space", "base_twist_2d")
    assert code == 0 and checks["longest_horizon"]["detail"] == "8 steps in one answer, of chunks of 8"


@pytest.mark.parametrize(
    ("broken", "check"),
    [
        (lambda asked: np.zeros((asked.horizon, 3)), "action_shape"),
        (lambda asked: 1 / 0, "action_shape"),
        (lambda asked: np.full((asked.horizon, 2), np.nan), "action_shape"),
        (lambda asked: np.zeros((asked.horizon, 2)), "answers_differ"),
    ],
)
def test_a_broken_policy_fails_the_probe(capsys: pytest.CaptureFixture[str], broken: Any, check: str) -> None:
    with PolicyServer(broken, SERVED) as server:
        code, checks = probed(capsys, server.address, "--action-space", "base_twist_2d")
    assert code == 1 and not checks[check]["passed"] and checks[check]["next_step"]


def test_an_unreachable_server_fails_the_probe(capsys: pytest.CaptureFixture[str]) -> None:
    for address in ("grpc://127.0.0.1:9", "ws://127.0.0.1:9"):
        code, checks = probed(capsys, address)
        assert (code, list(checks)) == (1, ["reachable"])


class OpenpiLike:
    """A server with openpi's protocol, derived from openpi's own client."""

    def __init__(self, answer: Any) -> None:
        msgpack = pytest.importorskip("msgpack")
        serving = pytest.importorskip("websockets.sync.server")
        from limber.probe import _packed, _unpacked

        def handle(socket: Any) -> None:
            socket.send(msgpack.packb({"name": "a test"}))
            for message in socket:
                try:
                    given = answer(msgpack.unpackb(message, object_hook=_unpacked))
                except KeyError as error:
                    socket.send(f"Traceback\nKeyError: {error}")
                    return
                socket.send(given if isinstance(given, (bytes, str)) else msgpack.packb({"actions": given}, default=_packed))

        self._server = serving.serve(handle, "127.0.0.1", 0, compression=None)
        self.address = f"ws://127.0.0.1:{self._server.socket.getsockname()[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def __enter__(self) -> OpenpiLike:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()


def test_an_openpi_server_passes_the_probe(capsys: pytest.CaptureFixture[str]) -> None:
    def answer(obs: dict[str, Any]) -> Any:
        assert obs["observation/wrist_image_left"].shape == (224, 224, 3)
        return np.tile(obs["observation/joint_position"], (10, 1))

    with OpenpiLike(answer) as server:
        code, checks = probed(capsys, server.address, "--action-space", "joint_pos_7")
    assert code == 0, checks
    assert checks["action_shape"]["detail"] == "10 steps of 7 finite numbers"
    assert checks["wrong_input_refused"]["passed"]


@pytest.mark.parametrize(
    ("key", "dim", "profile", "space"),
    [("observation/state", 7, "openpi/libero", "ee_delta_6d_grip"), ("observation/joint_position", 8, "openpi/droid", "continuous_nd"), ("state", 14, "openpi/aloha", "joint_pos_14")],
)
def test_the_probe_guesses_the_profile_of_an_openpi_server(capsys: pytest.CaptureFixture[str], key: str, dim: int, profile: str, space: str) -> None:
    with OpenpiLike(lambda obs: np.tile(np.resize(obs[key], dim), (10, 1))) as server:
        code = main(["probe", server.address, "--timeout-s", "5"])
    printed = capsys.readouterr().out
    assert code == 0, printed
    assert f"Assumed profile {profile} and action space {space}" in printed


def array(**members: Any) -> bytes:
    """An answer whose array has arbitrary metadata."""
    msgpack = pytest.importorskip("msgpack")
    made = {"__ndarray__": True, "data": b"12345678", "dtype": "<f8", "shape": [1]}
    return bytes(msgpack.packb({"actions": {name: value for name, value in {**made, **members}.items() if value is not None}}))


GARBAGE = {
    "no MessagePack": b"\xc1",
    "no actions": b"\x80",
    "a text": "Traceback\nValueError: no",
    "one row": np.zeros(3),
    "another dimension": np.zeros((2, 8)),
    "more than there is": array(shape=[1000, 7]),
    "a shape that is none": array(shape=[-1, 7]),
    "a huge shape": array(shape=[2**62, 2**62]),
    "objects": array(dtype="|O"),
    "a type that is none": array(dtype="what"),
    "no shape": array(shape=None),
}


@pytest.mark.parametrize("given", GARBAGE.values(), ids=GARBAGE.keys())
def test_an_openpi_server_that_answers_garbage_fails_the_probe(capsys: pytest.CaptureFixture[str], given: Any) -> None:
    with OpenpiLike(lambda obs: given) as server:
        code, checks = probed(capsys, server.address, "--action-space", "joint_pos_7")
    assert code == 1 and not checks["action_shape"]["passed"]


def test_a_server_of_another_protocol_fails_the_openpi_probe(capsys: pytest.CaptureFixture[str], gateway: FakeGateway) -> None:
    code, checks = probed(capsys, gateway.url.replace("http", "ws"))
    assert code == 1 and not checks["reachable"]["passed"]


def test_other_protocols_use_the_gateways_probe(capfd: pytest.CaptureFixture[str]) -> None:
    folder = os.environ.get("LIMBER_GATEWAY")
    if folder is None:
        pytest.skip("LIMBER_GATEWAY names no folder; check.sh does")
    with PolicyServer(policy, SERVED) as server:
        assert main(["probe", server.address, "--action-space", "base_twist_2d", "--gateway", folder]) == 0
    assert "| large_picture | passed |" in capfd.readouterr().out
    assert main(["probe", "tcp://127.0.0.1:59998", "--gateway", folder, "--timeout-s", "2"]) == 1
