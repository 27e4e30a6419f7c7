"""Gateway models as a LeRobot policy. LeRobot imports this package by its name and finds the configuration in it."""

import contextlib

with contextlib.suppress(ImportError):
    # Without LeRobot, only the mapping can be imported.
    from lerobot_policy_limber.configuration_limber import LimberConfig

    __all__ = ["LimberConfig"]
