"""A gateway model with LeRobot's policy interface."""

from __future__ import annotations

import uuid
from collections import deque
from typing import Any

import numpy as np
import torch
from lerobot.policies.pretrained import PreTrainedPolicy

from limber import Limber
from lerobot_policy_limber.configuration_limber import LimberConfig
from lerobot_policy_limber.mapping import observation_of, task_of


class LimberPolicy(PreTrainedPolicy):  # type: ignore[misc]
    """Requests chunks from a gateway and returns their rows one by one."""

    config_class = LimberConfig
    name = "limber"

    def __init__(self, config: LimberConfig, *args: Any, client: Limber | None = None, **kwargs: Any) -> None:
        super().__init__(config)
        config.validate_features()
        self._client = client or Limber(timeout_s=config.timeout_s)
        self._rows: deque[np.ndarray] = deque()
        self.reset()

    @classmethod
    def from_pretrained(cls, pretrained_name_or_path: Any, *, config: LimberConfig | None = None, **kwargs: Any) -> LimberPolicy:
        """Creates the policy from its configuration. There are no weights."""
        if config is None:
            config = LimberConfig.from_pretrained(pretrained_name_or_path)
        return cls(config)

    def get_optim_params(self) -> dict[str, Any]:
        return {}

    def forward(self, batch: dict[str, Any]) -> Any:
        raise NotImplementedError("gateway models cannot be trained")

    def reset(self) -> None:
        """Begins a new episode: drops the last chunk; another provider can serve the next one."""
        self._rows.clear()
        self._session = f"lerobot-{uuid.uuid4().hex}"

    def predict_action_chunk(self, batch: dict[str, Any], **kwargs: Any) -> Any:
        """Returns the chunk for an observation: a float32 tensor of shape (1, rows, dimensions)."""
        config = self.config
        chunk = self._client.act(
            config.model,
            observation_of(batch),
            instruction=task_of(batch),
            action_space=config.action_space,
            horizon=config.chunk_size,
            robot=config.robot_id,
            provider={"session_id": self._session},
        )
        return torch.from_numpy(chunk.steps.astype(np.float32)[None])

    def select_action(self, batch: dict[str, Any], **kwargs: Any) -> Any:
        """Returns the next action: a float32 tensor of shape (1, dimensions)."""
        if not self._rows:
            chunk = self.predict_action_chunk(batch)
            self._rows.extend(chunk[0, i] for i in range(self.config.n_action_steps))
        return self._rows.popleft()[None]
