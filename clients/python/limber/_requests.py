"""Builds request messages from the clients' arguments. Invalid arguments raise `BadInput`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar, Union

import numpy as np
from numpy.typing import ArrayLike

from limber._calls import enum_word, preferences
from limber._frames import FrameHint, ImageLike, Observation, as_observation, encoded, message_of
from limber._gen.limber.v1 import (
    action_pb2,
    contract_pb2,
    evaluation_pb2,
    evaluation_service_pb2,
    inference_service_pb2,
    observation_pb2,
    preferences_pb2,
    publication_service_pb2,
    registry_pb2,
    registry_service_pb2,
    robot_service_pb2,
)
from limber.errors import BadInput

M = TypeVar("M")
NO_HINTS: Mapping[str, FrameHint] = {}

#: What a robot senses: an observation, a mapping of its fields, a row of numbers, or a list of these, oldest first.
Sensed = Observation | Mapping[str, Any] | Sequence[Any] | ArrayLike


def make(kind: type[M], **fields: Any) -> M:
    """Builds a message from the fields that are not None. Raises `BadInput` for a value that its field does not accept."""
    # Older protobuf versions do not accept a mapping for a Struct.
    metadata = fields.pop("metadata", None)
    try:
        made: Any = kind(**{name: value for name, value in fields.items() if value is not None})
        if metadata is not None:
            made.metadata.update(metadata)
        return made  # type: ignore[no-any-return]
    except (TypeError, ValueError) as error:
        raise BadInput(f"{kind.__name__}: {error}") from None


def observations_of(sensed: Sensed, hints: Mapping[str, FrameHint] = NO_HINTS) -> list[observation_pb2.Observation]:
    """Returns one message for each moment."""
    many = isinstance(sensed, (list, tuple)) and len(sensed) > 0 and isinstance(sensed[0], (Observation, Mapping))
    moments: Iterable[Any] = sensed if many else [sensed]  # type: ignore[assignment]
    messages = [message_of(as_observation(each), hints) for each in moments]
    if not 1 <= len(messages) <= 32:
        raise BadInput(f"a call must have 1 to 32 observations, got {len(messages)}")
    return messages


def goal_of(image: ImageLike | None) -> observation_pb2.Frame | None:
    return None if image is None else observation_pb2.Frame(data=encoded(image, None, "goal_image"))


def preference_of(word: str | None) -> Any:
    return None if word is None else enum_word(preferences_pb2.Preference, "PREFERENCE_", word, "preference")


def embodiment_of(word: str | None) -> Any:
    return None if word is None else enum_word(registry_pb2.Embodiment, "EMBODIMENT_", word, "embodiment")


def steps_of(actions: ArrayLike | None) -> list[action_pb2.ActionStep] | None:
    """Returns one message for each row."""
    if actions is None:
        return None
    array = np.asarray(actions)
    if array.dtype.kind not in "fiub" or array.ndim != 2:
        raise BadInput(f"actions must be floats of shape (steps, dimensions), got {array.dtype} of shape {array.shape}")
    if not np.isfinite(array).all():
        raise BadInput("actions contains a number that is not finite")
    return [action_pb2.ActionStep(values=row) for row in array.astype(np.float64).tolist()]


def common(
    model: str,
    *,
    models: Sequence[str] | None,
    preference: str | None,
    provider: Mapping[str, Any] | None,
    seed: int | None,
    preset: str | None,
    metadata: Mapping[str, str] | None,
) -> dict[str, Any]:
    """Returns the fields that act, predict and preview requests share."""
    if not isinstance(model, str) or model == "":
        raise BadInput("model is empty; pass one such as owner/name, or an alias such as service/auto")
    return {
        "model": model,
        "models": models,
        "preference": preference_of(preference),
        "provider": None if provider is None else preferences(provider),
        "seed": seed,
        "preset": preset,
        "metadata": None if metadata is None else dict(metadata),
    }


def act(
    model: str,
    sensed: Sensed,
    *,
    instruction: str | None,
    action_space: str | None,
    horizon: int | None,
    goal_image: ImageLike | None,
    temperature: float | None,
    embodiment: str | None,
    robot: str | None,
    return_prediction: bool,
    shared: dict[str, Any],
) -> inference_service_pb2.ActRequest:
    return make(
        inference_service_pb2.ActRequest,
        **shared,
        observations=observations_of(sensed),
        instruction=instruction,
        action_space=action_space,
        horizon=horizon,
        goal_image=goal_of(goal_image),
        temperature=temperature,
        embodiment=embodiment_of(embodiment),
        robot_id=robot,
        return_prediction=True if return_prediction else None,
    )


def predict(
    sensed: Sensed,
    *,
    instruction: str | None,
    horizon: int | None,
    actions: ArrayLike | None,
    action_space: str | None,
    fps: float | None,
    resolution: str | None,
    shared: dict[str, Any],
) -> inference_service_pb2.PredictStreamRequest:
    return inference_service_pb2.PredictStreamRequest(
        predict=make(
            inference_service_pb2.PredictRequest,
            **shared,
            observations=observations_of(sensed),
            instruction=instruction,
            horizon=horizon,
            actions=steps_of(actions),
            action_space=action_space,
            fps=fps,
            resolution=resolution,
        )
    )


def ground(
    sensed: Sensed, instruction: str, model: str | None, provider: Mapping[str, Any] | None
) -> inference_service_pb2.GroundRequest:
    if not isinstance(instruction, str) or instruction == "":
        raise BadInput("instruction is empty; describe in words what to find")
    return make(
        inference_service_pb2.GroundRequest,
        observations=observations_of(sensed),
        instruction=instruction,
        model=model,
        provider=None if provider is None else preferences(provider),
    )


def preview(
    contract: str | None, horizon: int | None, action_space: str | None, shared: dict[str, Any]
) -> inference_service_pb2.PreviewRoutesRequest:
    request = make(inference_service_pb2.PreviewedRequest, **shared, horizon=horizon, action_space=action_space)
    number = None if contract is None else enum_word(contract_pb2.Contract, "CONTRACT_", contract, "contract")
    return make(inference_service_pb2.PreviewRoutesRequest, contract=number, request=request)


#: The numbers of a scenario's state that a policy reads, in its order: names, or the scenario's name by the policy's.
StateMap = Union[Sequence[str], Mapping[str, str]]


def _state_mappings(state_map: StateMap) -> list[evaluation_pb2.StateMapping]:
    if isinstance(state_map, Mapping):
        return [evaluation_pb2.StateMapping(name=name, **{"from": source}) for name, source in state_map.items()]
    if isinstance(state_map, str):
        raise BadInput("state_map must be a sequence or a mapping of names, got a string")
    return [evaluation_pb2.StateMapping(**{"from": source}) for source in state_map]


def evaluate(
    policy: str,
    scenario: str,
    episodes: int,
    *,
    seed: int | None,
    action_space: str | None,
    horizon: int | None,
    replan_steps: int | None,
    realtime: bool,
    pictures: bool | None,
    camera_map: Mapping[str, str] | None,
    state_map: StateMap | None,
    external: bool,
    idempotency_key: str,
) -> evaluation_service_pb2.EvaluateRequest:
    return make(
        evaluation_service_pb2.EvaluateRequest,
        policy_endpoint=policy,
        scenario=scenario,
        episodes=episodes,
        seed=seed,
        action_space=action_space,
        horizon=horizon,
        replan_steps=replan_steps,
        mode=evaluation_pb2.EVALUATION_MODE_REALTIME if realtime else None,
        pictures=pictures,
        camera_map=None if camera_map is None else dict(camera_map),
        state_map=None if state_map is None else _state_mappings(state_map),
        runner=evaluation_pb2.EVALUATION_RUNNER_EXTERNAL if external else None,
        idempotency_key=idempotency_key,
    )


def models(
    query: str | None, contract: str | None, action_space: str | None, limit: int, offset: int
) -> registry_service_pb2.ListModelsRequest:
    return make(
        registry_service_pb2.ListModelsRequest,
        q=query,
        contract=None if contract is None else enum_word(contract_pb2.Contract, "CONTRACT_", contract, "contract"),
        action_space=action_space,
        limit=limit,
        offset=offset,
    )


def publish(
    evaluation_id: str | None, comparison_id: str | None, title: str, dry_run: bool
) -> publication_service_pb2.CreatePublicationRequest:
    if (evaluation_id is None) == (comparison_id is None):
        raise BadInput("pass exactly one of evaluation_id and comparison_id")
    return make(
        publication_service_pb2.CreatePublicationRequest,
        evaluation_id=evaluation_id,
        comparison_id=comparison_id,
        title=title,
        dry_run=dry_run,
    )


def stop(robot: str | None, session: str | None, everything: bool, reason: str) -> robot_service_pb2.StopRobotsRequest:
    if [robot is not None, session is not None, everything].count(True) != 1:
        raise BadInput("pass exactly one of robot, session and everything=True")
    return make(
        robot_service_pb2.StopRobotsRequest,
        robot_id=robot,
        session_id=session,
        all=True if everything else None,
        reason=reason,
    )


def release(
    robot: str | None, session: str | None, stop_id: str | None, everything: bool
) -> robot_service_pb2.ReleaseRobotsRequest:
    if [robot is not None, session is not None, stop_id is not None, everything].count(True) != 1:
        raise BadInput("pass exactly one of robot, session, stop_id and everything=True")
    return make(
        robot_service_pb2.ReleaseRobotsRequest,
        robot_id=robot,
        session_id=session,
        stop_id=stop_id,
        all=True if everything else None,
    )
