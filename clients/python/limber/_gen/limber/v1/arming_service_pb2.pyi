from limber._gen.limber.v1 import action_pb2 as _action_pb2
from limber._gen.limber.v1 import arming_pb2 as _arming_pb2
from limber._gen.limber.v1 import control_loop_pb2 as _control_loop_pb2
from limber._gen.limber.v1 import registry_pb2 as _registry_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ArmRobotRequest(_message.Message):
    __slots__ = ("robot_id", "key_id", "client_id", "models", "bounds", "max_seconds", "expires_in")
    ROBOT_ID_FIELD_NUMBER: _ClassVar[int]
    KEY_ID_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    BOUNDS_FIELD_NUMBER: _ClassVar[int]
    MAX_SECONDS_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_IN_FIELD_NUMBER: _ClassVar[int]
    robot_id: str
    key_id: str
    client_id: str
    models: _containers.RepeatedScalarFieldContainer[str]
    bounds: _action_pb2.SafetyBounds
    max_seconds: int
    expires_in: int
    def __init__(self, robot_id: _Optional[str] = ..., key_id: _Optional[str] = ..., client_id: _Optional[str] = ..., models: _Optional[_Iterable[str]] = ..., bounds: _Optional[_Union[_action_pb2.SafetyBounds, _Mapping]] = ..., max_seconds: _Optional[int] = ..., expires_in: _Optional[int] = ...) -> None: ...

class ArmRobotResponse(_message.Message):
    __slots__ = ("arming",)
    ARMING_FIELD_NUMBER: _ClassVar[int]
    arming: _arming_pb2.Arming
    def __init__(self, arming: _Optional[_Union[_arming_pb2.Arming, _Mapping]] = ...) -> None: ...

class DisarmRobotRequest(_message.Message):
    __slots__ = ("arming_id",)
    ARMING_ID_FIELD_NUMBER: _ClassVar[int]
    arming_id: str
    def __init__(self, arming_id: _Optional[str] = ...) -> None: ...

class DisarmRobotResponse(_message.Message):
    __slots__ = ("arming",)
    ARMING_FIELD_NUMBER: _ClassVar[int]
    arming: _arming_pb2.Arming
    def __init__(self, arming: _Optional[_Union[_arming_pb2.Arming, _Mapping]] = ...) -> None: ...

class ListArmingsRequest(_message.Message):
    __slots__ = ("ended", "limit", "cursor")
    ENDED_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    ended: bool
    limit: int
    cursor: str
    def __init__(self, ended: _Optional[bool] = ..., limit: _Optional[int] = ..., cursor: _Optional[str] = ...) -> None: ...

class ListArmingsResponse(_message.Message):
    __slots__ = ("object", "data", "has_more", "next_cursor")
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_FIELD_NUMBER: _ClassVar[int]
    NEXT_CURSOR_FIELD_NUMBER: _ClassVar[int]
    object: str
    data: _containers.RepeatedCompositeFieldContainer[_arming_pb2.Arming]
    has_more: bool
    next_cursor: str
    def __init__(self, object: _Optional[str] = ..., data: _Optional[_Iterable[_Union[_arming_pb2.Arming, _Mapping]]] = ..., has_more: _Optional[bool] = ..., next_cursor: _Optional[str] = ...) -> None: ...

class RunPolicyRequest(_message.Message):
    __slots__ = ("robot_id", "model", "instruction", "max_seconds", "wait_s")
    ROBOT_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    INSTRUCTION_FIELD_NUMBER: _ClassVar[int]
    MAX_SECONDS_FIELD_NUMBER: _ClassVar[int]
    WAIT_S_FIELD_NUMBER: _ClassVar[int]
    robot_id: str
    model: str
    instruction: str
    max_seconds: int
    wait_s: int
    def __init__(self, robot_id: _Optional[str] = ..., model: _Optional[str] = ..., instruction: _Optional[str] = ..., max_seconds: _Optional[int] = ..., wait_s: _Optional[int] = ...) -> None: ...

class RunPolicyResponse(_message.Message):
    __slots__ = ("run",)
    RUN_FIELD_NUMBER: _ClassVar[int]
    run: _arming_pb2.PolicyRun
    def __init__(self, run: _Optional[_Union[_arming_pb2.PolicyRun, _Mapping]] = ...) -> None: ...

class GetRunRequest(_message.Message):
    __slots__ = ("run_id",)
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    def __init__(self, run_id: _Optional[str] = ...) -> None: ...

