from limber._gen.limber.v1 import action_pb2 as _action_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Arming(_message.Message):
    __slots__ = ("id", "object", "robot_id", "key_id", "client_id", "models", "bounds", "max_seconds", "created", "created_by", "ends", "ended", "ended_why", "stands")
    ID_FIELD_NUMBER: _ClassVar[int]
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    ROBOT_ID_FIELD_NUMBER: _ClassVar[int]
    KEY_ID_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    BOUNDS_FIELD_NUMBER: _ClassVar[int]
    MAX_SECONDS_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    CREATED_BY_FIELD_NUMBER: _ClassVar[int]
    ENDS_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    ENDED_WHY_FIELD_NUMBER: _ClassVar[int]
    STANDS_FIELD_NUMBER: _ClassVar[int]
    id: str
    object: str
    robot_id: str
    key_id: str
    client_id: str
    models: _containers.RepeatedScalarFieldContainer[str]
    bounds: _action_pb2.SafetyBounds
    max_seconds: int
    created: int
    created_by: str
    ends: int
    ended: int
    ended_why: str
    stands: bool
    def __init__(self, id: _Optional[str] = ..., object: _Optional[str] = ..., robot_id: _Optional[str] = ..., key_id: _Optional[str] = ..., client_id: _Optional[str] = ..., models: _Optional[_Iterable[str]] = ..., bounds: _Optional[_Union[_action_pb2.SafetyBounds, _Mapping]] = ..., max_seconds: _Optional[int] = ..., created: _Optional[int] = ..., created_by: _Optional[str] = ..., ends: _Optional[int] = ..., ended: _Optional[int] = ..., ended_why: _Optional[str] = ..., stands: _Optional[bool] = ...) -> None: ...

class PolicyRun(_message.Message):
    __slots__ = ("id", "object", "robot_id", "arming_id", "key_id", "model", "instruction", "max_seconds", "created", "started", "ended", "why", "chunks", "holds", "cost_usd")
    ID_FIELD_NUMBER: _ClassVar[int]
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    ROBOT_ID_FIELD_NUMBER: _ClassVar[int]
    ARMING_ID_FIELD_NUMBER: _ClassVar[int]
    KEY_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    INSTRUCTION_FIELD_NUMBER: _ClassVar[int]
    MAX_SECONDS_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    CHUNKS_FIELD_NUMBER: _ClassVar[int]
    HOLDS_FIELD_NUMBER: _ClassVar[int]
    COST_USD_FIELD_NUMBER: _ClassVar[int]
    id: str
    object: str
    robot_id: str
    arming_id: str
    key_id: str
    model: str
    instruction: str
    max_seconds: int
    created: int
    started: int
    ended: int
    why: str
    chunks: int
    holds: int
    cost_usd: float
    def __init__(self, id: _Optional[str] = ..., object: _Optional[str] = ..., robot_id: _Optional[str] = ..., arming_id: _Optional[str] = ..., key_id: _Optional[str] = ..., model: _Optional[str] = ..., instruction: _Optional[str] = ..., max_seconds: _Optional[int] = ..., created: _Optional[int] = ..., started: _Optional[int] = ..., ended: _Optional[int] = ..., why: _Optional[str] = ..., chunks: _Optional[int] = ..., holds: _Optional[int] = ..., cost_usd: _Optional[float] = ...) -> None: ...
