"""LeRobot's processing of observations and actions. It is empty, because gateway models use physical units."""

from __future__ import annotations

from typing import Any

from lerobot.processor import (
    AddBatchDimensionProcessorStep,
    DeviceProcessorStep,
    PolicyProcessorPipeline,
    RenameObservationsProcessorStep,
    policy_action_to_transition,
    transition_to_policy_action,
)
from lerobot.utils.constants import POLICY_POSTPROCESSOR_DEFAULT_NAME, POLICY_PREPROCESSOR_DEFAULT_NAME


def make_limber_pre_post_processors(config: Any, dataset_stats: Any = None, **kwargs: Any) -> tuple[Any, Any]:
    """Returns the two pipelines. Dataset statistics are not used."""
    before = PolicyProcessorPipeline(
        steps=[RenameObservationsProcessorStep(rename_map={}), AddBatchDimensionProcessorStep()],
        name=POLICY_PREPROCESSOR_DEFAULT_NAME,
    )
    after = PolicyProcessorPipeline(
        steps=[DeviceProcessorStep(device="cpu")],
        name=POLICY_POSTPROCESSOR_DEFAULT_NAME,
        to_transition=policy_action_to_transition,
        to_output=transition_to_policy_action,
    )
    return before, after
