"""The suites by name, and what they share."""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from limber.errors import BadInput, MissingPackage
from limber.runners.base import Suite

#: Suite names and their modules.
SUITES = {
    "metaworld": "metaworld",
    "gymnasium-robotics": "gymnasium_robotics",
    "libero": "libero",
    "simpler-env": "simpler_env",
    "maniskill": "maniskill",
    "vla-eval": "vla_eval",
    "lerobot-env": "lerobot_env",
}


def suite_of(name: str, tasks: Sequence[str], **options: Any) -> Suite:
    """Returns a suite. Raises BadInput for an unknown name, and MissingPackage with the package and version to install."""
    if name not in SUITES:
        raise BadInput(f"the suite must be one of {', '.join(SUITES)}, got {name!r}")
    suite: Suite = importlib.import_module(f"limber.runners.{SUITES[name]}").Suite(tasks, **options)
    return suite


def needed(module: str, install: str) -> Any:
    """Imports a benchmark's module. Raises MissingPackage with the install command."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingPackage(f"{module} cannot be imported ({error}); {install}") from None


def version_of(module: str, *packages: str) -> str:
    """Returns the installed version of the first of these packages, or the one that the imported module states."""
    for package in packages:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return importlib.metadata.version(package)
    return str(getattr(sys.modules.get(module), "__version__", "of unknown version"))


def mujoco_state(env: Any) -> bytes:
    """Returns positions and velocities of a MuJoCo environment of Gymnasium."""
    return np.concatenate([env.data.qpos.ravel(), env.data.qvel.ravel()]).astype("<f8").tobytes()
