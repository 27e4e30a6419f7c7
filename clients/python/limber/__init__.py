"""Client for the Limber gateway, which serves models for robots over one API.

    import limber

    with limber.Limber("http://127.0.0.1:8080", "lmb_sk_…") as client:
        chunk = client.act("reference/potential-nav", [0, 0, 0, 2, 0, 0], action_space="base_twist_2d")
        with client.loop("reference/potential-nav", action_space="base_twist_2d", rate_hz=50, hold=[0, 0]) as loop:
            loop.run(observe, step, max_seconds=30)

`limber.errors` has one exception for each refusal reason. `limber.aio` is the same client for asyncio. `limber.testing` is a gateway for tests
that needs no network. `limber.serve` serves a policy to a gateway. `limber.openpi` and `limber.gym` adapt the client to their interfaces.
"""

from limber import errors
from limber._answers import (
    Box,
    Chunk,
    Episode,
    Evaluation,
    Grounding,
    Model,
    Plan,
    PlanEntry,
    Point,
    Prediction,
    Publication,
    Ranked,
    Route,
    Stop,
    Usage,
)
from limber._frames import FrameHint, ImageLike, Observation
from limber._version import VERSION as __version__
from limber.client import Limber, RunningEvaluation
from limber.errors import LimberError, Refused
from limber.loop import Bounds, Loop, LoopStats, Outcome, Tick

__all__ = [
    "Bounds",
    "Box",
    "Chunk",
    "Episode",
    "Evaluation",
    "FrameHint",
    "Grounding",
    "ImageLike",
    "Limber",
    "LimberError",
    "Loop",
    "LoopStats",
    "Model",
    "Observation",
    "Outcome",
    "Plan",
    "PlanEntry",
    "Point",
    "Prediction",
    "Publication",
    "Ranked",
    "Refused",
    "Route",
    "RunningEvaluation",
    "Stop",
    "Tick",
    "Usage",
    "__version__",
    "errors",
]
