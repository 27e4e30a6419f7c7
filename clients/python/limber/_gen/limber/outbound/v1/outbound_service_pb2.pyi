from limber._gen.limber.policy.v1 import policy_service_pb2 as _policy_service_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ServeRequest(_message.Message):
    __slots__ = ("hello", "act", "predict", "ground")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    ACT_FIELD_NUMBER: _ClassVar[int]
    PREDICT_FIELD_NUMBER: _ClassVar[int]
    GROUND_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    act: _policy_service_pb2.ActResponse
    predict: PredictPart
    ground: GroundAnswer
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., act: _Optional[_Union[_policy_service_pb2.ActResponse, _Mapping]] = ..., predict: _Optional[_Union[PredictPart, _Mapping]] = ..., ground: _Optional[_Union[GroundAnswer, _Mapping]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("provider",)
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    provider: str
    def __init__(self, provider: _Optional[str] = ...) -> None: ...

class PredictPart(_message.Message):
    __slots__ = ("call_id", "part", "end", "error")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    call_id: int
    part: _policy_service_pb2.PredictResponse
    end: End
    error: _policy_service_pb2.CallError
    def __init__(self, call_id: _Optional[int] = ..., part: _Optional[_Union[_policy_service_pb2.PredictResponse, _Mapping]] = ..., end: _Optional[_Union[End, _Mapping]] = ..., error: _Optional[_Union[_policy_service_pb2.CallError, _Mapping]] = ...) -> None: ...

class End(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GroundAnswer(_message.Message):
    __slots__ = ("call_id", "answer", "error")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    call_id: int
    answer: _policy_service_pb2.GroundResponse
    error: _policy_service_pb2.CallError
    def __init__(self, call_id: _Optional[int] = ..., answer: _Optional[_Union[_policy_service_pb2.GroundResponse, _Mapping]] = ..., error: _Optional[_Union[_policy_service_pb2.CallError, _Mapping]] = ...) -> None: ...

class ServeResponse(_message.Message):
    __slots__ = ("welcome", "act", "predict", "ground")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    ACT_FIELD_NUMBER: _ClassVar[int]
    PREDICT_FIELD_NUMBER: _ClassVar[int]
    GROUND_FIELD_NUMBER: _ClassVar[int]
    welcome: Welcome
    act: _policy_service_pb2.ActRequest
    predict: PredictCall
    ground: GroundCall
    def __init__(self, welcome: _Optional[_Union[Welcome, _Mapping]] = ..., act: _Optional[_Union[_policy_service_pb2.ActRequest, _Mapping]] = ..., predict: _Optional[_Union[PredictCall, _Mapping]] = ..., ground: _Optional[_Union[GroundCall, _Mapping]] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("provider",)
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    provider: str
    def __init__(self, provider: _Optional[str] = ...) -> None: ...

class PredictCall(_message.Message):
    __slots__ = ("call_id", "request")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    call_id: int
    request: _policy_service_pb2.PredictRequest
    def __init__(self, call_id: _Optional[int] = ..., request: _Optional[_Union[_policy_service_pb2.PredictRequest, _Mapping]] = ...) -> None: ...

class GroundCall(_message.Message):
    __slots__ = ("call_id", "request")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    call_id: int
    request: _policy_service_pb2.GroundRequest
    def __init__(self, call_id: _Optional[int] = ..., request: _Optional[_Union[_policy_service_pb2.GroundRequest, _Mapping]] = ...) -> None: ...
