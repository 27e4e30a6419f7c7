from google.protobuf import struct_pb2 as _struct_pb2
from limber._gen.limber.v1 import action_pb2 as _action_pb2
from limber._gen.limber.v1 import contract_pb2 as _contract_pb2
from limber._gen.limber.v1 import control_loop_pb2 as _control_loop_pb2
from limber._gen.limber.v1 import grounding_pb2 as _grounding_pb2
from limber._gen.limber.v1 import inference_pb2 as _inference_pb2
from limber._gen.limber.v1 import observation_pb2 as _observation_pb2
from limber._gen.limber.v1 import plan_pb2 as _plan_pb2
from limber._gen.limber.v1 import prediction_pb2 as _prediction_pb2
from limber._gen.limber.v1 import preferences_pb2 as _preferences_pb2
from limber._gen.limber.v1 import registry_pb2 as _registry_pb2
from limber._gen.limber.v1 import route_pb2 as _route_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FinishReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FINISH_REASON_UNSPECIFIED: _ClassVar[FinishReason]
    FINISH_REASON_COMPLETE: _ClassVar[FinishReason]
    FINISH_REASON_LENGTH: _ClassVar[FinishReason]
    FINISH_REASON_CANCELLED: _ClassVar[FinishReason]
    FINISH_REASON_DEADLINE: _ClassVar[FinishReason]
FINISH_REASON_UNSPECIFIED: FinishReason
FINISH_REASON_COMPLETE: FinishReason
FINISH_REASON_LENGTH: FinishReason
FINISH_REASON_CANCELLED: FinishReason
FINISH_REASON_DEADLINE: FinishReason

class ActRequest(_message.Message):
    __slots__ = ("model", "observations", "models", "preference", "provider", "seed", "stream", "preset", "metadata", "idempotency_key", "instruction", "goal_image", "action_space", "horizon", "temperature", "return_prediction", "embodiment", "whole_chunk", "robot_id", "episode")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    OBSERVATIONS_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    PREFERENCE_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    PRESET_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    INSTRUCTION_FIELD_NUMBER: _ClassVar[int]
    GOAL_IMAGE_FIELD_NUMBER: _ClassVar[int]
    ACTION_SPACE_FIELD_NUMBER: _ClassVar[int]
    HORIZON_FIELD_NUMBER: _ClassVar[int]
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    RETURN_PREDICTION_FIELD_NUMBER: _ClassVar[int]
    EMBODIMENT_FIELD_NUMBER: _ClassVar[int]
    WHOLE_CHUNK_FIELD_NUMBER: _ClassVar[int]
    ROBOT_ID_FIELD_NUMBER: _ClassVar[int]
    EPISODE_FIELD_NUMBER: _ClassVar[int]
    model: str
    observations: _containers.RepeatedCompositeFieldContainer[_observation_pb2.Observation]
    models: _containers.RepeatedScalarFieldContainer[str]
    preference: _preferences_pb2.Preference
    provider: _preferences_pb2.ProviderPreferences
    seed: float
    stream: bool
    preset: str
    metadata: _struct_pb2.Struct
    idempotency_key: str
    instruction: str
    goal_image: _observation_pb2.Frame
    action_space: str
    horizon: int
    temperature: float
    return_prediction: bool
    embodiment: _registry_pb2.Embodiment
    whole_chunk: bool
    robot_id: str
    episode: int
    def __init__(self, model: _Optional[str] = ..., observations: _Optional[_Iterable[_Union[_observation_pb2.Observation, _Mapping]]] = ..., models: _Optional[_Iterable[str]] = ..., preference: _Optional[_Union[_preferences_pb2.Preference, str]] = ..., provider: _Optional[_Union[_preferences_pb2.ProviderPreferences, _Mapping]] = ..., seed: _Optional[float] = ..., stream: _Optional[bool] = ..., preset: _Optional[str] = ..., metadata: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., idempotency_key: _Optional[str] = ..., instruction: _Optional[str] = ..., goal_image: _Optional[_Union[_observation_pb2.Frame, _Mapping]] = ..., action_space: _Optional[str] = ..., horizon: _Optional[int] = ..., temperature: _Optional[float] = ..., return_prediction: _Optional[bool] = ..., embodiment: _Optional[_Union[_registry_pb2.Embodiment, str]] = ..., whole_chunk: _Optional[bool] = ..., robot_id: _Optional[str] = ..., episode: _Optional[int] = ...) -> None: ...

