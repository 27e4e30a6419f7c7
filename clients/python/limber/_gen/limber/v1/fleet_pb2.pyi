from limber._gen.limber.v1 import action_pb2 as _action_pb2
from limber._gen.limber.v1 import input_contract_pb2 as _input_contract_pb2
from limber._gen.limber.v1 import observation_pb2 as _observation_pb2
from limber._gen.limber.v1 import plan_pb2 as _plan_pb2
from limber._gen.limber.v1 import registry_pb2 as _registry_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Robot(_message.Message):
    __slots__ = ("id", "object", "org_id", "workspace_id", "config", "key_ids", "created", "updated")
    ID_FIELD_NUMBER: _ClassVar[int]
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    ORG_ID_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_ID_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    KEY_IDS_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    UPDATED_FIELD_NUMBER: _ClassVar[int]
    id: str
    object: str
    org_id: str
    workspace_id: str
    config: RobotConfig
    key_ids: _containers.RepeatedScalarFieldContainer[str]
    created: int
    updated: int
    def __init__(self, id: _Optional[str] = ..., object: _Optional[str] = ..., org_id: _Optional[str] = ..., workspace_id: _Optional[str] = ..., config: _Optional[_Union[RobotConfig, _Mapping]] = ..., key_ids: _Optional[_Iterable[str]] = ..., created: _Optional[int] = ..., updated: _Optional[int] = ...) -> None: ...

class RobotConfig(_message.Message):
    __slots__ = ("description", "embodiment", "action_space", "cameras", "proprio", "actions", "bounds", "control_hz")
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    EMBODIMENT_FIELD_NUMBER: _ClassVar[int]
    ACTION_SPACE_FIELD_NUMBER: _ClassVar[int]
    CAMERAS_FIELD_NUMBER: _ClassVar[int]
    PROPRIO_FIELD_NUMBER: _ClassVar[int]
    ACTIONS_FIELD_NUMBER: _ClassVar[int]
    BOUNDS_FIELD_NUMBER: _ClassVar[int]
    CONTROL_HZ_FIELD_NUMBER: _ClassVar[int]
    description: str
    embodiment: _registry_pb2.Embodiment
    action_space: str
    cameras: _containers.RepeatedCompositeFieldContainer[RobotCamera]
    proprio: _input_contract_pb2.ProprioSpec
    actions: _input_contract_pb2.ActionMeaning
    bounds: _action_pb2.SafetyBounds
    control_hz: float
    def __init__(self, description: _Optional[str] = ..., embodiment: _Optional[_Union[_registry_pb2.Embodiment, str]] = ..., action_space: _Optional[str] = ..., cameras: _Optional[_Iterable[_Union[RobotCamera, _Mapping]]] = ..., proprio: _Optional[_Union[_input_contract_pb2.ProprioSpec, _Mapping]] = ..., actions: _Optional[_Union[_input_contract_pb2.ActionMeaning, _Mapping]] = ..., bounds: _Optional[_Union[_action_pb2.SafetyBounds, _Mapping]] = ..., control_hz: _Optional[float] = ...) -> None: ...

class RobotCamera(_message.Message):
    __slots__ = ("name", "role", "width", "height", "format", "rate_hz")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    HEIGHT_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    RATE_HZ_FIELD_NUMBER: _ClassVar[int]
    name: str
    role: _input_contract_pb2.CameraRole
    width: int
    height: int
    format: _observation_pb2.ImageFormat
    rate_hz: float
    def __init__(self, name: _Optional[str] = ..., role: _Optional[_Union[_input_contract_pb2.CameraRole, str]] = ..., width: _Optional[int] = ..., height: _Optional[int] = ..., format: _Optional[_Union[_observation_pb2.ImageFormat, str]] = ..., rate_hz: _Optional[float] = ...) -> None: ...

class DrivingOffering(_message.Message):
    __slots__ = ("rank", "offering_id", "model", "provider", "price_unit_usd", "expected_ms", "declared")
    RANK_FIELD_NUMBER: _ClassVar[int]
    OFFERING_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    PRICE_UNIT_USD_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_MS_FIELD_NUMBER: _ClassVar[int]
    DECLARED_FIELD_NUMBER: _ClassVar[int]
    rank: int
    offering_id: str
    model: str
    provider: str
    price_unit_usd: float
    expected_ms: _plan_pb2.ExpectedLatency
    declared: bool
    def __init__(self, rank: _Optional[int] = ..., offering_id: _Optional[str] = ..., model: _Optional[str] = ..., provider: _Optional[str] = ..., price_unit_usd: _Optional[float] = ..., expected_ms: _Optional[_Union[_plan_pb2.ExpectedLatency, _Mapping]] = ..., declared: _Optional[bool] = ...) -> None: ...

class UnfitOffering(_message.Message):
    __slots__ = ("offering_id", "model", "provider", "faults", "reason", "detail")
    OFFERING_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    FAULTS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    offering_id: str
    model: str
    provider: str
    faults: _containers.RepeatedCompositeFieldContainer[RobotFault]
    reason: _plan_pb2.DropReason
    detail: str
    def __init__(self, offering_id: _Optional[str] = ..., model: _Optional[str] = ..., provider: _Optional[str] = ..., faults: _Optional[_Iterable[_Union[RobotFault, _Mapping]]] = ..., reason: _Optional[_Union[_plan_pb2.DropReason, str]] = ..., detail: _Optional[str] = ...) -> None: ...

class RobotFault(_message.Message):
    __slots__ = ("field", "message")
    FIELD_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    field: str
    message: str
    def __init__(self, field: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...
