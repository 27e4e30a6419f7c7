from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GetMailPreferencesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetMailPreferencesResponse(_message.Message):
    __slots__ = ("muted", "events")
    MUTED_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    muted: _containers.RepeatedScalarFieldContainer[str]
    events: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, muted: _Optional[_Iterable[str]] = ..., events: _Optional[_Iterable[str]] = ...) -> None: ...

class UpdateMailPreferencesRequest(_message.Message):
    __slots__ = ("muted",)
    MUTED_FIELD_NUMBER: _ClassVar[int]
    muted: EventNameList
    def __init__(self, muted: _Optional[_Union[EventNameList, _Mapping]] = ...) -> None: ...

class EventNameList(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, values: _Optional[_Iterable[str]] = ...) -> None: ...

class UpdateMailPreferencesResponse(_message.Message):
    __slots__ = ("muted", "events")
    MUTED_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    muted: _containers.RepeatedScalarFieldContainer[str]
    events: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, muted: _Optional[_Iterable[str]] = ..., events: _Optional[_Iterable[str]] = ...) -> None: ...

class UnsubscribeFromMailRequest(_message.Message):
    __slots__ = ("token",)
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    token: str
    def __init__(self, token: _Optional[str] = ...) -> None: ...

class UnsubscribeFromMailResponse(_message.Message):
    __slots__ = ("unsubscribed",)
    UNSUBSCRIBED_FIELD_NUMBER: _ClassVar[int]
    unsubscribed: bool
    def __init__(self, unsubscribed: _Optional[bool] = ...) -> None: ...

class GetMailRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetMailResponse(_message.Message):
    __slots__ = ("enabled", "events")
    ENABLED_FIELD_NUMBER: _ClassVar[int]
    FROM_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    enabled: bool
    events: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, enabled: _Optional[bool] = ..., events: _Optional[_Iterable[str]] = ..., **kwargs) -> None: ...

class SendTestMailRequest(_message.Message):
    __slots__ = ("to",)
    TO_FIELD_NUMBER: _ClassVar[int]
    to: str
    def __init__(self, to: _Optional[str] = ...) -> None: ...

class SendTestMailResponse(_message.Message):
    __slots__ = ("to",)
    TO_FIELD_NUMBER: _ClassVar[int]
    to: str
    def __init__(self, to: _Optional[str] = ...) -> None: ...