class ActResponse(_message.Message):
    __slots__ = ("id", "object", "created", "model", "action", "route", "usage", "chunk_id", "valid_until_ms", "observation_age_ms", "prediction", "replayed", "expired")
    ID_FIELD_NUMBER: _ClassVar[int]
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    CHUNK_ID_FIELD_NUMBER: _ClassVar[int]
    VALID_UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    OBSERVATION_AGE_MS_FIELD_NUMBER: _ClassVar[int]
    PREDICTION_FIELD_NUMBER: _ClassVar[int]
    REPLAYED_FIELD_NUMBER: _ClassVar[int]
    EXPIRED_FIELD_NUMBER: _ClassVar[int]
    id: str
    object: str
    created: int
    model: str
    action: _action_pb2.Action
    route: _route_pb2.Route
    usage: _inference_pb2.ActUsage
    chunk_id: str
    valid_until_ms: int
    observation_age_ms: float
    prediction: _containers.RepeatedCompositeFieldContainer[_prediction_pb2.PredictedFrame]
    replayed: bool
    expired: bool
    def __init__(self, id: _Optional[str] = ..., object: _Optional[str] = ..., created: _Optional[int] = ..., model: _Optional[str] = ..., action: _Optional[_Union[_action_pb2.Action, _Mapping]] = ..., route: _Optional[_Union[_route_pb2.Route, _Mapping]] = ..., usage: _Optional[_Union[_inference_pb2.ActUsage, _Mapping]] = ..., chunk_id: _Optional[str] = ..., valid_until_ms: _Optional[int] = ..., observation_age_ms: _Optional[float] = ..., prediction: _Optional[_Iterable[_Union[_prediction_pb2.PredictedFrame, _Mapping]]] = ..., replayed: _Optional[bool] = ..., expired: _Optional[bool] = ...) -> None: ...

class ActStreamRequest(_message.Message):
    __slots__ = ("open", "observation", "reset", "close")
    OPEN_FIELD_NUMBER: _ClassVar[int]
    OBSERVATION_FIELD_NUMBER: _ClassVar[int]
    RESET_FIELD_NUMBER: _ClassVar[int]
    CLOSE_FIELD_NUMBER: _ClassVar[int]
    open: _control_loop_pb2.LoopOpen
    observation: _control_loop_pb2.LoopObservation
    reset: _control_loop_pb2.LoopReset
    close: _control_loop_pb2.LoopClose
    def __init__(self, open: _Optional[_Union[_control_loop_pb2.LoopOpen, _Mapping]] = ..., observation: _Optional[_Union[_control_loop_pb2.LoopObservation, _Mapping]] = ..., reset: _Optional[_Union[_control_loop_pb2.LoopReset, _Mapping]] = ..., close: _Optional[_Union[_control_loop_pb2.LoopClose, _Mapping]] = ...) -> None: ...

class ActStreamResponse(_message.Message):
    __slots__ = ("opened", "chunk", "hold", "ended", "episode")
    OPENED_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    HOLD_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    EPISODE_FIELD_NUMBER: _ClassVar[int]
    opened: _control_loop_pb2.LoopOpened
    chunk: _control_loop_pb2.LoopChunk
    hold: _control_loop_pb2.LoopHold
    ended: _control_loop_pb2.LoopEnded
    episode: _control_loop_pb2.LoopEpisode
    def __init__(self, opened: _Optional[_Union[_control_loop_pb2.LoopOpened, _Mapping]] = ..., chunk: _Optional[_Union[_control_loop_pb2.LoopChunk, _Mapping]] = ..., hold: _Optional[_Union[_control_loop_pb2.LoopHold, _Mapping]] = ..., ended: _Optional[_Union[_control_loop_pb2.LoopEnded, _Mapping]] = ..., episode: _Optional[_Union[_control_loop_pb2.LoopEpisode, _Mapping]] = ...) -> None: ...

