"""What a policy of this kind is told, under `--policy.…`."""

from __future__ import annotations

from dataclasses import dataclass

from lerobot.configs.policies import PreTrainedConfig


@PreTrainedConfig.register_subclass("limber")
@dataclass
class LimberConfig(PreTrainedConfig):
    """A model of a gateway. The address and the key come from `LIMBER_URL` and `LIMBER_KEY`, so that no key is saved with a policy."""

    #: A slug, an alias such as `service/auto:manipulation`, or either with a variant suffix.
    model: str = "service/auto"
    #: The action space that the robot takes.
    action_space: str = "continuous_nd"
    #: Rows of each chunk.
    chunk_size: int = 16
    #: Rows that are executed before the model is asked again.
    n_action_steps: int = 8
    #: The robot's name, for the emergency stop.
    robot_id: str | None = None
    #: Seconds that an answer may take.
    timeout_s: float = 10.0

    def validate_features(self) -> None:
        """Nothing: what a model takes is the gateway's to say."""
        if not 1 <= self.n_action_steps <= self.chunk_size <= 256:
            raise ValueError(f"n_action_steps is {self.n_action_steps} and chunk_size {self.chunk_size}; 1 <= n_action_steps <= chunk_size <= 256")

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
        raise NotImplementedError("a model of a gateway is not trained here")

    def get_scheduler_preset(self) -> None:
        return None