class GetRunResponse(_message.Message):
    __slots__ = ("run",)
    RUN_FIELD_NUMBER: _ClassVar[int]
    run: _arming_pb2.PolicyRun
    def __init__(self, run: _Optional[_Union[_arming_pb2.PolicyRun, _Mapping]] = ...) -> None: ...

class CancelRunRequest(_message.Message):
    __slots__ = ("run_id",)
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    def __init__(self, run_id: _Optional[str] = ...) -> None: ...

class CancelRunResponse(_message.Message):
    __slots__ = ("run",)
    RUN_FIELD_NUMBER: _ClassVar[int]
    run: _arming_pb2.PolicyRun
    def __init__(self, run: _Optional[_Union[_arming_pb2.PolicyRun, _Mapping]] = ...) -> None: ...

class AttendRobotRequest(_message.Message):
    __slots__ = ("open", "observation", "close")
    OPEN_FIELD_NUMBER: _ClassVar[int]
    OBSERVATION_FIELD_NUMBER: _ClassVar[int]
    CLOSE_FIELD_NUMBER: _ClassVar[int]
    open: AttendOpen
    observation: _control_loop_pb2.LoopObservation
    close: _control_loop_pb2.LoopClose
    def __init__(self, open: _Optional[_Union[AttendOpen, _Mapping]] = ..., observation: _Optional[_Union[_control_loop_pb2.LoopObservation, _Mapping]] = ..., close: _Optional[_Union[_control_loop_pb2.LoopClose, _Mapping]] = ...) -> None: ...

class AttendOpen(_message.Message):
    __slots__ = ("robot_id", "action_space", "horizon", "deadline_ms", "bounds", "embodiment")
    ROBOT_ID_FIELD_NUMBER: _ClassVar[int]
    ACTION_SPACE_FIELD_NUMBER: _ClassVar[int]
    HORIZON_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_MS_FIELD_NUMBER: _ClassVar[int]
    BOUNDS_FIELD_NUMBER: _ClassVar[int]
    EMBODIMENT_FIELD_NUMBER: _ClassVar[int]
    robot_id: str
    action_space: str
    horizon: int
    deadline_ms: int
    bounds: _action_pb2.SafetyBounds
    embodiment: _registry_pb2.Embodiment
    def __init__(self, robot_id: _Optional[str] = ..., action_space: _Optional[str] = ..., horizon: _Optional[int] = ..., deadline_ms: _Optional[int] = ..., bounds: _Optional[_Union[_action_pb2.SafetyBounds, _Mapping]] = ..., embodiment: _Optional[_Union[_registry_pb2.Embodiment, str]] = ...) -> None: ...

class AttendRobotResponse(_message.Message):
    __slots__ = ("opened", "run", "chunk", "hold", "over")
    OPENED_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    HOLD_FIELD_NUMBER: _ClassVar[int]
    OVER_FIELD_NUMBER: _ClassVar[int]
    opened: AttendOpened
    run: RunStarted
    chunk: _control_loop_pb2.LoopChunk
    hold: _control_loop_pb2.LoopHold
    over: RunEnded
    def __init__(self, opened: _Optional[_Union[AttendOpened, _Mapping]] = ..., run: _Optional[_Union[RunStarted, _Mapping]] = ..., chunk: _Optional[_Union[_control_loop_pb2.LoopChunk, _Mapping]] = ..., hold: _Optional[_Union[_control_loop_pb2.LoopHold, _Mapping]] = ..., over: _Optional[_Union[RunEnded, _Mapping]] = ...) -> None: ...

class AttendOpened(_message.Message):
    __slots__ = ("id", "robot_id")
    ID_FIELD_NUMBER: _ClassVar[int]
    ROBOT_ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    robot_id: str
    def __init__(self, id: _Optional[str] = ..., robot_id: _Optional[str] = ...) -> None: ...

class RunStarted(_message.Message):
    __slots__ = ("run", "episode")
    RUN_FIELD_NUMBER: _ClassVar[int]
    EPISODE_FIELD_NUMBER: _ClassVar[int]
    run: _arming_pb2.PolicyRun
    episode: int
    def __init__(self, run: _Optional[_Union[_arming_pb2.PolicyRun, _Mapping]] = ..., episode: _Optional[int] = ...) -> None: ...

class RunEnded(_message.Message):
    __slots__ = ("run",)
    RUN_FIELD_NUMBER: _ClassVar[int]
    run: _arming_pb2.PolicyRun
    def __init__(self, run: _Optional[_Union[_arming_pb2.PolicyRun, _Mapping]] = ...) -> None: ...
