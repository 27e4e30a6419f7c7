from limber._gen.limber.v1 import observation_pb2 as _observation_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CameraRole(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CAMERA_ROLE_UNSPECIFIED: _ClassVar[CameraRole]
    CAMERA_ROLE_SCENE: _ClassVar[CameraRole]
    CAMERA_ROLE_OVERHEAD: _ClassVar[CameraRole]
    CAMERA_ROLE_WRIST: _ClassVar[CameraRole]
    CAMERA_ROLE_HEAD: _ClassVar[CameraRole]
    CAMERA_ROLE_BODY: _ClassVar[CameraRole]

class InputNeed(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    INPUT_NEED_UNSPECIFIED: _ClassVar[InputNeed]
    INPUT_NEED_REQUIRED: _ClassVar[InputNeed]
    INPUT_NEED_OPTIONAL: _ClassVar[InputNeed]
    INPUT_NEED_NONE: _ClassVar[InputNeed]
    INPUT_NEED_IGNORED: _ClassVar[InputNeed]

class ActionReference(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ACTION_REFERENCE_UNSPECIFIED: _ClassVar[ActionReference]
    ACTION_REFERENCE_ABSOLUTE: _ClassVar[ActionReference]
    ACTION_REFERENCE_RELATIVE: _ClassVar[ActionReference]
    ACTION_REFERENCE_RELATIVE_TO_OBSERVATION: _ClassVar[ActionReference]
    ACTION_REFERENCE_VELOCITY: _ClassVar[ActionReference]

class RotationForm(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ROTATION_FORM_UNSPECIFIED: _ClassVar[RotationForm]
    ROTATION_FORM_AXIS_ANGLE: _ClassVar[RotationForm]
    ROTATION_FORM_EULER_XYZ: _ClassVar[RotationForm]
    ROTATION_FORM_QUATERNION_XYZW: _ClassVar[RotationForm]
    ROTATION_FORM_QUATERNION_WXYZ: _ClassVar[RotationForm]
    ROTATION_FORM_MATRIX_COLUMNS_6D: _ClassVar[RotationForm]
    ROTATION_FORM_MATRIX_ROWS_6D: _ClassVar[RotationForm]

class ContractSource(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CONTRACT_SOURCE_UNSPECIFIED: _ClassVar[ContractSource]
    CONTRACT_SOURCE_DECLARED: _ClassVar[ContractSource]
    CONTRACT_SOURCE_SERVER: _ClassVar[ContractSource]
    CONTRACT_SOURCE_PROFILE: _ClassVar[ContractSource]
CAMERA_ROLE_UNSPECIFIED: CameraRole
CAMERA_ROLE_SCENE: CameraRole
CAMERA_ROLE_OVERHEAD: CameraRole
CAMERA_ROLE_WRIST: CameraRole
CAMERA_ROLE_HEAD: CameraRole
CAMERA_ROLE_BODY: CameraRole
INPUT_NEED_UNSPECIFIED: InputNeed
INPUT_NEED_REQUIRED: InputNeed
INPUT_NEED_OPTIONAL: InputNeed
INPUT_NEED_NONE: InputNeed
INPUT_NEED_IGNORED: InputNeed
ACTION_REFERENCE_UNSPECIFIED: ActionReference
ACTION_REFERENCE_ABSOLUTE: ActionReference
ACTION_REFERENCE_RELATIVE: ActionReference
ACTION_REFERENCE_RELATIVE_TO_OBSERVATION: ActionReference
ACTION_REFERENCE_VELOCITY: ActionReference
ROTATION_FORM_UNSPECIFIED: RotationForm
ROTATION_FORM_AXIS_ANGLE: RotationForm
ROTATION_FORM_EULER_XYZ: RotationForm
ROTATION_FORM_QUATERNION_XYZW: RotationForm
ROTATION_FORM_QUATERNION_WXYZ: RotationForm
ROTATION_FORM_MATRIX_COLUMNS_6D: RotationForm
ROTATION_FORM_MATRIX_ROWS_6D: RotationForm
CONTRACT_SOURCE_UNSPECIFIED: ContractSource
CONTRACT_SOURCE_DECLARED: ContractSource
CONTRACT_SOURCE_SERVER: ContractSource
CONTRACT_SOURCE_PROFILE: ContractSource

class InputContract(_message.Message):
    __slots__ = ("cameras", "other_cameras", "proprio", "language", "goal_image", "history", "rate_hz")
    CAMERAS_FIELD_NUMBER: _ClassVar[int]
    OTHER_CAMERAS_FIELD_NUMBER: _ClassVar[int]
    PROPRIO_FIELD_NUMBER: _ClassVar[int]
    LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    GOAL_IMAGE_FIELD_NUMBER: _ClassVar[int]
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    RATE_HZ_FIELD_NUMBER: _ClassVar[int]
    cameras: CameraSpecs
    other_cameras: bool
    proprio: _containers.RepeatedCompositeFieldContainer[ProprioSpec]
    language: LanguageSpec
    goal_image: GoalImageSpec
    history: HistorySpec
    rate_hz: float
    def __init__(self, cameras: _Optional[_Union[CameraSpecs, _Mapping]] = ..., other_cameras: _Optional[bool] = ..., proprio: _Optional[_Iterable[_Union[ProprioSpec, _Mapping]]] = ..., language: _Optional[_Union[LanguageSpec, _Mapping]] = ..., goal_image: _Optional[_Union[GoalImageSpec, _Mapping]] = ..., history: _Optional[_Union[HistorySpec, _Mapping]] = ..., rate_hz: _Optional[float] = ...) -> None: ...

class CameraSpecs(_message.Message):
    __slots__ = ("cameras",)
    CAMERAS_FIELD_NUMBER: _ClassVar[int]
    cameras: _containers.RepeatedCompositeFieldContainer[CameraSpec]
    def __init__(self, cameras: _Optional[_Iterable[_Union[CameraSpec, _Mapping]]] = ...) -> None: ...

class CameraSpec(_message.Message):
    __slots__ = ("name", "aliases", "role", "width", "height", "any_size", "formats", "required")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ALIASES_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    HEIGHT_FIELD_NUMBER: _ClassVar[int]
    ANY_SIZE_FIELD_NUMBER: _ClassVar[int]
    FORMATS_FIELD_NUMBER: _ClassVar[int]
    REQUIRED_FIELD_NUMBER: _ClassVar[int]
    name: str
    aliases: _containers.RepeatedScalarFieldContainer[str]
    role: CameraRole
    width: int
    height: int
    any_size: bool
    formats: _containers.RepeatedScalarFieldContainer[_observation_pb2.ImageFormat]
    required: bool
    def __init__(self, name: _Optional[str] = ..., aliases: _Optional[_Iterable[str]] = ..., role: _Optional[_Union[CameraRole, str]] = ..., width: _Optional[int] = ..., height: _Optional[int] = ..., any_size: _Optional[bool] = ..., formats: _Optional[_Iterable[_Union[_observation_pb2.ImageFormat, str]]] = ..., required: _Optional[bool] = ...) -> None: ...

class ProprioSpec(_message.Message):
    __slots__ = ("names", "units", "dimension", "reference_frame", "more_values", "any_order", "action_space")
    NAMES_FIELD_NUMBER: _ClassVar[int]
    UNITS_FIELD_NUMBER: _ClassVar[int]
    DIMENSION_FIELD_NUMBER: _ClassVar[int]
    REFERENCE_FRAME_FIELD_NUMBER: _ClassVar[int]
    MORE_VALUES_FIELD_NUMBER: _ClassVar[int]
    ANY_ORDER_FIELD_NUMBER: _ClassVar[int]
    ACTION_SPACE_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    units: _containers.RepeatedScalarFieldContainer[str]
    dimension: int
    reference_frame: str
    more_values: bool
    any_order: bool
    action_space: str
    def __init__(self, names: _Optional[_Iterable[str]] = ..., units: _Optional[_Iterable[str]] = ..., dimension: _Optional[int] = ..., reference_frame: _Optional[str] = ..., more_values: _Optional[bool] = ..., any_order: _Optional[bool] = ..., action_space: _Optional[str] = ...) -> None: ...

class LanguageSpec(_message.Message):
    __slots__ = ("need", "languages")
    NEED_FIELD_NUMBER: _ClassVar[int]
    LANGUAGES_FIELD_NUMBER: _ClassVar[int]
    need: InputNeed
    languages: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, need: _Optional[_Union[InputNeed, str]] = ..., languages: _Optional[_Iterable[str]] = ...) -> None: ...

class GoalImageSpec(_message.Message):
    __slots__ = ("need", "width", "height")
    NEED_FIELD_NUMBER: _ClassVar[int]
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    HEIGHT_FIELD_NUMBER: _ClassVar[int]
    need: InputNeed
    width: int
    height: int
    def __init__(self, need: _Optional[_Union[InputNeed, str]] = ..., width: _Optional[int] = ..., height: _Optional[int] = ...) -> None: ...

class HistorySpec(_message.Message):
    __slots__ = ("least", "most", "steps")
    LEAST_FIELD_NUMBER: _ClassVar[int]
    MOST_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    least: int
    most: int
    steps: int
    def __init__(self, least: _Optional[int] = ..., most: _Optional[int] = ..., steps: _Optional[int] = ...) -> None: ...

class ActionMeanings(_message.Message):
    __slots__ = ("actions",)
    ACTIONS_FIELD_NUMBER: _ClassVar[int]
    actions: _containers.RepeatedCompositeFieldContainer[ActionMeaning]
    def __init__(self, actions: _Optional[_Iterable[_Union[ActionMeaning, _Mapping]]] = ...) -> None: ...

class ActionMeaning(_message.Message):
    __slots__ = ("action_space", "names", "units", "reference", "reference_frame", "rotation", "gripper")
    ACTION_SPACE_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    UNITS_FIELD_NUMBER: _ClassVar[int]
    REFERENCE_FIELD_NUMBER: _ClassVar[int]
    REFERENCE_FRAME_FIELD_NUMBER: _ClassVar[int]
    ROTATION_FIELD_NUMBER: _ClassVar[int]
    GRIPPER_FIELD_NUMBER: _ClassVar[int]
    action_space: str
    names: _containers.RepeatedScalarFieldContainer[str]
    units: _containers.RepeatedScalarFieldContainer[str]
    reference: ActionReference
    reference_frame: str
    rotation: RotationForm
    gripper: GripperMeaning
    def __init__(self, action_space: _Optional[str] = ..., names: _Optional[_Iterable[str]] = ..., units: _Optional[_Iterable[str]] = ..., reference: _Optional[_Union[ActionReference, str]] = ..., reference_frame: _Optional[str] = ..., rotation: _Optional[_Union[RotationForm, str]] = ..., gripper: _Optional[_Union[GripperMeaning, _Mapping]] = ...) -> None: ...

class GripperMeaning(_message.Message):
    __slots__ = ("indexes", "open", "closed", "binary")
    INDEXES_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    CLOSED_FIELD_NUMBER: _ClassVar[int]
    BINARY_FIELD_NUMBER: _ClassVar[int]
    indexes: _containers.RepeatedScalarFieldContainer[int]
    open: float
    closed: float
    binary: bool
    def __init__(self, indexes: _Optional[_Iterable[int]] = ..., open: _Optional[float] = ..., closed: _Optional[float] = ..., binary: _Optional[bool] = ...) -> None: ...