class PredictRequest(_message.Message):
    __slots__ = ("model", "observations", "models", "preference", "provider", "seed", "stream", "preset", "metadata", "idempotency_key", "instruction", "goal_image", "action_space", "horizon", "temperature", "actions", "fps", "resolution", "num_samples", "embodiment")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    OBSERVATIONS_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    PREFERENCE_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    PRESET_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    INSTRUCTION_FIELD_NUMBER: _ClassVar[int]
    GOAL_IMAGE_FIELD_NUMBER: _ClassVar[int]
    ACTION_SPACE_FIELD_NUMBER: _ClassVar[int]
    HORIZON_FIELD_NUMBER: _ClassVar[int]
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    ACTIONS_FIELD_NUMBER: _ClassVar[int]
    FPS_FIELD_NUMBER: _ClassVar[int]
    RESOLUTION_FIELD_NUMBER: _ClassVar[int]
    NUM_SAMPLES_FIELD_NUMBER: _ClassVar[int]
    EMBODIMENT_FIELD_NUMBER: _ClassVar[int]
    model: str
    observations: _containers.RepeatedCompositeFieldContainer[_observation_pb2.Observation]
    models: _containers.RepeatedScalarFieldContainer[str]
    preference: _preferences_pb2.Preference
    provider: _preferences_pb2.ProviderPreferences
    seed: float
    stream: bool
    preset: str
    metadata: _struct_pb2.Struct
    idempotency_key: str
    instruction: str
    goal_image: _observation_pb2.Frame
    action_space: str
    horizon: int
    temperature: float
    actions: _containers.RepeatedCompositeFieldContainer[_action_pb2.ActionStep]
    fps: float
    resolution: str
    num_samples: int
    embodiment: _registry_pb2.Embodiment
    def __init__(self, model: _Optional[str] = ..., observations: _Optional[_Iterable[_Union[_observation_pb2.Observation, _Mapping]]] = ..., models: _Optional[_Iterable[str]] = ..., preference: _Optional[_Union[_preferences_pb2.Preference, str]] = ..., provider: _Optional[_Union[_preferences_pb2.ProviderPreferences, _Mapping]] = ..., seed: _Optional[float] = ..., stream: _Optional[bool] = ..., preset: _Optional[str] = ..., metadata: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., idempotency_key: _Optional[str] = ..., instruction: _Optional[str] = ..., goal_image: _Optional[_Union[_observation_pb2.Frame, _Mapping]] = ..., action_space: _Optional[str] = ..., horizon: _Optional[int] = ..., temperature: _Optional[float] = ..., actions: _Optional[_Iterable[_Union[_action_pb2.ActionStep, _Mapping]]] = ..., fps: _Optional[float] = ..., resolution: _Optional[str] = ..., num_samples: _Optional[int] = ..., embodiment: _Optional[_Union[_registry_pb2.Embodiment, str]] = ...) -> None: ...

class PredictResponse(_message.Message):
    __slots__ = ("id", "object", "created", "model", "frames", "dt_ms", "route", "usage")
    ID_FIELD_NUMBER: _ClassVar[int]
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    FRAMES_FIELD_NUMBER: _ClassVar[int]
    DT_MS_FIELD_NUMBER: _ClassVar[int]
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    id: str
    object: str
    created: int
    model: str
    frames: _containers.RepeatedCompositeFieldContainer[_prediction_pb2.PredictedFrame]
    dt_ms: float
    route: _route_pb2.Route
    usage: PredictUsage
    def __init__(self, id: _Optional[str] = ..., object: _Optional[str] = ..., created: _Optional[int] = ..., model: _Optional[str] = ..., frames: _Optional[_Iterable[_Union[_prediction_pb2.PredictedFrame, _Mapping]]] = ..., dt_ms: _Optional[float] = ..., route: _Optional[_Union[_route_pb2.Route, _Mapping]] = ..., usage: _Optional[_Union[PredictUsage, _Mapping]] = ...) -> None: ...

