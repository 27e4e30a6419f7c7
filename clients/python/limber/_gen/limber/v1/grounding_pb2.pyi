from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class GroundedPoint(_message.Message):
    __slots__ = ("x", "y", "label", "confidence", "frame", "camera")
    X_FIELD_NUMBER: _ClassVar[int]
    Y_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    CONFIDENCE_FIELD_NUMBER: _ClassVar[int]
    FRAME_FIELD_NUMBER: _ClassVar[int]
    CAMERA_FIELD_NUMBER: _ClassVar[int]
    x: float
    y: float
    label: str
    confidence: float
    frame: int
    camera: str
    def __init__(self, x: _Optional[float] = ..., y: _Optional[float] = ..., label: _Optional[str] = ..., confidence: _Optional[float] = ..., frame: _Optional[int] = ..., camera: _Optional[str] = ...) -> None: ...

class GroundedBox(_message.Message):
    __slots__ = ("x_min", "y_min", "x_max", "y_max", "label", "confidence", "frame", "camera")
    X_MIN_FIELD_NUMBER: _ClassVar[int]
    Y_MIN_FIELD_NUMBER: _ClassVar[int]
    X_MAX_FIELD_NUMBER: _ClassVar[int]
    Y_MAX_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    CONFIDENCE_FIELD_NUMBER: _ClassVar[int]
    FRAME_FIELD_NUMBER: _ClassVar[int]
    CAMERA_FIELD_NUMBER: _ClassVar[int]
    x_min: float
    y_min: float
    x_max: float
    y_max: float
    label: str
    confidence: float
    frame: int
    camera: str
    def __init__(self, x_min: _Optional[float] = ..., y_min: _Optional[float] = ..., x_max: _Optional[float] = ..., y_max: _Optional[float] = ..., label: _Optional[str] = ..., confidence: _Optional[float] = ..., frame: _Optional[int] = ..., camera: _Optional[str] = ...) -> None: ...
