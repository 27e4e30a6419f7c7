from google.protobuf import struct_pb2 as _struct_pb2
from limber._gen.limber.v1 import action_pb2 as _action_pb2
from limber._gen.limber.v1 import inference_pb2 as _inference_pb2
from limber._gen.limber.v1 import input_contract_pb2 as _input_contract_pb2
from limber._gen.limber.v1 import observation_pb2 as _observation_pb2
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

class HoldReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    HOLD_REASON_UNSPECIFIED: _ClassVar[HoldReason]
    HOLD_REASON_LATE: _ClassVar[HoldReason]
    HOLD_REASON_UPSTREAM_FAILED: _ClassVar[HoldReason]
    HOLD_REASON_NO_PROVIDER: _ClassVar[HoldReason]
    HOLD_REASON_OUT_OF_BOUNDS: _ClassVar[HoldReason]
    HOLD_REASON_INVALID_OBSERVATION: _ClassVar[HoldReason]
    HOLD_REASON_STALE_OBSERVATION: _ClassVar[HoldReason]
    HOLD_REASON_SLOW_READER: _ClassVar[HoldReason]
    HOLD_REASON_NOT_RECORDED: _ClassVar[HoldReason]
    HOLD_REASON_RATE_LIMITED: _ClassVar[HoldReason]
HOLD_REASON_UNSPECIFIED: HoldReason
HOLD_REASON_LATE: HoldReason
HOLD_REASON_UPSTREAM_FAILED: HoldReason
HOLD_REASON_NO_PROVIDER: HoldReason
HOLD_REASON_OUT_OF_BOUNDS: HoldReason
HOLD_REASON_INVALID_OBSERVATION: HoldReason
HOLD_REASON_STALE_OBSERVATION: HoldReason
HOLD_REASON_SLOW_READER: HoldReason
HOLD_REASON_NOT_RECORDED: HoldReason
HOLD_REASON_RATE_LIMITED: HoldReason

class LoopOpen(_message.Message):
    __slots__ = ("model", "models", "preference", "provider", "seed", "preset", "metadata", "instruction", "goal_image", "action_space", "horizon", "temperature", "bounds", "robot_id", "embodiment", "episode")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    PREFERENCE_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    PRESET_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    INSTRUCTION_FIELD_NUMBER: _ClassVar[int]
    GOAL_IMAGE_FIELD_NUMBER: _ClassVar[int]
    ACTION_SPACE_FIELD_NUMBER: _ClassVar[int]
    HORIZON_FIELD_NUMBER: _ClassVar[int]
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    BOUNDS_FIELD_NUMBER: _ClassVar[int]
    ROBOT_ID_FIELD_NUMBER: _ClassVar[int]
    EMBODIMENT_FIELD_NUMBER: _ClassVar[int]
    EPISODE_FIELD_NUMBER: _ClassVar[int]
    model: str
    models: _containers.RepeatedScalarFieldContainer[str]
    preference: _preferences_pb2.Preference
    provider: _preferences_pb2.ProviderPreferences
    seed: float
    preset: str
    metadata: _struct_pb2.Struct
    instruction: str
    goal_image: _observation_pb2.Frame
    action_space: str
    horizon: int
    temperature: float
    bounds: _action_pb2.SafetyBounds
    robot_id: str
    embodiment: _registry_pb2.Embodiment
    episode: int
    def __init__(self, model: _Optional[str] = ..., models: _Optional[_Iterable[str]] = ..., preference: _Optional[_Union[_preferences_pb2.Preference, str]] = ..., provider: _Optional[_Union[_preferences_pb2.ProviderPreferences, _Mapping]] = ..., seed: _Optional[float] = ..., preset: _Optional[str] = ..., metadata: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., instruction: _Optional[str] = ..., goal_image: _Optional[_Union[_observation_pb2.Frame, _Mapping]] = ..., action_space: _Optional[str] = ..., horizon: _Optional[int] = ..., temperature: _Optional[float] = ..., bounds: _Optional[_Union[_action_pb2.SafetyBounds, _Mapping]] = ..., robot_id: _Optional[str] = ..., embodiment: _Optional[_Union[_registry_pb2.Embodiment, str]] = ..., episode: _Optional[int] = ...) -> None: ...

