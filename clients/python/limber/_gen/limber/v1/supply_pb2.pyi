from limber._gen.limber.v1 import action_pb2 as _action_pb2
from limber._gen.limber.v1 import checkpoint_pb2 as _checkpoint_pb2
from limber._gen.limber.v1 import contract_pb2 as _contract_pb2
from limber._gen.limber.v1 import input_contract_pb2 as _input_contract_pb2
from limber._gen.limber.v1 import observation_pb2 as _observation_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ProviderStanding(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PROVIDER_STANDING_UNSPECIFIED: _ClassVar[ProviderStanding]
    PROVIDER_STANDING_COMMUNITY: _ClassVar[ProviderStanding]
    PROVIDER_STANDING_VERIFIED: _ClassVar[ProviderStanding]
    PROVIDER_STANDING_REJECTED: _ClassVar[ProviderStanding]

class OfferingStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OFFERING_STATUS_UNSPECIFIED: _ClassVar[OfferingStatus]
    OFFERING_STATUS_PENDING: _ClassVar[OfferingStatus]
    OFFERING_STATUS_VERIFYING: _ClassVar[OfferingStatus]
    OFFERING_STATUS_LIVE: _ClassVar[OfferingStatus]
    OFFERING_STATUS_REJECTED: _ClassVar[OfferingStatus]
    OFFERING_STATUS_DEGRADED: _ClassVar[OfferingStatus]
    OFFERING_STATUS_SUSPENDED: _ClassVar[OfferingStatus]
    OFFERING_STATUS_DRAINING: _ClassVar[OfferingStatus]
    OFFERING_STATUS_REMOVED: _ClassVar[OfferingStatus]
    OFFERING_STATUS_PAUSED: _ClassVar[OfferingStatus]

class ServerDialect(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SERVER_DIALECT_UNSPECIFIED: _ClassVar[ServerDialect]
    SERVER_DIALECT_OPENPI: _ClassVar[ServerDialect]
    SERVER_DIALECT_ROBOARENA: _ClassVar[ServerDialect]
    SERVER_DIALECT_VLLM_OMNI: _ClassVar[ServerDialect]
    SERVER_DIALECT_SGLANG: _ClassVar[ServerDialect]
    SERVER_DIALECT_COSMOS_ROBOLAB: _ClassVar[ServerDialect]
    SERVER_DIALECT_STARVLA: _ClassVar[ServerDialect]
    SERVER_DIALECT_GR00T_N1_5: _ClassVar[ServerDialect]
    SERVER_DIALECT_GR00T_N1_6: _ClassVar[ServerDialect]
    SERVER_DIALECT_GR00T_N1_7: _ClassVar[ServerDialect]
    SERVER_DIALECT_LEROBOT_SAFETENSORS: _ClassVar[ServerDialect]

class CoordinateConvention(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    COORDINATE_CONVENTION_UNSPECIFIED: _ClassVar[CoordinateConvention]
    COORDINATE_CONVENTION_XY_100: _ClassVar[CoordinateConvention]
    COORDINATE_CONVENTION_XY_1000: _ClassVar[CoordinateConvention]
    COORDINATE_CONVENTION_YX_1000: _ClassVar[CoordinateConvention]
    COORDINATE_CONVENTION_XY_PX_RESIZED28: _ClassVar[CoordinateConvention]
    COORDINATE_CONVENTION_XY_UNIT: _ClassVar[CoordinateConvention]
    COORDINATE_CONVENTION_LOC_YX_1024: _ClassVar[CoordinateConvention]
    COORDINATE_CONVENTION_MOLMO2_COORDS: _ClassVar[CoordinateConvention]

class WireSession(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    WIRE_SESSION_UNSPECIFIED: _ClassVar[WireSession]
    WIRE_SESSION_NONE: _ClassVar[WireSession]
    WIRE_SESSION_CONNECTION: _ClassVar[WireSession]
    WIRE_SESSION_SESSION_ID: _ClassVar[WireSession]
    WIRE_SESSION_LEASE: _ClassVar[WireSession]

class WireReset(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    WIRE_RESET_UNSPECIFIED: _ClassVar[WireReset]
    WIRE_RESET_NONE: _ClassVar[WireReset]
    WIRE_RESET_MESSAGE: _ClassVar[WireReset]
    WIRE_RESET_ENDPOINT: _ClassVar[WireReset]

class PixelForm(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PIXEL_FORM_UNSPECIFIED: _ClassVar[PixelForm]
    PIXEL_FORM_U1: _ClassVar[PixelForm]
    PIXEL_FORM_F4: _ClassVar[PixelForm]
    PIXEL_FORM_ENCODED: _ClassVar[PixelForm]

class PixelLayout(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PIXEL_LAYOUT_UNSPECIFIED: _ClassVar[PixelLayout]
    PIXEL_LAYOUT_HWC: _ClassVar[PixelLayout]
    PIXEL_LAYOUT_CHW: _ClassVar[PixelLayout]

class ImageFit(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    IMAGE_FIT_UNSPECIFIED: _ClassVar[ImageFit]
    IMAGE_FIT_PAD: _ClassVar[ImageFit]
    IMAGE_FIT_STRETCH: _ClassVar[ImageFit]

class NumberType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    NUMBER_TYPE_UNSPECIFIED: _ClassVar[NumberType]
    NUMBER_TYPE_F4: _ClassVar[NumberType]
    NUMBER_TYPE_F8: _ClassVar[NumberType]

class ProviderAuthType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PROVIDER_AUTH_TYPE_UNSPECIFIED: _ClassVar[ProviderAuthType]
    PROVIDER_AUTH_TYPE_NONE: _ClassVar[ProviderAuthType]
    PROVIDER_AUTH_TYPE_BEARER: _ClassVar[ProviderAuthType]
    PROVIDER_AUTH_TYPE_API_KEY: _ClassVar[ProviderAuthType]
PROVIDER_STANDING_UNSPECIFIED: ProviderStanding
PROVIDER_STANDING_COMMUNITY: ProviderStanding
PROVIDER_STANDING_VERIFIED: ProviderStanding
PROVIDER_STANDING_REJECTED: ProviderStanding
OFFERING_STATUS_UNSPECIFIED: OfferingStatus
OFFERING_STATUS_PENDING: OfferingStatus
OFFERING_STATUS_VERIFYING: OfferingStatus
OFFERING_STATUS_LIVE: OfferingStatus
OFFERING_STATUS_REJECTED: OfferingStatus
OFFERING_STATUS_DEGRADED: OfferingStatus
OFFERING_STATUS_SUSPENDED: OfferingStatus
OFFERING_STATUS_DRAINING: OfferingStatus
OFFERING_STATUS_REMOVED: OfferingStatus
OFFERING_STATUS_PAUSED: OfferingStatus
SERVER_DIALECT_UNSPECIFIED: ServerDialect
SERVER_DIALECT_OPENPI: ServerDialect
SERVER_DIALECT_ROBOARENA: ServerDialect
SERVER_DIALECT_VLLM_OMNI: ServerDialect
SERVER_DIALECT_SGLANG: ServerDialect
SERVER_DIALECT_COSMOS_ROBOLAB: ServerDialect
SERVER_DIALECT_STARVLA: ServerDialect
SERVER_DIALECT_GR00T_N1_5: ServerDialect
SERVER_DIALECT_GR00T_N1_6: ServerDialect
SERVER_DIALECT_GR00T_N1_7: ServerDialect
SERVER_DIALECT_LEROBOT_SAFETENSORS: ServerDialect
COORDINATE_CONVENTION_UNSPECIFIED: CoordinateConvention
COORDINATE_CONVENTION_XY_100: CoordinateConvention
COORDINATE_CONVENTION_XY_1000: CoordinateConvention
COORDINATE_CONVENTION_YX_1000: CoordinateConvention
COORDINATE_CONVENTION_XY_PX_RESIZED28: CoordinateConvention
COORDINATE_CONVENTION_XY_UNIT: CoordinateConvention
COORDINATE_CONVENTION_LOC_YX_1024: CoordinateConvention
COORDINATE_CONVENTION_MOLMO2_COORDS: CoordinateConvention
WIRE_SESSION_UNSPECIFIED: WireSession
WIRE_SESSION_NONE: WireSession
WIRE_SESSION_CONNECTION: WireSession
WIRE_SESSION_SESSION_ID: WireSession
WIRE_SESSION_LEASE: WireSession
WIRE_RESET_UNSPECIFIED: WireReset
WIRE_RESET_NONE: WireReset
WIRE_RESET_MESSAGE: WireReset
WIRE_RESET_ENDPOINT: WireReset
PIXEL_FORM_UNSPECIFIED: PixelForm
PIXEL_FORM_U1: PixelForm
PIXEL_FORM_F4: PixelForm
PIXEL_FORM_ENCODED: PixelForm
PIXEL_LAYOUT_UNSPECIFIED: PixelLayout
PIXEL_LAYOUT_HWC: PixelLayout
PIXEL_LAYOUT_CHW: PixelLayout
IMAGE_FIT_UNSPECIFIED: ImageFit
IMAGE_FIT_PAD: ImageFit
IMAGE_FIT_STRETCH: ImageFit
NUMBER_TYPE_UNSPECIFIED: NumberType
NUMBER_TYPE_F4: NumberType
NUMBER_TYPE_F8: NumberType
PROVIDER_AUTH_TYPE_UNSPECIFIED: ProviderAuthType
PROVIDER_AUTH_TYPE_NONE: ProviderAuthType
PROVIDER_AUTH_TYPE_BEARER: ProviderAuthType
PROVIDER_AUTH_TYPE_API_KEY: ProviderAuthType

class Provider(_message.Message):
    __slots__ = ("id", "name", "display_name", "regions", "retains_frames", "created", "contact_email", "homepage", "standing", "standing_note", "reviewed_at")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    DISPLAY_NAME_FIELD_NUMBER: _ClassVar[int]
    REGIONS_FIELD_NUMBER: _ClassVar[int]
    RETAINS_FRAMES_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    CONTACT_EMAIL_FIELD_NUMBER: _ClassVar[int]
    HOMEPAGE_FIELD_NUMBER: _ClassVar[int]
    STANDING_FIELD_NUMBER: _ClassVar[int]
    STANDING_NOTE_FIELD_NUMBER: _ClassVar[int]
    REVIEWED_AT_FIELD_NUMBER: _ClassVar[int]
    id: str
    name: str
    display_name: str
    regions: _containers.RepeatedScalarFieldContainer[str]
    retains_frames: bool
    created: int
    contact_email: str
    homepage: str
    standing: ProviderStanding
    standing_note: str
    reviewed_at: int
    def __init__(self, id: _Optional[str] = ..., name: _Optional[str] = ..., display_name: _Optional[str] = ..., regions: _Optional[_Iterable[str]] = ..., retains_frames: _Optional[bool] = ..., created: _Optional[int] = ..., contact_email: _Optional[str] = ..., homepage: _Optional[str] = ..., standing: _Optional[_Union[ProviderStanding, str]] = ..., standing_note: _Optional[str] = ..., reviewed_at: _Optional[int] = ...) -> None: ...

class Offering(_message.Message):
    __slots__ = ("id", "model", "provider", "runtime", "status", "contracts", "action_spaces", "embodiments", "precision", "region", "hardware", "price_per_frame", "price_per_action_step", "price_per_1k_tokens", "max_horizon", "dt_ms", "parameters", "created", "verified_at", "terms", "input", "input_source", "actions", "actions_source", "checkpoint")
    ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    RUNTIME_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    CONTRACTS_FIELD_NUMBER: _ClassVar[int]
    ACTION_SPACES_FIELD_NUMBER: _ClassVar[int]
    EMBODIMENTS_FIELD_NUMBER: _ClassVar[int]
    PRECISION_FIELD_NUMBER: _ClassVar[int]
    REGION_FIELD_NUMBER: _ClassVar[int]
    HARDWARE_FIELD_NUMBER: _ClassVar[int]
    PRICE_PER_FRAME_FIELD_NUMBER: _ClassVar[int]
    PRICE_PER_ACTION_STEP_FIELD_NUMBER: _ClassVar[int]
    PRICE_PER_1K_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MAX_HORIZON_FIELD_NUMBER: _ClassVar[int]
    DT_MS_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    VERIFIED_AT_FIELD_NUMBER: _ClassVar[int]
    TERMS_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    INPUT_SOURCE_FIELD_NUMBER: _ClassVar[int]
    ACTIONS_FIELD_NUMBER: _ClassVar[int]
    ACTIONS_SOURCE_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    id: str
    model: str
    provider: str
    runtime: str
    status: OfferingStatus
    contracts: _containers.RepeatedScalarFieldContainer[_contract_pb2.Contract]
    action_spaces: _containers.RepeatedScalarFieldContainer[str]
    embodiments: _containers.RepeatedScalarFieldContainer[str]
    precision: str
    region: str
    hardware: str
    price_per_frame: float
    price_per_action_step: float
    price_per_1k_tokens: float
    max_horizon: int
    dt_ms: int
    parameters: _containers.RepeatedScalarFieldContainer[str]
    created: int
    verified_at: int
    terms: OfferingTerms
    input: _input_contract_pb2.InputContract
    input_source: _input_contract_pb2.ContractSource
    actions: _input_contract_pb2.ActionMeanings
    actions_source: _input_contract_pb2.ContractSource
    checkpoint: _checkpoint_pb2.OfferingCheckpoint
    def __init__(self, id: _Optional[str] = ..., model: _Optional[str] = ..., provider: _Optional[str] = ..., runtime: _Optional[str] = ..., status: _Optional[_Union[OfferingStatus, str]] = ..., contracts: _Optional[_Iterable[_Union[_contract_pb2.Contract, str]]] = ..., action_spaces: _Optional[_Iterable[str]] = ..., embodiments: _Optional[_Iterable[str]] = ..., precision: _Optional[str] = ..., region: _Optional[str] = ..., hardware: _Optional[str] = ..., price_per_frame: _Optional[float] = ..., price_per_action_step: _Optional[float] = ..., price_per_1k_tokens: _Optional[float] = ..., max_horizon: _Optional[int] = ..., dt_ms: _Optional[int] = ..., parameters: _Optional[_Iterable[str]] = ..., created: _Optional[int] = ..., verified_at: _Optional[int] = ..., terms: _Optional[_Union[OfferingTerms, _Mapping]] = ..., input: _Optional[_Union[_input_contract_pb2.InputContract, _Mapping]] = ..., input_source: _Optional[_Union[_input_contract_pb2.ContractSource, str]] = ..., actions: _Optional[_Union[_input_contract_pb2.ActionMeanings, _Mapping]] = ..., actions_source: _Optional[_Union[_input_contract_pb2.ContractSource, str]] = ..., checkpoint: _Optional[_Union[_checkpoint_pb2.OfferingCheckpoint, _Mapping]] = ...) -> None: ...

class OfferingTerms(_message.Message):
    __slots__ = ("endpoint", "auth_type", "cost_usd_per_second", "scaledown_s", "timeout_s", "cold_timeout_s", "bounds", "probe_failures", "advertised", "data_collection", "profile", "note", "action_dim", "scaledown_assumed")
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    AUTH_TYPE_FIELD_NUMBER: _ClassVar[int]
    COST_USD_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    SCALEDOWN_S_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    COLD_TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    BOUNDS_FIELD_NUMBER: _ClassVar[int]
    PROBE_FAILURES_FIELD_NUMBER: _ClassVar[int]
    ADVERTISED_FIELD_NUMBER: _ClassVar[int]
    DATA_COLLECTION_FIELD_NUMBER: _ClassVar[int]
    PROFILE_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    ACTION_DIM_FIELD_NUMBER: _ClassVar[int]
    SCALEDOWN_ASSUMED_FIELD_NUMBER: _ClassVar[int]
    endpoint: str
    auth_type: ProviderAuthType
    cost_usd_per_second: float
    scaledown_s: float
    timeout_s: float
    cold_timeout_s: float
    bounds: _action_pb2.SafetyBounds
    probe_failures: int
    advertised: AdvertisedFigures
    data_collection: str
    profile: WireProfile
    note: str
    action_dim: int
    scaledown_assumed: bool
    def __init__(self, endpoint: _Optional[str] = ..., auth_type: _Optional[_Union[ProviderAuthType, str]] = ..., cost_usd_per_second: _Optional[float] = ..., scaledown_s: _Optional[float] = ..., timeout_s: _Optional[float] = ..., cold_timeout_s: _Optional[float] = ..., bounds: _Optional[_Union[_action_pb2.SafetyBounds, _Mapping]] = ..., probe_failures: _Optional[int] = ..., advertised: _Optional[_Union[AdvertisedFigures, _Mapping]] = ..., data_collection: _Optional[str] = ..., profile: _Optional[_Union[WireProfile, _Mapping]] = ..., note: _Optional[str] = ..., action_dim: _Optional[int] = ..., scaledown_assumed: _Optional[bool] = ...) -> None: ...

class WireProfile(_message.Message):
    __slots__ = ("preset", "frames", "proprio", "instruction_key", "action_keys", "proprio_dim", "samples", "dialect", "action_dims", "constants", "server_model", "coordinates", "session", "reset", "frame_multiple")
    PRESET_FIELD_NUMBER: _ClassVar[int]
    FRAMES_FIELD_NUMBER: _ClassVar[int]
    PROPRIO_FIELD_NUMBER: _ClassVar[int]
    INSTRUCTION_KEY_FIELD_NUMBER: _ClassVar[int]
    ACTION_KEYS_FIELD_NUMBER: _ClassVar[int]
    PROPRIO_DIM_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    DIALECT_FIELD_NUMBER: _ClassVar[int]
    ACTION_DIMS_FIELD_NUMBER: _ClassVar[int]
    CONSTANTS_FIELD_NUMBER: _ClassVar[int]
    SERVER_MODEL_FIELD_NUMBER: _ClassVar[int]
    COORDINATES_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    RESET_FIELD_NUMBER: _ClassVar[int]
    FRAME_MULTIPLE_FIELD_NUMBER: _ClassVar[int]
    preset: str
    frames: _containers.RepeatedCompositeFieldContainer[FrameMapping]
    proprio: _containers.RepeatedCompositeFieldContainer[ProprioMapping]
    instruction_key: str
    action_keys: _containers.RepeatedScalarFieldContainer[str]
    proprio_dim: int
    samples: _containers.RepeatedCompositeFieldContainer[_observation_pb2.Observation]
    dialect: ServerDialect
    action_dims: _containers.RepeatedScalarFieldContainer[int]
    constants: _containers.RepeatedCompositeFieldContainer[WireConstant]
    server_model: str
    coordinates: CoordinateConvention
    session: WireSession
    reset: WireReset
    frame_multiple: int
    def __init__(self, preset: _Optional[str] = ..., frames: _Optional[_Iterable[_Union[FrameMapping, _Mapping]]] = ..., proprio: _Optional[_Iterable[_Union[ProprioMapping, _Mapping]]] = ..., instruction_key: _Optional[str] = ..., action_keys: _Optional[_Iterable[str]] = ..., proprio_dim: _Optional[int] = ..., samples: _Optional[_Iterable[_Union[_observation_pb2.Observation, _Mapping]]] = ..., dialect: _Optional[_Union[ServerDialect, str]] = ..., action_dims: _Optional[_Iterable[int]] = ..., constants: _Optional[_Iterable[_Union[WireConstant, _Mapping]]] = ..., server_model: _Optional[str] = ..., coordinates: _Optional[_Union[CoordinateConvention, str]] = ..., session: _Optional[_Union[WireSession, str]] = ..., reset: _Optional[_Union[WireReset, str]] = ..., frame_multiple: _Optional[int] = ...) -> None: ...

class WireConstant(_message.Message):
    __slots__ = ("key", "text", "number")
    KEY_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    key: str
    text: str
    number: float
    def __init__(self, key: _Optional[str] = ..., text: _Optional[str] = ..., number: _Optional[float] = ...) -> None: ...

class FrameMapping(_message.Message):
    __slots__ = ("camera", "key", "layout", "width", "height", "fit", "rotate_180", "form")
    CAMERA_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_FIELD_NUMBER: _ClassVar[int]
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    HEIGHT_FIELD_NUMBER: _ClassVar[int]
    FIT_FIELD_NUMBER: _ClassVar[int]
    ROTATE_180_FIELD_NUMBER: _ClassVar[int]
    FORM_FIELD_NUMBER: _ClassVar[int]
    camera: str
    key: str
    layout: PixelLayout
    width: int
    height: int
    fit: ImageFit
    rotate_180: bool
    form: PixelForm
    def __init__(self, camera: _Optional[str] = ..., key: _Optional[str] = ..., layout: _Optional[_Union[PixelLayout, str]] = ..., width: _Optional[int] = ..., height: _Optional[int] = ..., fit: _Optional[_Union[ImageFit, str]] = ..., rotate_180: _Optional[bool] = ..., form: _Optional[_Union[PixelForm, str]] = ...) -> None: ...

class ProprioMapping(_message.Message):
    __slots__ = ("start", "end", "key", "dtype")
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    start: int
    end: int
    key: str
    dtype: NumberType
    def __init__(self, start: _Optional[int] = ..., end: _Optional[int] = ..., key: _Optional[str] = ..., dtype: _Optional[_Union[NumberType, str]] = ...) -> None: ...

class ProviderAuth(_message.Message):
    __slots__ = ("type", "secret")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    type: ProviderAuthType
    secret: str
    def __init__(self, type: _Optional[_Union[ProviderAuthType, str]] = ..., secret: _Optional[str] = ...) -> None: ...

class AdvertisedFigures(_message.Message):
    __slots__ = ("p50_ms", "p95_ms", "frames_per_s", "uptime_30d")
    P50_MS_FIELD_NUMBER: _ClassVar[int]
    P95_MS_FIELD_NUMBER: _ClassVar[int]
    FRAMES_PER_S_FIELD_NUMBER: _ClassVar[int]
    UPTIME_30D_FIELD_NUMBER: _ClassVar[int]
    p50_ms: float
    p95_ms: float
    frames_per_s: float
    uptime_30d: float
    def __init__(self, p50_ms: _Optional[float] = ..., p95_ms: _Optional[float] = ..., frames_per_s: _Optional[float] = ..., uptime_30d: _Optional[float] = ...) -> None: ...

class ProbeReport(_message.Message):
    __slots__ = ("id", "offering_id", "started_at", "finished_at", "passed", "checks", "measured", "input", "actions", "address")
    ID_FIELD_NUMBER: _ClassVar[int]
    OFFERING_ID_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    FINISHED_AT_FIELD_NUMBER: _ClassVar[int]
    PASSED_FIELD_NUMBER: _ClassVar[int]
    CHECKS_FIELD_NUMBER: _ClassVar[int]
    MEASURED_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    ACTIONS_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    id: str
    offering_id: str
    started_at: int
    finished_at: int
    passed: bool
    checks: _containers.RepeatedCompositeFieldContainer[ProbeCheck]
    measured: ProbeMeasurements
    input: _input_contract_pb2.InputContract
    actions: _input_contract_pb2.ActionMeanings
    address: str
    def __init__(self, id: _Optional[str] = ..., offering_id: _Optional[str] = ..., started_at: _Optional[int] = ..., finished_at: _Optional[int] = ..., passed: _Optional[bool] = ..., checks: _Optional[_Iterable[_Union[ProbeCheck, _Mapping]]] = ..., measured: _Optional[_Union[ProbeMeasurements, _Mapping]] = ..., input: _Optional[_Union[_input_contract_pb2.InputContract, _Mapping]] = ..., actions: _Optional[_Union[_input_contract_pb2.ActionMeanings, _Mapping]] = ..., address: _Optional[str] = ...) -> None: ...

class ProbeCheck(_message.Message):
    __slots__ = ("name", "passed", "required", "detail", "latency_ms", "next_step")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PASSED_FIELD_NUMBER: _ClassVar[int]
    REQUIRED_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    LATENCY_MS_FIELD_NUMBER: _ClassVar[int]
    NEXT_STEP_FIELD_NUMBER: _ClassVar[int]
    name: str
    passed: bool
    required: bool
    detail: str
    latency_ms: float
    next_step: str
    def __init__(self, name: _Optional[str] = ..., passed: _Optional[bool] = ..., required: _Optional[bool] = ..., detail: _Optional[str] = ..., latency_ms: _Optional[float] = ..., next_step: _Optional[str] = ...) -> None: ...

class ProbeMeasurements(_message.Message):
    __slots__ = ("p50_ms", "p95_ms", "cold_ms", "action_dim", "chunk_steps")
    P50_MS_FIELD_NUMBER: _ClassVar[int]
    P95_MS_FIELD_NUMBER: _ClassVar[int]
    COLD_MS_FIELD_NUMBER: _ClassVar[int]
    ACTION_DIM_FIELD_NUMBER: _ClassVar[int]
    CHUNK_STEPS_FIELD_NUMBER: _ClassVar[int]
    p50_ms: float
    p95_ms: float
    cold_ms: float
    action_dim: int
    chunk_steps: int
    def __init__(self, p50_ms: _Optional[float] = ..., p95_ms: _Optional[float] = ..., cold_ms: _Optional[float] = ..., action_dim: _Optional[int] = ..., chunk_steps: _Optional[int] = ...) -> None: ...
