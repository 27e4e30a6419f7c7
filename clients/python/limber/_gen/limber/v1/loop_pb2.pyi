from limber._gen.limber.v1 import action_pb2 as _action_pb2
from limber._gen.limber.v1 import control_loop_pb2 as _control_loop_pb2
from limber._gen.limber.v1 import observation_pb2 as _observation_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class LoopState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LOOP_STATE_UNSPECIFIED: _ClassVar[LoopState]
    LOOP_STATE_RUNNING: _ClassVar[LoopState]
    LOOP_STATE_HOLDING: _ClassVar[LoopState]
    LOOP_STATE_WAITING: _ClassVar[LoopState]
LOOP_STATE_UNSPECIFIED: LoopState
LOOP_STATE_RUNNING: LoopState
LOOP_STATE_HOLDING: LoopState
LOOP_STATE_WAITING: LoopState

class RunningLoop(_message.Message):
    __slots__ = ("id", "object", "org_id", "workspace_id", "key_id", "robot_id", "session_id", "model_requested", "model", "provider", "offering_id", "precision", "region", "action_space", "deadline_ms", "dt_ms", "since", "state", "last_hold", "rate_hz", "average_hz", "worst_hz", "asked_hz", "age_p50_ms", "age_p99_ms", "chunks", "holds", "failovers", "hedges", "dropped_observations", "cost_usd", "episode", "revision")
    class HoldsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    ORG_ID_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_ID_FIELD_NUMBER: _ClassVar[int]
    KEY_ID_FIELD_NUMBER: _ClassVar[int]
    ROBOT_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_REQUESTED_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    OFFERING_ID_FIELD_NUMBER: _ClassVar[int]
    PRECISION_FIELD_NUMBER: _ClassVar[int]
    REGION_FIELD_NUMBER: _ClassVar[int]
    ACTION_SPACE_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_MS_FIELD_NUMBER: _ClassVar[int]
    DT_MS_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    LAST_HOLD_FIELD_NUMBER: _ClassVar[int]
    RATE_HZ_FIELD_NUMBER: _ClassVar[int]
    AVERAGE_HZ_FIELD_NUMBER: _ClassVar[int]
    WORST_HZ_FIELD_NUMBER: _ClassVar[int]
    ASKED_HZ_FIELD_NUMBER: _ClassVar[int]
    AGE_P50_MS_FIELD_NUMBER: _ClassVar[int]
    AGE_P99_MS_FIELD_NUMBER: _ClassVar[int]
    CHUNKS_FIELD_NUMBER: _ClassVar[int]
    HOLDS_FIELD_NUMBER: _ClassVar[int]
    FAILOVERS_FIELD_NUMBER: _ClassVar[int]
    HEDGES_FIELD_NUMBER: _ClassVar[int]
    DROPPED_OBSERVATIONS_FIELD_NUMBER: _ClassVar[int]
    COST_USD_FIELD_NUMBER: _ClassVar[int]
    EPISODE_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    id: str
    object: str
    org_id: str
    workspace_id: str
    key_id: str
    robot_id: str
    session_id: str
    model_requested: str
    model: str
    provider: str
    offering_id: str
    precision: str
    region: str
    action_space: str
    deadline_ms: float
    dt_ms: int
    since: int
    state: LoopState
    last_hold: _control_loop_pb2.HoldReason
    rate_hz: float
    average_hz: float
    worst_hz: float
    asked_hz: float
    age_p50_ms: float
    age_p99_ms: float
    chunks: int
    holds: _containers.ScalarMap[str, int]
    failovers: int
    hedges: int
    dropped_observations: int
    cost_usd: float
    episode: int
    revision: str
    def __init__(self, id: _Optional[str] = ..., object: _Optional[str] = ..., org_id: _Optional[str] = ..., workspace_id: _Optional[str] = ..., key_id: _Optional[str] = ..., robot_id: _Optional[str] = ..., session_id: _Optional[str] = ..., model_requested: _Optional[str] = ..., model: _Optional[str] = ..., provider: _Optional[str] = ..., offering_id: _Optional[str] = ..., precision: _Optional[str] = ..., region: _Optional[str] = ..., action_space: _Optional[str] = ..., deadline_ms: _Optional[float] = ..., dt_ms: _Optional[int] = ..., since: _Optional[int] = ..., state: _Optional[_Union[LoopState, str]] = ..., last_hold: _Optional[_Union[_control_loop_pb2.HoldReason, str]] = ..., rate_hz: _Optional[float] = ..., average_hz: _Optional[float] = ..., worst_hz: _Optional[float] = ..., asked_hz: _Optional[float] = ..., age_p50_ms: _Optional[float] = ..., age_p99_ms: _Optional[float] = ..., chunks: _Optional[int] = ..., holds: _Optional[_Mapping[str, int]] = ..., failovers: _Optional[int] = ..., hedges: _Optional[int] = ..., dropped_observations: _Optional[int] = ..., cost_usd: _Optional[float] = ..., episode: _Optional[int] = ..., revision: _Optional[str] = ...) -> None: ...