class PredictUsage(_message.Message):
    __slots__ = ("frames", "gpu_seconds", "cost_usd")
    FRAMES_FIELD_NUMBER: _ClassVar[int]
    GPU_SECONDS_FIELD_NUMBER: _ClassVar[int]
    COST_USD_FIELD_NUMBER: _ClassVar[int]
    frames: int
    gpu_seconds: float
    cost_usd: float
    def __init__(self, frames: _Optional[int] = ..., gpu_seconds: _Optional[float] = ..., cost_usd: _Optional[float] = ...) -> None: ...

class PredictStreamRequest(_message.Message):
    __slots__ = ("predict",)
    PREDICT_FIELD_NUMBER: _ClassVar[int]
    predict: PredictRequest
    def __init__(self, predict: _Optional[_Union[PredictRequest, _Mapping]] = ...) -> None: ...

class PredictStreamResponse(_message.Message):
    __slots__ = ("route", "frame", "done")
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    FRAME_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    route: PredictStarted
    frame: _prediction_pb2.PredictedFrame
    done: PredictDone
    def __init__(self, route: _Optional[_Union[PredictStarted, _Mapping]] = ..., frame: _Optional[_Union[_prediction_pb2.PredictedFrame, _Mapping]] = ..., done: _Optional[_Union[PredictDone, _Mapping]] = ...) -> None: ...

class PredictStarted(_message.Message):
    __slots__ = ("id", "created", "model", "region", "precision", "attempts", "fallback_used", "simulated", "provider", "offering_id", "estimated_cost_usd", "deadline_at")
    ID_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    REGION_FIELD_NUMBER: _ClassVar[int]
    PRECISION_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    FALLBACK_USED_FIELD_NUMBER: _ClassVar[int]
    SIMULATED_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    OFFERING_ID_FIELD_NUMBER: _ClassVar[int]
    ESTIMATED_COST_USD_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_AT_FIELD_NUMBER: _ClassVar[int]
    id: str
    created: int
    model: str
    region: str
    precision: str
    attempts: _containers.RepeatedCompositeFieldContainer[_route_pb2.Attempt]
    fallback_used: bool
    simulated: bool
    provider: str
    offering_id: str
    estimated_cost_usd: float
    deadline_at: float
    def __init__(self, id: _Optional[str] = ..., created: _Optional[int] = ..., model: _Optional[str] = ..., region: _Optional[str] = ..., precision: _Optional[str] = ..., attempts: _Optional[_Iterable[_Union[_route_pb2.Attempt, _Mapping]]] = ..., fallback_used: _Optional[bool] = ..., simulated: _Optional[bool] = ..., provider: _Optional[str] = ..., offering_id: _Optional[str] = ..., estimated_cost_usd: _Optional[float] = ..., deadline_at: _Optional[float] = ...) -> None: ...

class PredictDone(_message.Message):
    __slots__ = ("id", "object", "frames", "finish_reason", "route", "usage")
    ID_FIELD_NUMBER: _ClassVar[int]
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    FRAMES_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    id: str
    object: str
    frames: int
    finish_reason: FinishReason
    route: _route_pb2.Route
    usage: PredictUsage
    def __init__(self, id: _Optional[str] = ..., object: _Optional[str] = ..., frames: _Optional[int] = ..., finish_reason: _Optional[_Union[FinishReason, str]] = ..., route: _Optional[_Union[_route_pb2.Route, _Mapping]] = ..., usage: _Optional[_Union[PredictUsage, _Mapping]] = ...) -> None: ...

