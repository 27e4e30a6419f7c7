"""Runs published robot benchmarks as external evaluations: Meta-World, Gymnasium-Robotics, LIBERO, SimplerEnv, ManiSkill, the vla-evaluation-harness, and
LeRobot's environment server.

    limber runner metaworld --tasks reach-v3,push-v3

claims the evaluations that were requested with `runner: external` for the suite's scenario, and runs them in the installed package. A benchmark of your own
is a `Suite` with `World`s; `Runner` does the rest. The guide is `docs/guides/benchmarks.md`.
"""

from limber.runners.base import Moved, Runner, Suite, World, WorldFault
from limber.runners.mapping import Camera, Gripper, Mapping
from limber.runners.suites import SUITES, suite_of

__all__ = ["SUITES", "Camera", "Gripper", "Mapping", "Moved", "Runner", "Suite", "World", "WorldFault", "suite_of"]
