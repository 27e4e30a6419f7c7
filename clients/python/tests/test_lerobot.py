"""`lerobot_policy_limber`: its mapping, and its classes against stand-ins for LeRobot and torch."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import pytest

from limber import Limber, errors
from limber.testing import FakeGateway

# If the package is not installed, use the one in the repository.
sys.path.append(str(Path(__file__).resolve().parents[2] / "lerobot_policy_limber"))
pytest.importorskip("lerobot_policy_limber.mapping", reason="the package for LeRobot is not beside these tests")
from lerobot_policy_limber.mapping import observation_of, task_of  # noqa: E402

IMAGE = np.linspace(0, 1, 3 * 4 * 5, dtype=np.float32).reshape(1, 3, 4, 5)


def test_a_batch_becomes_an_observation() -> None:
    seen = observation_of({"observation.state": np.array([[1.0, 2.0]]), "observation.images.wrist": IMAGE, "task": ["fold"]})
    assert np.asarray(seen.state).tolist() == [1, 2]
    picture = seen.images["wrist"]
    assert isinstance(picture, np.ndarray) and picture.shape == (4, 5, 3) and picture.dtype == np.uint8
    assert (picture[0, 0].tolist(), picture[3, 4, 2]) == ([0, 85 + 1, 170 + 3], 255)
    assert (task_of({"task": ["fold"]}), task_of({"task": "fold"}), task_of({})) == ("fold", "fold", None)


@pytest.mark.parametrize(
    ("batch", "words"),
    [
        ({}, "must have"),
        ({"observation.state": np.zeros((2, 3))}, "one robot"),
        ({"observation.state": np.zeros((1, 1, 3))}, "shape"),
        ({"observation.images.a": IMAGE * 255}, "0 to 1"),
        ({"observation.images.a": np.full((1, 3, 4, 5), np.nan)}, "0 to 1"),
    ],
)
def test_an_invalid_batch_raises_bad_input(batch: dict[str, Any], words: str) -> None:
    with pytest.raises(errors.BadInput, match=words):
        observation_of(batch)


@pytest.fixture
def lerobot(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand-ins for the LeRobot and torch classes that the package uses, with their names and shapes."""

    @dataclass
    class PreTrainedConfig:
        known: ClassVar[dict[str, type]] = {}
        device: str | None = None

        @classmethod
        def register_subclass(cls, name: str) -> Any:
            return lambda made: cls.known.setdefault(name, made)

    class PreTrainedPolicy:
        def __init__(self, config: Any) -> None:
            self.config = config

    modules = {
        "lerobot.configs.policies": {"PreTrainedConfig": PreTrainedConfig},
        "lerobot.policies.pretrained": {"PreTrainedPolicy": PreTrainedPolicy},
        "torch": {"from_numpy": lambda array: array},
    }
    for name in ("lerobot", "lerobot.configs", "lerobot.policies"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    for name, members in modules.items():
        module = ModuleType(name)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)
    for name in ("configuration_limber", "modeling_limber"):
        monkeypatch.delitem(sys.modules, f"lerobot_policy_limber.{name}", raising=False)


def test_the_policy_returns_rows_and_requests_a_chunk_when_they_are_used_up(lerobot: None, gateway: FakeGateway, client: Limber) -> None:
    from lerobot_policy_limber.configuration_limber import LimberConfig
    from lerobot_policy_limber.modeling_limber import LimberPolicy

    gateway.policy = lambda seen, horizon: np.arange(horizon)[:, None] + seen.proprio[0]
    config = LimberConfig(model="a/b", chunk_size=4, n_action_steps=2, robot_id="so101")
    policy = LimberPolicy(config, client=client)
    batch = {"observation.state": np.array([[10.0]]), "task": ["fold"]}
    assert [policy.select_action(batch).tolist() for _ in range(3)] == [[[10]], [[11]], [[10]]]
    assert policy.predict_action_chunk(batch).shape == (1, 4, 1)
    sent = gateway.received[0]
    assert (sent.robot_id, sent.instruction, sent.horizon, sent.action_space) == ("so101", "fold", 4, "continuous_nd")
    sessions = [each.provider.session_id for each in gateway.received]
    policy.reset()
    policy.select_action(batch)
    assert len(set(sessions)) == 1 and gateway.received[-1].provider.session_id != sessions[0]
    with pytest.raises(ValueError, match="n_action_steps"):
        LimberPolicy(LimberConfig(chunk_size=2, n_action_steps=3), client=client)