class GroundRequest(_message.Message):
    __slots__ = ("observations", "instruction", "model", "metadata", "provider", "preset")
    OBSERVATIONS_FIELD_NUMBER: _ClassVar[int]
    INSTRUCTION_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    PRESET_FIELD_NUMBER: _ClassVar[int]
    observations: _containers.RepeatedCompositeFieldContainer[_observation_pb2.Observation]
    instruction: str
    model: str
    metadata: _struct_pb2.Struct
    provider: _preferences_pb2.ProviderPreferences
    preset: str
    def __init__(self, observations: _Optional[_Iterable[_Union[_observation_pb2.Observation, _Mapping]]] = ..., instruction: _Optional[str] = ..., model: _Optional[str] = ..., metadata: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., provider: _Optional[_Union[_preferences_pb2.ProviderPreferences, _Mapping]] = ..., preset: _Optional[str] = ...) -> None: ...

class GroundResponse(_message.Message):
    __slots__ = ("id", "object", "created", "model", "points", "boxes", "route", "usage", "note")
    ID_FIELD_NUMBER: _ClassVar[int]
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    POINTS_FIELD_NUMBER: _ClassVar[int]
    BOXES_FIELD_NUMBER: _ClassVar[int]
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    id: str
    object: str
    created: int
    model: str
    points: _containers.RepeatedCompositeFieldContainer[_grounding_pb2.GroundedPoint]
    boxes: _containers.RepeatedCompositeFieldContainer[_grounding_pb2.GroundedBox]
    route: _route_pb2.DirectRoute
    usage: GroundUsage
    note: str
    def __init__(self, id: _Optional[str] = ..., object: _Optional[str] = ..., created: _Optional[int] = ..., model: _Optional[str] = ..., points: _Optional[_Iterable[_Union[_grounding_pb2.GroundedPoint, _Mapping]]] = ..., boxes: _Optional[_Iterable[_Union[_grounding_pb2.GroundedBox, _Mapping]]] = ..., route: _Optional[_Union[_route_pb2.DirectRoute, _Mapping]] = ..., usage: _Optional[_Union[GroundUsage, _Mapping]] = ..., note: _Optional[str] = ...) -> None: ...

class GroundUsage(_message.Message):
    __slots__ = ("input_tokens", "output_tokens", "cost_usd")
    INPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    COST_USD_FIELD_NUMBER: _ClassVar[int]
    input_tokens: int
    output_tokens: int
    cost_usd: float
    def __init__(self, input_tokens: _Optional[int] = ..., output_tokens: _Optional[int] = ..., cost_usd: _Optional[float] = ...) -> None: ...

class PreviewRoutesRequest(_message.Message):
    __slots__ = ("contract", "request")
    CONTRACT_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    contract: _contract_pb2.Contract
    request: PreviewedRequest
    def __init__(self, contract: _Optional[_Union[_contract_pb2.Contract, str]] = ..., request: _Optional[_Union[PreviewedRequest, _Mapping]] = ...) -> None: ...

