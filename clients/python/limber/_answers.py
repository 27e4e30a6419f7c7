"""Results of calls: plain values and arrays converted from messages. Invalid responses raise `MalformedAnswer`."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from google.protobuf.json_format import MessageToDict
from google.protobuf.struct_pb2 import Struct
from numpy.typing import NDArray

from limber._frames import decoded
from limber._gen.limber.v1 import (
    action_pb2,
    evaluation_pb2,
    grounding_pb2,
    inference_service_pb2,
    plan_pb2,
    prediction_pb2,
    publication_pb2,
    registry_pb2,
    robot_pb2,
    route_pb2,
)
from limber.errors import MalformedAnswer


@dataclass(frozen=True)
class Route:
    """The offering that served a call."""

    model: str
    provider: str
    offering_id: str
    region: str
    #: True if the output is a placeholder and not a model's.
    simulated: bool
    #: True if the answer did not come from the first entry of the plan.
    fallback_used: bool
    #: A description of each attempt, in order.
    attempts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Chunk:
    """An action chunk."""

    #: Actions, float64 of shape (steps, dimensions).
    steps: NDArray[np.float64]
    #: The action space of every row.
    space: str
    #: Time between consecutive rows, in seconds.
    dt_s: float
    #: The model's note about the actions: units, frame, limits.
    note: str
    model: str
    route: Route
    cost_usd: float
    #: How long after `created` the chunk is valid, in seconds.
    valid_for_s: float
    #: Creation time, in Unix seconds.
    created: int
    #: The call's id, which the gateway's log also contains.
    id: str
    #: Predicted frames, if the call requested them.
    prediction: tuple[Prediction, ...] = ()


@dataclass(frozen=True)
class Prediction:
    """A predicted image."""

    #: Index in the prediction, from 0.
    index: int
    camera: str
    #: Time after the last observation, in seconds.
    t_s: float
    width: int
    height: int
    #: The encoded image, as received.
    data: bytes

    @property
    def image(self) -> NDArray[np.uint8]:
        """The pixels: uint8 of shape (height, width, 3), RGB. Needs Pillow."""
        return decoded(self.data)


@dataclass(frozen=True)
class Point:
    """A point in an image. Coordinates range from 0 to 1, left to right and top to bottom."""

    x: float
    y: float
    label: str
    confidence: float
    camera: str


@dataclass(frozen=True)
class Box:
    """A region of an image. Coordinates range from 0 to 1, left to right and top to bottom."""

    x_min: float
    y_min: float
    x_max: float
    y_max: float
    label: str
    confidence: float
    camera: str


@dataclass(frozen=True)
class Grounding:
    """Points and boxes that match an instruction."""

    points: tuple[Point, ...]
    boxes: tuple[Box, ...]
    #: The model's note, such as why it found nothing.
    note: str
    model: str
    route: Route
    cost_usd: float


@dataclass(frozen=True)
class PlanEntry:
    """An offering of a plan. A plan lists offerings in the order of attempts."""

    offering_id: str
    model: str
    provider: str
    region: str
    #: Expected cost of the call at this offering, in US dollars.
    estimated_cost_usd: float
    #: Expected latency, in seconds; None if unknown.
    p50_s: float | None
    p95_s: float | None
    #: True if the offering needs a cold start.
    cold: bool


@dataclass(frozen=True)
class Plan:
    """How a request would be routed."""

    entries: tuple[PlanEntry, ...]
    #: Excluded offerings: model, provider, reason, figures.
    dropped: tuple[tuple[str, str, str, str], ...]


@dataclass(frozen=True)
class Model:
    """A model of the catalog."""

    id: str
    name: str
    vendor: str
    summary: str
    #: `act`, `predict`, `ground`, `evaluate`.
    contracts: tuple[str, ...]
    action_spaces: tuple[str, ...]
    #: Providers with live supply for the model; empty if there are none.
    providers: tuple[str, ...]


@dataclass(frozen=True)
class Stop:
    """An emergency stop. While it is active, the robots it covers receive no actions."""

    id: str
    subject: str
    reason: str
    #: Creation time, in Unix seconds.
    created: int
    #: True if the stop has been released.
    released: bool
    #: True if the stop is persisted and survives a restart.
    durable: bool


@dataclass(frozen=True)
class Episode:
    """One episode of an evaluation."""

    index: int
    seed: int
    success: bool
    #: Why the episode ended, such as `success`, `max_steps` or `policy_timeout`.
    termination: str
    error: str
    total_reward: float
    #: Progress toward the goal, from 0 to 1.
    progress: float
    steps: int
    metrics: dict[str, float]


@dataclass(frozen=True)
class Evaluation:
    """The current state of an evaluation."""

    id: str
    #: `queued`, `running`, `completed`, `failed`, `cancelled` or `expired`.
    status: str
    #: Number of finished episodes, and total number of episodes.
    completed: int
    total: int
    #: The share of successful episodes and its 95 % confidence interval (Wilson); None before the first episode ends.
    success_rate: float | None
    interval: tuple[float, float] | None
    cost_usd: float
    #: Why the evaluation failed; empty if it did not.
    error: str
    #: The complete protobuf message.
    message: evaluation_pb2.Evaluation


@dataclass(frozen=True)
class Publication:
    """A published evaluation or comparison."""

    #: Empty for a dry run.
    id: str
    #: The published evaluation or comparison.
    subject: str
    title: str
    #: In Unix seconds.
    published_at: int
    #: In Unix seconds; None while it is public.
    withdrawn_at: int | None
    #: Path of the document on the gateway; empty for a dry run.
    path: str
    #: What becomes public, in words; only when it was just published.
    discloses: tuple[str, ...]


@dataclass(frozen=True)
class Ranked:
    """A policy on a leaderboard."""

    #: Equal ranks are ties.
    rank: int
    model: str
    publisher: str
    publication_id: str
    episodes: int
    success_rate: float
    #: Wilson's interval of the success rate, widened for repeated attempts.
    interval: tuple[float, float]
    #: The complete protobuf message.
    message: publication_pb2.LeaderboardEntry


@dataclass(frozen=True)
class Usage:
    """A billed call."""

    request_id: str
    created: int
    model: str
    units: float
    cost_usd: float


def matrix(steps: Iterable[action_pb2.ActionStep]) -> NDArray[np.float64]:
    """Returns the rows of a chunk. Raises `MalformedAnswer` if it has no rows, rows of different lengths, or numbers that are not finite."""
    rows = [step.values for step in steps]
    if len(rows) == 0:
        raise MalformedAnswer("the chunk has no steps")
    width = len(rows[0])
    if width == 0 or any(len(row) != width for row in rows):
        raise MalformedAnswer(f"the chunk's steps have different lengths: {sorted({len(row) for row in rows})}; all must be equal")
    array = np.array(rows, dtype=np.float64)
    if not np.isfinite(array).all():
        raise MalformedAnswer("the chunk contains a number that is not finite")
    return array


def route_of(message: route_pb2.Route | route_pb2.DirectRoute) -> Route:
    attempts: list[str] = []
    if isinstance(message, route_pb2.Route):
        status = route_pb2.AttemptStatus.DESCRIPTOR.values_by_number
        failure = route_pb2.AttemptFailure.DESCRIPTOR.values_by_number
        for each in message.attempts:
            word = status[each.status].name.removeprefix("ATTEMPT_STATUS_").lower() if each.status in status else "?"
            why = failure[each.reason].name.removeprefix("ATTEMPT_FAILURE_").lower() if each.reason in failure and each.reason else ""
            attempts.append(f"{each.provider}: {word}{f' ({why})' if why else ''}, {each.latency_ms:.1f} ms")
    return Route(
        model=message.model,
        provider=message.provider,
        offering_id=message.offering_id,
        region=message.region,
        simulated=message.simulated,
        fallback_used=message.fallback_used if isinstance(message, route_pb2.Route) else False,
        attempts=tuple(attempts),
    )


def chunk_of(answer: inference_service_pb2.ActResponse, horizon: int | None) -> Chunk:
    steps = matrix(answer.action.steps)
    if horizon is not None and len(steps) != horizon:
        raise MalformedAnswer(f"the chunk has {len(steps)} steps; {horizon} were requested")
    return Chunk(
        steps=steps,
        space=answer.action.space,
        dt_s=answer.action.dt_ms / 1000,
        note=answer.action.note,
        model=answer.model,
        route=route_of(answer.route),
        cost_usd=answer.usage.cost_usd,
        valid_for_s=answer.valid_until_ms / 1000,
        created=answer.created,
        id=answer.id,
        prediction=tuple(map(prediction_of, answer.prediction)),
    )


def prediction_of(frame: prediction_pb2.PredictedFrame) -> Prediction:
    return Prediction(frame.index, frame.camera, frame.t_ms / 1000, frame.width, frame.height, frame.data)


def grounding_of(answer: inference_service_pb2.GroundResponse) -> Grounding:
    return Grounding(
        points=tuple(map(_point, answer.points)),
        boxes=tuple(map(_box, answer.boxes)),
        note=answer.note,
        model=answer.model,
        route=route_of(answer.route),
        cost_usd=answer.usage.cost_usd,
    )


def _unit(value: float) -> float:
    if not (math.isfinite(value) and 0 <= value <= 1):
        raise MalformedAnswer(f"an image coordinate is {value}; it must be between 0 and 1")
    return value


def _point(point: grounding_pb2.GroundedPoint) -> Point:
    return Point(_unit(point.x), _unit(point.y), point.label, point.confidence, point.camera)


def _box(box: grounding_pb2.GroundedBox) -> Box:
    return Box(
        _unit(box.x_min), _unit(box.y_min), _unit(box.x_max), _unit(box.y_max), box.label, box.confidence, box.camera
    )


def plan_of(answer: inference_service_pb2.PreviewRoutesResponse) -> Plan:
    reasons = plan_pb2.DropReason.DESCRIPTOR.values_by_number
    return Plan(
        entries=tuple(
            PlanEntry(
                offering_id=step.offering_id,
                model=step.model,
                provider=step.provider,
                region=step.region,
                estimated_cost_usd=step.estimated_cost_usd,
                p50_s=step.expected_ms.p50 / 1000 if step.expected_ms.HasField("p50") else None,
                p95_s=step.expected_ms.p95 / 1000 if step.expected_ms.HasField("p95") else None,
                cold=step.cold,
            )
            for step in answer.plan
        ),
        dropped=tuple(
            (
                each.model,
                each.provider,
                reasons[each.reason].name.removeprefix("DROP_REASON_").lower() if each.reason in reasons else "",
                each.detail,
            )
            for each in answer.dropped
        ),
    )


def model_of(model: registry_pb2.Model) -> Model:
    return Model(
        id=model.id,
        name=model.name,
        vendor=model.vendor,
        summary=model.summary,
        contracts=tuple(["", "act", "predict", "ground", "evaluate"][each] for each in model.contracts if 1 <= each <= 4),
        action_spaces=tuple(model.action_spaces),
        providers=tuple(model.providers),
    )


def stop_of(stop: robot_pb2.RobotStop) -> Stop:
    return Stop(stop.id, stop.subject, stop.reason, stop.created, stop.HasField("released"), stop.durable)


def episode_of(record: evaluation_pb2.EpisodeRecord) -> Episode:
    return Episode(
        index=record.index,
        seed=record.seed,
        success=record.success,
        termination=record.termination,
        error=record.error,
        total_reward=getattr(record, "return"),
        progress=record.progress,
        steps=record.steps,
        metrics=dict(record.metrics),
    )


def publication_of(message: publication_pb2.Publication) -> Publication:
    return Publication(
        id=message.id,
        subject=message.evaluation_id or message.comparison_id,
        title=message.title,
        published_at=message.published_at,
        withdrawn_at=message.withdrawn_at if message.HasField("withdrawn_at") else None,
        path=message.path,
        discloses=tuple(message.discloses),
    )


def document_of(message: Struct) -> dict[str, Any]:
    """Returns the document. A JSON number is an integer where that is the same number, as the document's signature has it."""
    if not message.fields:
        raise MalformedAnswer("the gateway answered without a document")
    return {name: _plain(value) for name, value in MessageToDict(message).items()}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def ranked_of(message: publication_pb2.LeaderboardEntry) -> Ranked:
    return Ranked(
        rank=message.rank,
        model=message.model,
        publisher=message.publisher,
        publication_id=message.publication_id,
        episodes=message.episodes,
        success_rate=message.success_rate,
        interval=(message.interval.low, message.interval.high),
        message=message,
    )


def evaluation_of(message: evaluation_pb2.Evaluation) -> Evaluation:
    from limber._gen.limber.v1 import job_pb2

    words = job_pb2.JobStatus.DESCRIPTOR.values_by_number
    word = words[message.status].name.removeprefix("JOB_STATUS_").lower() if message.status in words else "?"
    rate = message.scores.success_rate if message.HasField("scores") else None
    scored = rate is not None and rate.n > 0
    return Evaluation(
        id=message.id,
        status=word,
        completed=message.progress.completed,
        total=message.progress.total,
        success_rate=rate.value if rate is not None and scored else None,
        interval=(rate.ci95.low, rate.ci95.high) if rate is not None and scored else None,
        cost_usd=message.usage.total_cost_usd,
        error=": ".join(filter(None, [message.error.code, message.error.message])),
        message=message,
    )
