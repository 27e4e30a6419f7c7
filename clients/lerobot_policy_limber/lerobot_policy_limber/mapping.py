"""Converts LeRobot batches to gateway observations. Needs neither LeRobot nor torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limber import Observation
from limber.errors import BadInput

STATE = "observation.state"
IMAGES = "observation.images."
#: The camera name for environments with a single unnamed camera.
IMAGE = "observation.image"


def array_of(value: Any) -> NDArray[Any]:
    """Converts a tensor on any device to an array."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
    return np.asarray(value)


def _one(array: NDArray[Any], dimensions: int, name: str) -> NDArray[Any]:
    """Removes the batch dimension. Raises `BadInput` if the batch has more than one robot."""
    if array.ndim == dimensions + 1:
        if array.shape[0] != 1:
            raise BadInput(f"{name} must be a batch of one robot, got {array.shape[0]}")
        return array[0]
    if array.ndim != dimensions:
        raise BadInput(f"{name} has the shape {array.shape}")
    return array


def picture(value: Any, name: str) -> NDArray[np.uint8]:
    """Converts LeRobot's (3, height, width) floats from 0 to 1 to uint8 of shape (height, width, 3)."""
    image = _one(array_of(value), 3, name)
    if image.shape[0] in (1, 3) and image.shape[2] not in (1, 3):
        image = image.transpose(1, 2, 0)
    if image.dtype == np.uint8:
        return image
    if image.dtype.kind != "f" or not np.isfinite(image).all() or image.min() < -1e-3 or image.max() > 1 + 1e-3:
        raise BadInput(f"{name} must be uint8, or floats from 0 to 1")
    return np.clip(image * 255 + 0.5, 0, 255).astype(np.uint8)


def observation_of(batch: Mapping[str, Any]) -> Observation:
    """Converts a batch to an observation."""
    images = {name.removeprefix(IMAGES): picture(value, name) for name, value in batch.items() if name.startswith(IMAGES)}
    if IMAGE in batch:
        images[""] = picture(batch[IMAGE], IMAGE)
    state = _one(array_of(batch[STATE]), 1, STATE) if STATE in batch else None
    if state is None and not images:
        raise BadInput(f"the batch must have {STATE} or images, got {', '.join(map(str, batch)) or 'no keys'}")
    return Observation(images=images, state=state)


def task_of(batch: Mapping[str, Any]) -> str | None:
    """Returns the task, if the batch has one."""
    task = batch.get("task")
    if isinstance(task, (list, tuple)):
        task = task[0] if task else None
    return None if task is None else str(task)