class PreviewedRequest(_message.Message):
    __slots__ = ("model", "observations", "models", "preference", "provider", "seed", "stream", "preset", "metadata", "idempotency_key", "instruction", "goal_image", "action_space", "horizon", "temperature", "actions", "fps", "resolution", "num_samples", "return_prediction", "embodiment", "whole_chunk")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    OBSERVATIONS_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    PREFERENCE_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    PRESET_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    INSTRUCTION_FIELD_NUMBER: _ClassVar[int]
    GOAL_IMAGE_FIELD_NUMBER: _ClassVar[int]
    ACTION_SPACE_FIELD_NUMBER: _ClassVar[int]
    HORIZON_FIELD_NUMBER: _ClassVar[int]
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    ACTIONS_FIELD_NUMBER: _ClassVar[int]
    FPS_FIELD_NUMBER: _ClassVar[int]
    RESOLUTION_FIELD_NUMBER: _ClassVar[int]
    NUM_SAMPLES_FIELD_NUMBER: _ClassVar[int]
    RETURN_PREDICTION_FIELD_NUMBER: _ClassVar[int]
    EMBODIMENT_FIELD_NUMBER: _ClassVar[int]
    WHOLE_CHUNK_FIELD_NUMBER: _ClassVar[int]
    model: str
    observations: _containers.RepeatedCompositeFieldContainer[_observation_pb2.Observation]
    models: _containers.RepeatedScalarFieldContainer[str]
    preference: _preferences_pb2.Preference
    provider: _preferences_pb2.ProviderPreferences
    seed: float
    stream: bool
    preset: str
    metadata: _struct_pb2.Struct
    idempotency_key: str
    instruction: str
    goal_image: _observation_pb2.Frame
    action_space: str
    horizon: int
    temperature: float
    actions: _containers.RepeatedCompositeFieldContainer[_action_pb2.ActionStep]
    fps: float
    resolution: str
    num_samples: int
    return_prediction: bool
    embodiment: _registry_pb2.Embodiment
    whole_chunk: bool
    def __init__(self, model: _Optional[str] = ..., observations: _Optional[_Iterable[_Union[_observation_pb2.Observation, _Mapping]]] = ..., models: _Optional[_Iterable[str]] = ..., preference: _Optional[_Union[_preferences_pb2.Preference, str]] = ..., provider: _Optional[_Union[_preferences_pb2.ProviderPreferences, _Mapping]] = ..., seed: _Optional[float] = ..., stream: _Optional[bool] = ..., preset: _Optional[str] = ..., metadata: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., idempotency_key: _Optional[str] = ..., instruction: _Optional[str] = ..., goal_image: _Optional[_Union[_observation_pb2.Frame, _Mapping]] = ..., action_space: _Optional[str] = ..., horizon: _Optional[int] = ..., temperature: _Optional[float] = ..., actions: _Optional[_Iterable[_Union[_action_pb2.ActionStep, _Mapping]]] = ..., fps: _Optional[float] = ..., resolution: _Optional[str] = ..., num_samples: _Optional[int] = ..., return_prediction: _Optional[bool] = ..., embodiment: _Optional[_Union[_registry_pb2.Embodiment, str]] = ..., whole_chunk: _Optional[bool] = ...) -> None: ...

class PreviewRoutesResponse(_message.Message):
    __slots__ = ("object", "contract", "considered", "plan", "dropped", "estimated_cost_usd", "pinned", "would_refuse")
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    CONTRACT_FIELD_NUMBER: _ClassVar[int]
    CONSIDERED_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    ESTIMATED_COST_USD_FIELD_NUMBER: _ClassVar[int]
    PINNED_FIELD_NUMBER: _ClassVar[int]
    WOULD_REFUSE_FIELD_NUMBER: _ClassVar[int]
    object: str
    contract: _contract_pb2.Contract
    considered: int
    plan: _containers.RepeatedCompositeFieldContainer[_plan_pb2.PlanStep]
    dropped: _containers.RepeatedCompositeFieldContainer[_plan_pb2.DroppedOffering]
    estimated_cost_usd: CostRange
    pinned: bool
    would_refuse: WouldRefuse
    def __init__(self, object: _Optional[str] = ..., contract: _Optional[_Union[_contract_pb2.Contract, str]] = ..., considered: _Optional[int] = ..., plan: _Optional[_Iterable[_Union[_plan_pb2.PlanStep, _Mapping]]] = ..., dropped: _Optional[_Iterable[_Union[_plan_pb2.DroppedOffering, _Mapping]]] = ..., estimated_cost_usd: _Optional[_Union[CostRange, _Mapping]] = ..., pinned: _Optional[bool] = ..., would_refuse: _Optional[_Union[WouldRefuse, _Mapping]] = ...) -> None: ...

class CostRange(_message.Message):
    __slots__ = ("min", "expected", "max")
    MIN_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_FIELD_NUMBER: _ClassVar[int]
    MAX_FIELD_NUMBER: _ClassVar[int]
    min: float
    expected: float
    max: float
    def __init__(self, min: _Optional[float] = ..., expected: _Optional[float] = ..., max: _Optional[float] = ...) -> None: ...

class WouldRefuse(_message.Message):
    __slots__ = ("code",)
    CODE_FIELD_NUMBER: _ClassVar[int]
    code: str
    def __init__(self, code: _Optional[str] = ...) -> None: ...
