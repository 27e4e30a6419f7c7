"""Models of a Limber gateway as a policy of LeRobot, which imports this package for its name and finds the configuration in it."""

import contextlib

with contextlib.suppress(ImportError):
    # Without LeRobot the mapping alone can be imported.
    from lerobot_policy_limber.configuration_limber import LimberConfig

    __all__ = ["LimberConfig"]