class RobotHistory(_message.Message):
    __slots__ = ("robot_id", "workspace_id", "minutes")
    ROBOT_ID_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_ID_FIELD_NUMBER: _ClassVar[int]
    MINUTES_FIELD_NUMBER: _ClassVar[int]
    robot_id: str
    workspace_id: str
    minutes: _containers.RepeatedCompositeFieldContainer[RobotMinute]
    def __init__(self, robot_id: _Optional[str] = ..., workspace_id: _Optional[str] = ..., minutes: _Optional[_Iterable[_Union[RobotMinute, _Mapping]]] = ...) -> None: ...

class RobotMinute(_message.Message):
    __slots__ = ("at", "chunks", "holds", "age_p50_ms", "age_p99_ms", "cost_usd")
    class HoldsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    AT_FIELD_NUMBER: _ClassVar[int]
    CHUNKS_FIELD_NUMBER: _ClassVar[int]
    HOLDS_FIELD_NUMBER: _ClassVar[int]
    AGE_P50_MS_FIELD_NUMBER: _ClassVar[int]
    AGE_P99_MS_FIELD_NUMBER: _ClassVar[int]
    COST_USD_FIELD_NUMBER: _ClassVar[int]
    at: int
    chunks: int
    holds: _containers.ScalarMap[str, int]
    age_p50_ms: float
    age_p99_ms: float
    cost_usd: float
    def __init__(self, at: _Optional[int] = ..., chunks: _Optional[int] = ..., holds: _Optional[_Mapping[str, int]] = ..., age_p50_ms: _Optional[float] = ..., age_p99_ms: _Optional[float] = ..., cost_usd: _Optional[float] = ...) -> None: ...

class LoopAction(_message.Message):
    __slots__ = ("loop_id", "action", "start_step", "valid_until_step", "age_ms", "episode", "bounds")
    LOOP_ID_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    START_STEP_FIELD_NUMBER: _ClassVar[int]
    VALID_UNTIL_STEP_FIELD_NUMBER: _ClassVar[int]
    AGE_MS_FIELD_NUMBER: _ClassVar[int]
    EPISODE_FIELD_NUMBER: _ClassVar[int]
    BOUNDS_FIELD_NUMBER: _ClassVar[int]
    loop_id: str
    action: _action_pb2.Action
    start_step: int
    valid_until_step: int
    age_ms: float
    episode: int
    bounds: _action_pb2.SafetyBounds
    def __init__(self, loop_id: _Optional[str] = ..., action: _Optional[_Union[_action_pb2.Action, _Mapping]] = ..., start_step: _Optional[int] = ..., valid_until_step: _Optional[int] = ..., age_ms: _Optional[float] = ..., episode: _Optional[int] = ..., bounds: _Optional[_Union[_action_pb2.SafetyBounds, _Mapping]] = ...) -> None: ...

class LoopPicture(_message.Message):
    __slots__ = ("loop_id", "camera", "format", "data")
    LOOP_ID_FIELD_NUMBER: _ClassVar[int]
    CAMERA_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    loop_id: str
    camera: str
    format: _observation_pb2.ImageFormat
    data: bytes
    def __init__(self, loop_id: _Optional[str] = ..., camera: _Optional[str] = ..., format: _Optional[_Union[_observation_pb2.ImageFormat, str]] = ..., data: _Optional[bytes] = ...) -> None: ...