class LoopObservation(_message.Message):
    __slots__ = ("step", "observations", "instruction", "prev_chunk_left_over", "inference_delay")
    STEP_FIELD_NUMBER: _ClassVar[int]
    OBSERVATIONS_FIELD_NUMBER: _ClassVar[int]
    INSTRUCTION_FIELD_NUMBER: _ClassVar[int]
    PREV_CHUNK_LEFT_OVER_FIELD_NUMBER: _ClassVar[int]
    INFERENCE_DELAY_FIELD_NUMBER: _ClassVar[int]
    step: int
    observations: _containers.RepeatedCompositeFieldContainer[_observation_pb2.Observation]
    instruction: str
    prev_chunk_left_over: _containers.RepeatedCompositeFieldContainer[_action_pb2.ActionStep]
    inference_delay: int
    def __init__(self, step: _Optional[int] = ..., observations: _Optional[_Iterable[_Union[_observation_pb2.Observation, _Mapping]]] = ..., instruction: _Optional[str] = ..., prev_chunk_left_over: _Optional[_Iterable[_Union[_action_pb2.ActionStep, _Mapping]]] = ..., inference_delay: _Optional[int] = ...) -> None: ...

class LoopReset(_message.Message):
    __slots__ = ("instruction", "episode")
    INSTRUCTION_FIELD_NUMBER: _ClassVar[int]
    EPISODE_FIELD_NUMBER: _ClassVar[int]
    instruction: str
    episode: int
    def __init__(self, instruction: _Optional[str] = ..., episode: _Optional[int] = ...) -> None: ...

