from limber._gen.limber.v1 import fleet_pb2 as _fleet_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PutRobotRequest(_message.Message):
    __slots__ = ("robot_id", "workspace_id", "config")
    ROBOT_ID_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_ID_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    robot_id: str
    workspace_id: str
    config: _fleet_pb2.RobotConfig
    def __init__(self, robot_id: _Optional[str] = ..., workspace_id: _Optional[str] = ..., config: _Optional[_Union[_fleet_pb2.RobotConfig, _Mapping]] = ...) -> None: ...

class PutRobotResponse(_message.Message):
    __slots__ = ("robot",)
    ROBOT_FIELD_NUMBER: _ClassVar[int]
    robot: _fleet_pb2.Robot
    def __init__(self, robot: _Optional[_Union[_fleet_pb2.Robot, _Mapping]] = ...) -> None: ...

class GetRobotRequest(_message.Message):
    __slots__ = ("robot_id", "workspace_id")
    ROBOT_ID_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_ID_FIELD_NUMBER: _ClassVar[int]
    robot_id: str
    workspace_id: str
    def __init__(self, robot_id: _Optional[str] = ..., workspace_id: _Optional[str] = ...) -> None: ...

class GetRobotResponse(_message.Message):
    __slots__ = ("robot",)
    ROBOT_FIELD_NUMBER: _ClassVar[int]
    robot: _fleet_pb2.Robot
    def __init__(self, robot: _Optional[_Union[_fleet_pb2.Robot, _Mapping]] = ...) -> None: ...

class ListRobotsRequest(_message.Message):
    __slots__ = ("workspace_id", "limit", "cursor")
    WORKSPACE_ID_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    workspace_id: str
    limit: int
    cursor: str
    def __init__(self, workspace_id: _Optional[str] = ..., limit: _Optional[int] = ..., cursor: _Optional[str] = ...) -> None: ...

class ListRobotsResponse(_message.Message):
    __slots__ = ("object", "data", "has_more", "next_cursor")
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_FIELD_NUMBER: _ClassVar[int]
    NEXT_CURSOR_FIELD_NUMBER: _ClassVar[int]
    object: str
    data: _containers.RepeatedCompositeFieldContainer[_fleet_pb2.Robot]
    has_more: bool
    next_cursor: str
    def __init__(self, object: _Optional[str] = ..., data: _Optional[_Iterable[_Union[_fleet_pb2.Robot, _Mapping]]] = ..., has_more: _Optional[bool] = ..., next_cursor: _Optional[str] = ...) -> None: ...

class DeleteRobotRequest(_message.Message):
    __slots__ = ("robot_id", "workspace_id")
    ROBOT_ID_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_ID_FIELD_NUMBER: _ClassVar[int]
    robot_id: str
    workspace_id: str
    def __init__(self, robot_id: _Optional[str] = ..., workspace_id: _Optional[str] = ...) -> None: ...

class DeleteRobotResponse(_message.Message):
    __slots__ = ("object", "id", "deleted")
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    DELETED_FIELD_NUMBER: _ClassVar[int]
    object: str
    id: str
    deleted: bool
    def __init__(self, object: _Optional[str] = ..., id: _Optional[str] = ..., deleted: _Optional[bool] = ...) -> None: ...

class CheckRobotRequest(_message.Message):
    __slots__ = ("robot_id", "workspace_id", "model", "limit")
    ROBOT_ID_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    robot_id: str
    workspace_id: str
    model: str
    limit: int
    def __init__(self, robot_id: _Optional[str] = ..., workspace_id: _Optional[str] = ..., model: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class CheckRobotResponse(_message.Message):
    __slots__ = ("object", "robot_id", "considered", "fit", "can_drive", "cannot_drive")
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    ROBOT_ID_FIELD_NUMBER: _ClassVar[int]
    CONSIDERED_FIELD_NUMBER: _ClassVar[int]
    FIT_FIELD_NUMBER: _ClassVar[int]
    CAN_DRIVE_FIELD_NUMBER: _ClassVar[int]
    CANNOT_DRIVE_FIELD_NUMBER: _ClassVar[int]
    object: str
    robot_id: str
    considered: int
    fit: int
    can_drive: _containers.RepeatedCompositeFieldContainer[_fleet_pb2.DrivingOffering]
    cannot_drive: _containers.RepeatedCompositeFieldContainer[_fleet_pb2.UnfitOffering]
    def __init__(self, object: _Optional[str] = ..., robot_id: _Optional[str] = ..., considered: _Optional[int] = ..., fit: _Optional[int] = ..., can_drive: _Optional[_Iterable[_Union[_fleet_pb2.DrivingOffering, _Mapping]]] = ..., cannot_drive: _Optional[_Iterable[_Union[_fleet_pb2.UnfitOffering, _Mapping]]] = ...) -> None: ...
