from limber._gen.limber.v1 import observation_pb2 as _observation_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PredictedFrame(_message.Message):
    __slots__ = ("index", "t_ms", "camera", "width", "height", "format", "data")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    T_MS_FIELD_NUMBER: _ClassVar[int]
    CAMERA_FIELD_NUMBER: _ClassVar[int]
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    HEIGHT_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    index: int
    t_ms: float
    camera: str
    width: int
    height: int
    format: _observation_pb2.ImageFormat
    data: bytes
    def __init__(self, index: _Optional[int] = ..., t_ms: _Optional[float] = ..., camera: _Optional[str] = ..., width: _Optional[int] = ..., height: _Optional[int] = ..., format: _Optional[_Union[_observation_pb2.ImageFormat, str]] = ..., data: _Optional[bytes] = ...) -> None: ...