class LoopClose(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class LoopOpened(_message.Message):
    __slots__ = ("id", "created", "route", "dt_ms", "horizon", "deadline_ms", "chunk_cost_usd", "resumed", "resumed_step", "episode", "input", "actions")
    ID_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    DT_MS_FIELD_NUMBER: _ClassVar[int]
    HORIZON_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_MS_FIELD_NUMBER: _ClassVar[int]
    CHUNK_COST_USD_FIELD_NUMBER: _ClassVar[int]
    RESUMED_FIELD_NUMBER: _ClassVar[int]
    RESUMED_STEP_FIELD_NUMBER: _ClassVar[int]
    EPISODE_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    ACTIONS_FIELD_NUMBER: _ClassVar[int]
    id: str
    created: int
    route: _route_pb2.Route
    dt_ms: int
    horizon: int
    deadline_ms: int
    chunk_cost_usd: float
    resumed: bool
    resumed_step: int
    episode: int
    input: _input_contract_pb2.InputContract
    actions: _input_contract_pb2.ActionMeaning
    def __init__(self, id: _Optional[str] = ..., created: _Optional[int] = ..., route: _Optional[_Union[_route_pb2.Route, _Mapping]] = ..., dt_ms: _Optional[int] = ..., horizon: _Optional[int] = ..., deadline_ms: _Optional[int] = ..., chunk_cost_usd: _Optional[float] = ..., resumed: _Optional[bool] = ..., resumed_step: _Optional[int] = ..., episode: _Optional[int] = ..., input: _Optional[_Union[_input_contract_pb2.InputContract, _Mapping]] = ..., actions: _Optional[_Union[_input_contract_pb2.ActionMeaning, _Mapping]] = ...) -> None: ...

class LoopEpisode(_message.Message):
    __slots__ = ("episode",)
    EPISODE_FIELD_NUMBER: _ClassVar[int]
    episode: int
    def __init__(self, episode: _Optional[int] = ...) -> None: ...

class LoopChunk(_message.Message):
    __slots__ = ("chunk_id", "action", "start_step", "valid_until_step", "observation_time", "observation_age_ms", "route", "episode_break", "usage", "dropped_observations", "replayed", "episode")
    CHUNK_ID_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    START_STEP_FIELD_NUMBER: _ClassVar[int]
    VALID_UNTIL_STEP_FIELD_NUMBER: _ClassVar[int]
    OBSERVATION_TIME_FIELD_NUMBER: _ClassVar[int]
    OBSERVATION_AGE_MS_FIELD_NUMBER: _ClassVar[int]
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    EPISODE_BREAK_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    DROPPED_OBSERVATIONS_FIELD_NUMBER: _ClassVar[int]
    REPLAYED_FIELD_NUMBER: _ClassVar[int]
    EPISODE_FIELD_NUMBER: _ClassVar[int]
    chunk_id: str
    action: _action_pb2.Action
    start_step: int
    valid_until_step: int
    observation_time: float
    observation_age_ms: float
    route: _route_pb2.Route
    episode_break: bool
    usage: _inference_pb2.ActUsage
    dropped_observations: int
    replayed: bool
    episode: int
    def __init__(self, chunk_id: _Optional[str] = ..., action: _Optional[_Union[_action_pb2.Action, _Mapping]] = ..., start_step: _Optional[int] = ..., valid_until_step: _Optional[int] = ..., observation_time: _Optional[float] = ..., observation_age_ms: _Optional[float] = ..., route: _Optional[_Union[_route_pb2.Route, _Mapping]] = ..., episode_break: _Optional[bool] = ..., usage: _Optional[_Union[_inference_pb2.ActUsage, _Mapping]] = ..., dropped_observations: _Optional[int] = ..., replayed: _Optional[bool] = ..., episode: _Optional[int] = ...) -> None: ...

class LoopHold(_message.Message):
    __slots__ = ("step", "reason", "observation_age_ms", "detail", "route", "dropped_observations", "episode")
    STEP_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    OBSERVATION_AGE_MS_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    DROPPED_OBSERVATIONS_FIELD_NUMBER: _ClassVar[int]
    EPISODE_FIELD_NUMBER: _ClassVar[int]
    step: int
    reason: HoldReason
    observation_age_ms: float
    detail: str
    route: _route_pb2.Route
    dropped_observations: int
    episode: int
    def __init__(self, step: _Optional[int] = ..., reason: _Optional[_Union[HoldReason, str]] = ..., observation_age_ms: _Optional[float] = ..., detail: _Optional[str] = ..., route: _Optional[_Union[_route_pb2.Route, _Mapping]] = ..., dropped_observations: _Optional[int] = ..., episode: _Optional[int] = ...) -> None: ...

class LoopEnded(_message.Message):
    __slots__ = ("code", "chunks", "holds", "dropped_observations", "usage", "effective_hz", "stale_ratio", "jitter_ms")
    CODE_FIELD_NUMBER: _ClassVar[int]
    CHUNKS_FIELD_NUMBER: _ClassVar[int]
    HOLDS_FIELD_NUMBER: _ClassVar[int]
    DROPPED_OBSERVATIONS_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    EFFECTIVE_HZ_FIELD_NUMBER: _ClassVar[int]
    STALE_RATIO_FIELD_NUMBER: _ClassVar[int]
    JITTER_MS_FIELD_NUMBER: _ClassVar[int]
    code: str
    chunks: int
    holds: int
    dropped_observations: int
    usage: _inference_pb2.ActUsage
    effective_hz: float
    stale_ratio: float
    jitter_ms: float
    def __init__(self, code: _Optional[str] = ..., chunks: _Optional[int] = ..., holds: _Optional[int] = ..., dropped_observations: _Optional[int] = ..., usage: _Optional[_Union[_inference_pb2.ActUsage, _Mapping]] = ..., effective_hz: _Optional[float] = ..., stale_ratio: _Optional[float] = ..., jitter_ms: _Optional[float] = ...) -> None: ...
