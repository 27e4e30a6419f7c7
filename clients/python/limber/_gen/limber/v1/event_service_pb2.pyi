from limber._gen.limber.v1 import event_pb2 as _event_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class WatchEventsRequest(_message.Message):
    __slots__ = ("cursor", "last_event_id", "since", "events")
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    LAST_EVENT_ID_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    cursor: str
    last_event_id: str
    since: int
    events: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, cursor: _Optional[str] = ..., last_event_id: _Optional[str] = ..., since: _Optional[int] = ..., events: _Optional[_Iterable[str]] = ...) -> None: ...

class WatchEventsResponse(_message.Message):
    __slots__ = ("event", "checkpoint")
    EVENT_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    event: WatchedEvent
    checkpoint: EventCheckpoint
    def __init__(self, event: _Optional[_Union[WatchedEvent, _Mapping]] = ..., checkpoint: _Optional[_Union[EventCheckpoint, _Mapping]] = ...) -> None: ...

class WatchedEvent(_message.Message):
    __slots__ = ("cursor", "type", "event")
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    EVENT_FIELD_NUMBER: _ClassVar[int]
    cursor: str
    type: str
    event: _event_pb2.Event
    def __init__(self, cursor: _Optional[str] = ..., type: _Optional[str] = ..., event: _Optional[_Union[_event_pb2.Event, _Mapping]] = ...) -> None: ...

class EventCheckpoint(_message.Message):
    __slots__ = ("cursor",)
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    cursor: str
    def __init__(self, cursor: _Optional[str] = ...) -> None: ...
