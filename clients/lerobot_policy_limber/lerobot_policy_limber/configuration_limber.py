"""The policy's options, under `--policy.…`."""

from __future__ import annotations

from dataclasses import dataclass

from lerobot.configs.policies import PreTrainedConfig


@PreTrainedConfig.register_subclass("limber")
@dataclass
class LimberConfig(PreTrainedConfig):
    """A gateway model. The address and the key come from `LIMBER_URL` and `LIMBER_KEY`, so that a saved policy contains no key."""

    #: A slug, an alias such as `service/auto:manipulation`, or either with a variant suffix.
    model: str = "service/auto"
    #: The robot's action space.
    action_space: str = "continuous_nd"
    #: Number of rows in each chunk.
    chunk_size: int = 16
    #: Number of rows that are executed before the next chunk is requested.
    n_action_steps: int = 8
    #: The robot's name, for emergency stops.
    robot_id: str | None = None
    #: Time limit for an answer, in seconds.
    timeout_s: float = 10.0

    def validate_features(self) -> None:
        """Checks nothing about the features: the gateway validates the model's input."""
        if not 1 <= self.n_action_steps <= self.chunk_size <= 256:
            raise ValueError(f"1 <= n_action_steps <= chunk_size <= 256 is required, got n_action_steps {self.n_action_steps} and chunk_size {self.chunk_size}")

    @property
    def observation_delta_indices(self) -> None:
        return None

    @property
    def action_delta_indices(self) -> list[int]:
        return list(range(self.chunk_size))

    @property
    def reward_delta_indices(self) -> None:
        return None

    def get_optimizer_preset(self) -> None:
        raise NotImplementedError("gateway models cannot be trained")

    def get_scheduler_preset(self) -> None:
        return None
