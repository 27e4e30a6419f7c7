from limber._gen.limber.v1 import robot_pb2 as _robot_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class StopRobotsRequest(_message.Message):
    __slots__ = ("org_id", "robot_id", "session_id", "key_id", "workspace_id", "all", "reason")
    ORG_ID_FIELD_NUMBER: _ClassVar[int]
    ROBOT_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    KEY_ID_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_ID_FIELD_NUMBER: _ClassVar[int]
    ALL_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    org_id: str
    robot_id: str
    session_id: str
    key_id: str
    workspace_id: str
    all: bool
    reason: str
    def __init__(self, org_id: _Optional[str] = ..., robot_id: _Optional[str] = ..., session_id: _Optional[str] = ..., key_id: _Optional[str] = ..., workspace_id: _Optional[str] = ..., all: _Optional[bool] = ..., reason: _Optional[str] = ...) -> None: ...

class StopRobotsResponse(_message.Message):
    __slots__ = ("stop",)
    STOP_FIELD_NUMBER: _ClassVar[int]
    stop: _robot_pb2.RobotStop
    def __init__(self, stop: _Optional[_Union[_robot_pb2.RobotStop, _Mapping]] = ...) -> None: ...

class ReleaseRobotsRequest(_message.Message):
    __slots__ = ("org_id", "stop_id", "robot_id", "session_id", "key_id", "workspace_id", "all")
    ORG_ID_FIELD_NUMBER: _ClassVar[int]
    STOP_ID_FIELD_NUMBER: _ClassVar[int]
    ROBOT_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    KEY_ID_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_ID_FIELD_NUMBER: _ClassVar[int]
    ALL_FIELD_NUMBER: _ClassVar[int]
    org_id: str
    stop_id: str
    robot_id: str
    session_id: str
    key_id: str
    workspace_id: str
    all: bool
    def __init__(self, org_id: _Optional[str] = ..., stop_id: _Optional[str] = ..., robot_id: _Optional[str] = ..., session_id: _Optional[str] = ..., key_id: _Optional[str] = ..., workspace_id: _Optional[str] = ..., all: _Optional[bool] = ...) -> None: ...

class ReleaseRobotsResponse(_message.Message):
    __slots__ = ("stop",)
    STOP_FIELD_NUMBER: _ClassVar[int]
    stop: _robot_pb2.RobotStop
    def __init__(self, stop: _Optional[_Union[_robot_pb2.RobotStop, _Mapping]] = ...) -> None: ...

class UpdateRobotStopRequest(_message.Message):
    __slots__ = ("stop_id", "reason")
    STOP_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    stop_id: str
    reason: str
    def __init__(self, stop_id: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class UpdateRobotStopResponse(_message.Message):
    __slots__ = ("stop",)
    STOP_FIELD_NUMBER: _ClassVar[int]
    stop: _robot_pb2.RobotStop
    def __init__(self, stop: _Optional[_Union[_robot_pb2.RobotStop, _Mapping]] = ...) -> None: ...

class ListRobotStopsRequest(_message.Message):
    __slots__ = ("org_id", "released", "limit", "cursor")
    ORG_ID_FIELD_NUMBER: _ClassVar[int]
    RELEASED_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    org_id: str
    released: bool
    limit: int
    cursor: str
    def __init__(self, org_id: _Optional[str] = ..., released: _Optional[bool] = ..., limit: _Optional[int] = ..., cursor: _Optional[str] = ...) -> None: ...

class ListRobotStopsResponse(_message.Message):
    __slots__ = ("object", "data", "has_more", "next_cursor")
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_FIELD_NUMBER: _ClassVar[int]
    NEXT_CURSOR_FIELD_NUMBER: _ClassVar[int]
    object: str
    data: _containers.RepeatedCompositeFieldContainer[_robot_pb2.RobotStop]
    has_more: bool
    next_cursor: str
    def __init__(self, object: _Optional[str] = ..., data: _Optional[_Iterable[_Union[_robot_pb2.RobotStop, _Mapping]]] = ..., has_more: _Optional[bool] = ..., next_cursor: _Optional[str] = ...) -> None: ...
