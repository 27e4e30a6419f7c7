"""Invalid input raises one exception with a helpful message, and nothing is sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import limber
from limber import errors
from limber.loop import Bounds
from limber.testing import FakeGateway

IMAGE = np.zeros((8, 8, 3), np.uint8)

SENSED: list[tuple[Any, str]] = [
    ([1, float("nan")], r"state\[1\] must be finite, got nan"),
    ([float("inf")], "finite"),
    (np.zeros((2, 3)), r"shape \(2, 3\)"),
    (["a"], "must be floats"),
    ([None], "not a number"),
    ({"state": [1], "colour": 2}, "no field 'colour'"),
    ({"state": [1, 2], "state_names": ["x"]}, "same length, got 2 and 1"),
    ({"state": np.zeros(5000)}, "at most 4096"),
    ({"gripper": float("nan")}, "gripper must be finite, got nan"),
    ({"t_ms": float("inf")}, "t_ms must be finite, got inf"),
    ({"tactile": [[1]]}, "tactile must be one row"),
    ({"images": [IMAGE]}, "mapping"),
    ({"images": {"a": IMAGE.astype(np.float32)}}, r"image \* 255"),
    ({"images": {"a": IMAGE.astype(np.int64)}}, r"astype\(np.uint8\)"),
    ({"images": {"a": IMAGE.transpose(2, 0, 1)}}, r"transpose\(1, 2, 0\)"),
    ({"images": {"a": np.zeros((8, 8, 4), np.uint8)}}, r"height x width x 3"),
    ({"images": {"a": np.zeros((0, 8, 3), np.uint8)}}, "on each side, got 8 x 0"),
    ({"images": {"a": b"GIF89a"}}, "must be an encoded JPEG"),
    ({"images": {"a": Path("/nonexistent/a.jpg")}}, "No such file"),
    ({"images": {"a": 7}}, "got int"),
    ({"images": {"x" * 200: IMAGE}}, "128 characters"),
    ({"images": {str(i): IMAGE for i in range(17)}}, "at most 16"),
    ({"depth": {"a": IMAGE}}, "uint16"),
    ([{"state": [1]}] * 33, "got 33"),
]


@pytest.mark.parametrize(("sensed", "words"), SENSED, ids=[words for _, words in SENSED])
def test_an_invalid_observation_raises_bad_input(client: limber.Limber, gateway: FakeGateway, sensed: Any, words: str) -> None:
    with pytest.raises(errors.BadInput, match=words):
        client.act("a/b", sensed)
    assert gateway.received == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"provider": {"max_latency": 3}}, "no field 'max_latency'"),
        ({"provider": {"sort": "speed"}}, "price, latency, throughput, quality"),
        ({"provider": {"deadline_ms": "soon"}}, "deadline_ms is invalid"),
        ({"preference": "best"}, "balanced, fastest"),
        ({"horizon": "many"}, "ActRequest"),
        ({"horizon": -1}, "ActRequest"),
        ({"embodiment": "dog"}, "quadruped"),
    ],
)
def test_an_invalid_option_raises_bad_input(client: limber.Limber, gateway: FakeGateway, options: dict[str, Any], words: str) -> None:
    with pytest.raises(errors.BadInput, match=words):
        client.act("a/b", [1], **options)
    assert gateway.received == []


def test_a_missing_model_or_instruction_raises_bad_input(client: limber.Limber) -> None:
    with pytest.raises(errors.BadInput, match="model is empty"):
        client.act("", [1])
    with pytest.raises(errors.BadInput, match="instruction is empty"):
        client.ground([1.0], "")
    with pytest.raises(errors.BadInput, match="exactly one"):
        client.stop("a", everything=True)


@pytest.mark.parametrize(
    ("url", "key", "words"),
    [
        ("ftp://x", "k", "not a gateway address"),
        ("http://h:99999", "k", "is invalid"),
        ("http://h/v1", "k", "has a path"),
        ([], "k", "url is empty"),
        ("http://h", "", "key is empty"),
        ("http://h", "lmb_sk_x\n", "line break"),
        ("http://h", "lmb_sk_ü", "character"),
    ],
)
def test_an_invalid_address_or_key_raises_bad_input(url: Any, key: str, words: str) -> None:
    with pytest.raises(errors.BadInput, match=words):
        limber.Limber(url, key)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"rate_hz": 0}, "got 0"),
        ({"rate_hz": float("nan")}, "rate_hz .* got nan"),
        ({"rate_hz": 50, "hold": [float("nan")]}, "hold"),
        ({"rate_hz": 50, "bounds": Bounds([1], [-1])}, "above bounds.highest"),
        ({"rate_hz": 50, "bounds": Bounds(max_change=-1)}, "must be 0 or more"),
    ],
)
def test_invalid_loop_options_raise_bad_input(client: limber.Limber, options: dict[str, Any], words: str) -> None:
    with pytest.raises(errors.BadInput, match=words):
        client.loop("a/b", **options)


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), None, "3"])
def test_a_run_needs_a_time_limit(client: limber.Limber, seconds: Any) -> None:
    with client.loop("a/b", rate_hz=50) as loop:
        with pytest.raises(errors.BadInput, match="max_seconds"):
            loop.run(lambda: [1.0], lambda action: None, max_seconds=seconds)
        with pytest.raises(TypeError):
            loop.run(lambda: [1.0], lambda action: None)  # type: ignore[call-arg]
