from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ImageFormat(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    IMAGE_FORMAT_UNSPECIFIED: _ClassVar[ImageFormat]
    IMAGE_FORMAT_PNG: _ClassVar[ImageFormat]
    IMAGE_FORMAT_JPEG: _ClassVar[ImageFormat]
    IMAGE_FORMAT_WEBP: _ClassVar[ImageFormat]
IMAGE_FORMAT_UNSPECIFIED: ImageFormat
IMAGE_FORMAT_PNG: ImageFormat
IMAGE_FORMAT_JPEG: ImageFormat
IMAGE_FORMAT_WEBP: ImageFormat

class Observation(_message.Message):
    __slots__ = ("frames", "proprio", "t_ms", "proprio_names", "depth", "tactile", "gripper")
    FRAMES_FIELD_NUMBER: _ClassVar[int]
    PROPRIO_FIELD_NUMBER: _ClassVar[int]
    T_MS_FIELD_NUMBER: _ClassVar[int]
    PROPRIO_NAMES_FIELD_NUMBER: _ClassVar[int]
    DEPTH_FIELD_NUMBER: _ClassVar[int]
    TACTILE_FIELD_NUMBER: _ClassVar[int]
    GRIPPER_FIELD_NUMBER: _ClassVar[int]
    frames: _containers.RepeatedCompositeFieldContainer[Frame]
    proprio: _containers.RepeatedScalarFieldContainer[float]
    t_ms: float
    proprio_names: _containers.RepeatedScalarFieldContainer[str]
    depth: _containers.RepeatedCompositeFieldContainer[Frame]
    tactile: _containers.RepeatedScalarFieldContainer[float]
    gripper: float
    def __init__(self, frames: _Optional[_Iterable[_Union[Frame, _Mapping]]] = ..., proprio: _Optional[_Iterable[float]] = ..., t_ms: _Optional[float] = ..., proprio_names: _Optional[_Iterable[str]] = ..., depth: _Optional[_Iterable[_Union[Frame, _Mapping]]] = ..., tactile: _Optional[_Iterable[float]] = ..., gripper: _Optional[float] = ...) -> None: ...

class Frame(_message.Message):
    __slots__ = ("camera", "url", "data", "format", "width", "height", "t_ms", "intrinsics", "sha256")
    CAMERA_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    HEIGHT_FIELD_NUMBER: _ClassVar[int]
    T_MS_FIELD_NUMBER: _ClassVar[int]
    INTRINSICS_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    camera: str
    url: str
    data: bytes
    format: ImageFormat
    width: int
    height: int
    t_ms: float
    intrinsics: Intrinsics
    sha256: str
    def __init__(self, camera: _Optional[str] = ..., url: _Optional[str] = ..., data: _Optional[bytes] = ..., format: _Optional[_Union[ImageFormat, str]] = ..., width: _Optional[int] = ..., height: _Optional[int] = ..., t_ms: _Optional[float] = ..., intrinsics: _Optional[_Union[Intrinsics, _Mapping]] = ..., sha256: _Optional[str] = ...) -> None: ...

class Intrinsics(_message.Message):
    __slots__ = ("fx", "fy", "cx", "cy")
    FX_FIELD_NUMBER: _ClassVar[int]
    FY_FIELD_NUMBER: _ClassVar[int]
    CX_FIELD_NUMBER: _ClassVar[int]
    CY_FIELD_NUMBER: _ClassVar[int]
    fx: float
    fy: float
    cx: float
    cy: float
    def __init__(self, fx: _Optional[float] = ..., fy: _Optional[float] = ..., cx: _Optional[float] = ..., cy: _Optional[float] = ...) -> None: ...
