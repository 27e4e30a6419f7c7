from limber._gen.limber.v1 import loop_pb2 as _loop_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ListLoopsRequest(_message.Message):
    __slots__ = ("org_id", "workspace_id", "robot_id", "limit", "cursor")
    ORG_ID_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_ID_FIELD_NUMBER: _ClassVar[int]
    ROBOT_ID_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    org_id: str
    workspace_id: str
    robot_id: str
    limit: int
    cursor: str
    def __init__(self, org_id: _Optional[str] = ..., workspace_id: _Optional[str] = ..., robot_id: _Optional[str] = ..., limit: _Optional[int] = ..., cursor: _Optional[str] = ...) -> None: ...

class ListLoopsResponse(_message.Message):
    __slots__ = ("object", "data", "has_more", "next_cursor", "replicas", "silent_replicas")
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_FIELD_NUMBER: _ClassVar[int]
    NEXT_CURSOR_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    SILENT_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    object: str
    data: _containers.RepeatedCompositeFieldContainer[_loop_pb2.RunningLoop]
    has_more: bool
    next_cursor: str
    replicas: int
    silent_replicas: int
    def __init__(self, object: _Optional[str] = ..., data: _Optional[_Iterable[_Union[_loop_pb2.RunningLoop, _Mapping]]] = ..., has_more: _Optional[bool] = ..., next_cursor: _Optional[str] = ..., replicas: _Optional[int] = ..., silent_replicas: _Optional[int] = ...) -> None: ...

class QueryLoopHistoryRequest(_message.Message):
    __slots__ = ("org_id", "workspace_id", "robot_id", "minutes", "limit")
    ORG_ID_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_ID_FIELD_NUMBER: _ClassVar[int]
    ROBOT_ID_FIELD_NUMBER: _ClassVar[int]
    MINUTES_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    org_id: str
    workspace_id: str
    robot_id: str
    minutes: int
    limit: int
    def __init__(self, org_id: _Optional[str] = ..., workspace_id: _Optional[str] = ..., robot_id: _Optional[str] = ..., minutes: _Optional[int] = ..., limit: _Optional[int] = ...) -> None: ...

class QueryLoopHistoryResponse(_message.Message):
    __slots__ = ("object", "since", "until", "robots", "more")
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    ROBOTS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    object: str
    since: int
    until: int
    robots: _containers.RepeatedCompositeFieldContainer[_loop_pb2.RobotHistory]
    more: int
    def __init__(self, object: _Optional[str] = ..., since: _Optional[int] = ..., until: _Optional[int] = ..., robots: _Optional[_Iterable[_Union[_loop_pb2.RobotHistory, _Mapping]]] = ..., more: _Optional[int] = ...) -> None: ...

class WatchLoopsRequest(_message.Message):
    __slots__ = ("org_id", "workspace_id", "robot_id", "limit")
    ORG_ID_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_ID_FIELD_NUMBER: _ClassVar[int]
    ROBOT_ID_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    org_id: str
    workspace_id: str
    robot_id: str
    limit: int
    def __init__(self, org_id: _Optional[str] = ..., workspace_id: _Optional[str] = ..., robot_id: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class WatchLoopsResponse(_message.Message):
    __slots__ = ("snapshot", "change")
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    CHANGE_FIELD_NUMBER: _ClassVar[int]
    snapshot: LoopsSnapshot
    change: LoopsChange
    def __init__(self, snapshot: _Optional[_Union[LoopsSnapshot, _Mapping]] = ..., change: _Optional[_Union[LoopsChange, _Mapping]] = ...) -> None: ...

class LoopsSnapshot(_message.Message):
    __slots__ = ("loops", "more", "replicas", "silent_replicas")
    LOOPS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    SILENT_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    loops: _containers.RepeatedCompositeFieldContainer[_loop_pb2.RunningLoop]
    more: int
    replicas: int
    silent_replicas: int
    def __init__(self, loops: _Optional[_Iterable[_Union[_loop_pb2.RunningLoop, _Mapping]]] = ..., more: _Optional[int] = ..., replicas: _Optional[int] = ..., silent_replicas: _Optional[int] = ...) -> None: ...

class LoopsChange(_message.Message):
    __slots__ = ("loops", "ended", "more")
    LOOPS_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    loops: _containers.RepeatedCompositeFieldContainer[_loop_pb2.RunningLoop]
    ended: _containers.RepeatedScalarFieldContainer[str]
    more: int
    def __init__(self, loops: _Optional[_Iterable[_Union[_loop_pb2.RunningLoop, _Mapping]]] = ..., ended: _Optional[_Iterable[str]] = ..., more: _Optional[int] = ...) -> None: ...

class WatchLoopActionsRequest(_message.Message):
    __slots__ = ("org_id", "loop_ids")
    ORG_ID_FIELD_NUMBER: _ClassVar[int]
    LOOP_IDS_FIELD_NUMBER: _ClassVar[int]
    org_id: str
    loop_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, org_id: _Optional[str] = ..., loop_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class WatchLoopActionsResponse(_message.Message):
    __slots__ = ("actions",)
    ACTIONS_FIELD_NUMBER: _ClassVar[int]
    actions: LoopActions
    def __init__(self, actions: _Optional[_Union[LoopActions, _Mapping]] = ...) -> None: ...

class LoopActions(_message.Message):
    __slots__ = ("actions",)
    ACTIONS_FIELD_NUMBER: _ClassVar[int]
    actions: _containers.RepeatedCompositeFieldContainer[_loop_pb2.LoopAction]
    def __init__(self, actions: _Optional[_Iterable[_Union[_loop_pb2.LoopAction, _Mapping]]] = ...) -> None: ...

class WatchLoopPicturesRequest(_message.Message):
    __slots__ = ("org_id", "loop_ids")
    ORG_ID_FIELD_NUMBER: _ClassVar[int]
    LOOP_IDS_FIELD_NUMBER: _ClassVar[int]
    org_id: str
    loop_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, org_id: _Optional[str] = ..., loop_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class WatchLoopPicturesResponse(_message.Message):
    __slots__ = ("pictures",)
    PICTURES_FIELD_NUMBER: _ClassVar[int]
    pictures: LoopPictures
    def __init__(self, pictures: _Optional[_Union[LoopPictures, _Mapping]] = ...) -> None: ...

class LoopPictures(_message.Message):
    __slots__ = ("pictures", "withheld")
    PICTURES_FIELD_NUMBER: _ClassVar[int]
    WITHHELD_FIELD_NUMBER: _ClassVar[int]
    pictures: _containers.RepeatedCompositeFieldContainer[_loop_pb2.LoopPicture]
    withheld: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, pictures: _Optional[_Iterable[_Union[_loop_pb2.LoopPicture, _Mapping]]] = ..., withheld: _Optional[_Iterable[str]] = ...) -> None: ...
