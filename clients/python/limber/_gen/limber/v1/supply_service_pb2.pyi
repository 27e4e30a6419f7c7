from google.protobuf import struct_pb2 as _struct_pb2
from limber._gen.limber.v1 import action_pb2 as _action_pb2
from limber._gen.limber.v1 import checkpoint_pb2 as _checkpoint_pb2
from limber._gen.limber.v1 import contract_pb2 as _contract_pb2
from limber._gen.limber.v1 import earning_pb2 as _earning_pb2
from limber._gen.limber.v1 import input_contract_pb2 as _input_contract_pb2
from limber._gen.limber.v1 import supply_pb2 as _supply_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RegisterProviderRequest(_message.Message):
    __slots__ = ("name", "display_name", "contact_email", "regions", "data_collection", "homepage")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DISPLAY_NAME_FIELD_NUMBER: _ClassVar[int]
    CONTACT_EMAIL_FIELD_NUMBER: _ClassVar[int]
    REGIONS_FIELD_NUMBER: _ClassVar[int]
    DATA_COLLECTION_FIELD_NUMBER: _ClassVar[int]
    HOMEPAGE_FIELD_NUMBER: _ClassVar[int]
    name: str
    display_name: str
    contact_email: str
    regions: _containers.RepeatedScalarFieldContainer[str]
    data_collection: str
    homepage: str
    def __init__(self, name: _Optional[str] = ..., display_name: _Optional[str] = ..., contact_email: _Optional[str] = ..., regions: _Optional[_Iterable[str]] = ..., data_collection: _Optional[str] = ..., homepage: _Optional[str] = ...) -> None: ...

class RegisterProviderResponse(_message.Message):
    __slots__ = ("provider",)
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    provider: _supply_pb2.Provider
    def __init__(self, provider: _Optional[_Union[_supply_pb2.Provider, _Mapping]] = ...) -> None: ...

class DeclareModelRequest(_message.Message):
    __slots__ = ("provider", "model", "runtime", "endpoint", "hardware", "contracts", "action_spaces", "action_dim", "embodiments", "precision", "region", "price_per_frame", "price_per_action_step", "price_per_1k_tokens", "max_horizon", "dt_ms", "profile", "auth", "advertised", "timeout_s", "cold_timeout_s", "cost_usd_per_second", "scaledown_s", "parameters", "note", "bounds", "data_collection", "price_per_episode", "input", "actions", "checkpoint")
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    RUNTIME_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    HARDWARE_FIELD_NUMBER: _ClassVar[int]
    CONTRACTS_FIELD_NUMBER: _ClassVar[int]
    ACTION_SPACES_FIELD_NUMBER: _ClassVar[int]
    ACTION_DIM_FIELD_NUMBER: _ClassVar[int]
    EMBODIMENTS_FIELD_NUMBER: _ClassVar[int]
    PRECISION_FIELD_NUMBER: _ClassVar[int]
    REGION_FIELD_NUMBER: _ClassVar[int]
    PRICE_PER_FRAME_FIELD_NUMBER: _ClassVar[int]
    PRICE_PER_ACTION_STEP_FIELD_NUMBER: _ClassVar[int]
    PRICE_PER_1K_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MAX_HORIZON_FIELD_NUMBER: _ClassVar[int]
    DT_MS_FIELD_NUMBER: _ClassVar[int]
    PROFILE_FIELD_NUMBER: _ClassVar[int]
    AUTH_FIELD_NUMBER: _ClassVar[int]
    ADVERTISED_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    COLD_TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    COST_USD_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    SCALEDOWN_S_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    BOUNDS_FIELD_NUMBER: _ClassVar[int]
    DATA_COLLECTION_FIELD_NUMBER: _ClassVar[int]
    PRICE_PER_EPISODE_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    ACTIONS_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    provider: str
    model: str
    runtime: str
    endpoint: str
    hardware: str
    contracts: _containers.RepeatedScalarFieldContainer[_contract_pb2.Contract]
    action_spaces: _containers.RepeatedScalarFieldContainer[str]
    action_dim: int
    embodiments: _containers.RepeatedScalarFieldContainer[str]
    precision: str
    region: str
    price_per_frame: float
    price_per_action_step: float
    price_per_1k_tokens: float
    max_horizon: int
    dt_ms: int
    profile: _supply_pb2.WireProfile
    auth: _supply_pb2.ProviderAuth
    advertised: _supply_pb2.AdvertisedFigures
    timeout_s: float
    cold_timeout_s: float
    cost_usd_per_second: float
    scaledown_s: float
    parameters: _containers.RepeatedScalarFieldContainer[str]
    note: str
    bounds: _action_pb2.SafetyBounds
    data_collection: str
    price_per_episode: float
    input: _input_contract_pb2.InputContract
    actions: _input_contract_pb2.ActionMeanings
    checkpoint: _checkpoint_pb2.SignedCheckpoint
    def __init__(self, provider: _Optional[str] = ..., model: _Optional[str] = ..., runtime: _Optional[str] = ..., endpoint: _Optional[str] = ..., hardware: _Optional[str] = ..., contracts: _Optional[_Iterable[_Union[_contract_pb2.Contract, str]]] = ..., action_spaces: _Optional[_Iterable[str]] = ..., action_dim: _Optional[int] = ..., embodiments: _Optional[_Iterable[str]] = ..., precision: _Optional[str] = ..., region: _Optional[str] = ..., price_per_frame: _Optional[float] = ..., price_per_action_step: _Optional[float] = ..., price_per_1k_tokens: _Optional[float] = ..., max_horizon: _Optional[int] = ..., dt_ms: _Optional[int] = ..., profile: _Optional[_Union[_supply_pb2.WireProfile, _Mapping]] = ..., auth: _Optional[_Union[_supply_pb2.ProviderAuth, _Mapping]] = ..., advertised: _Optional[_Union[_supply_pb2.AdvertisedFigures, _Mapping]] = ..., timeout_s: _Optional[float] = ..., cold_timeout_s: _Optional[float] = ..., cost_usd_per_second: _Optional[float] = ..., scaledown_s: _Optional[float] = ..., parameters: _Optional[_Iterable[str]] = ..., note: _Optional[str] = ..., bounds: _Optional[_Union[_action_pb2.SafetyBounds, _Mapping]] = ..., data_collection: _Optional[str] = ..., price_per_episode: _Optional[float] = ..., input: _Optional[_Union[_input_contract_pb2.InputContract, _Mapping]] = ..., actions: _Optional[_Union[_input_contract_pb2.ActionMeanings, _Mapping]] = ..., checkpoint: _Optional[_Union[_checkpoint_pb2.SignedCheckpoint, _Mapping]] = ...) -> None: ...

class DeclareModelResponse(_message.Message):
    __slots__ = ("offering",)
    OFFERING_FIELD_NUMBER: _ClassVar[int]
    offering: _supply_pb2.Offering
    def __init__(self, offering: _Optional[_Union[_supply_pb2.Offering, _Mapping]] = ...) -> None: ...

class VerifyOfferingRequest(_message.Message):
    __slots__ = ("offering_id",)
    OFFERING_ID_FIELD_NUMBER: _ClassVar[int]
    offering_id: str
    def __init__(self, offering_id: _Optional[str] = ...) -> None: ...

class VerifyOfferingResponse(_message.Message):
    __slots__ = ("offering", "report")
    OFFERING_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    offering: _supply_pb2.Offering
    report: _supply_pb2.ProbeReport
    def __init__(self, offering: _Optional[_Union[_supply_pb2.Offering, _Mapping]] = ..., report: _Optional[_Union[_supply_pb2.ProbeReport, _Mapping]] = ...) -> None: ...

class ListOwnProvidersRequest(_message.Message):
    __slots__ = ("limit", "cursor")
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    limit: int
    cursor: str
    def __init__(self, limit: _Optional[int] = ..., cursor: _Optional[str] = ...) -> None: ...

class ListOwnProvidersResponse(_message.Message):
    __slots__ = ("object", "data", "has_more", "next_cursor")
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_FIELD_NUMBER: _ClassVar[int]
    NEXT_CURSOR_FIELD_NUMBER: _ClassVar[int]
    object: str
    data: _containers.RepeatedCompositeFieldContainer[_supply_pb2.Provider]
    has_more: bool
    next_cursor: str
    def __init__(self, object: _Optional[str] = ..., data: _Optional[_Iterable[_Union[_supply_pb2.Provider, _Mapping]]] = ..., has_more: _Optional[bool] = ..., next_cursor: _Optional[str] = ...) -> None: ...

class GetOwnProviderRequest(_message.Message):
    __slots__ = ("provider",)
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    provider: str
    def __init__(self, provider: _Optional[str] = ...) -> None: ...

class GetOwnProviderResponse(_message.Message):
    __slots__ = ("provider",)
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    provider: _supply_pb2.Provider
    def __init__(self, provider: _Optional[_Union[_supply_pb2.Provider, _Mapping]] = ...) -> None: ...

class UpdateProviderRequest(_message.Message):
    __slots__ = ("provider", "display_name", "contact_email", "regions", "data_collection", "homepage")
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    DISPLAY_NAME_FIELD_NUMBER: _ClassVar[int]
    CONTACT_EMAIL_FIELD_NUMBER: _ClassVar[int]
    REGIONS_FIELD_NUMBER: _ClassVar[int]
    DATA_COLLECTION_FIELD_NUMBER: _ClassVar[int]
    HOMEPAGE_FIELD_NUMBER: _ClassVar[int]
    provider: str
    display_name: str
    contact_email: str
    regions: _containers.RepeatedScalarFieldContainer[str]
    data_collection: str
    homepage: str
    def __init__(self, provider: _Optional[str] = ..., display_name: _Optional[str] = ..., contact_email: _Optional[str] = ..., regions: _Optional[_Iterable[str]] = ..., data_collection: _Optional[str] = ..., homepage: _Optional[str] = ...) -> None: ...

class UpdateProviderResponse(_message.Message):
    __slots__ = ("provider",)
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    provider: _supply_pb2.Provider
    def __init__(self, provider: _Optional[_Union[_supply_pb2.Provider, _Mapping]] = ...) -> None: ...

class ListOfferingsRequest(_message.Message):
    __slots__ = ("mine", "provider", "model", "status", "limit", "cursor")
    MINE_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    mine: bool
    provider: str
    model: str
    status: _supply_pb2.OfferingStatus
    limit: int
    cursor: str
    def __init__(self, mine: _Optional[bool] = ..., provider: _Optional[str] = ..., model: _Optional[str] = ..., status: _Optional[_Union[_supply_pb2.OfferingStatus, str]] = ..., limit: _Optional[int] = ..., cursor: _Optional[str] = ...) -> None: ...

class ListOfferingsResponse(_message.Message):
    __slots__ = ("object", "data", "has_more", "next_cursor")
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_FIELD_NUMBER: _ClassVar[int]
    NEXT_CURSOR_FIELD_NUMBER: _ClassVar[int]
    object: str
    data: _containers.RepeatedCompositeFieldContainer[_supply_pb2.Offering]
    has_more: bool
    next_cursor: str
    def __init__(self, object: _Optional[str] = ..., data: _Optional[_Iterable[_Union[_supply_pb2.Offering, _Mapping]]] = ..., has_more: _Optional[bool] = ..., next_cursor: _Optional[str] = ...) -> None: ...

class GetOfferingRequest(_message.Message):
    __slots__ = ("offering_id",)
    OFFERING_ID_FIELD_NUMBER: _ClassVar[int]
    offering_id: str
    def __init__(self, offering_id: _Optional[str] = ...) -> None: ...

class GetOfferingResponse(_message.Message):
    __slots__ = ("offering",)
    OFFERING_FIELD_NUMBER: _ClassVar[int]
    offering: _supply_pb2.Offering
    def __init__(self, offering: _Optional[_Union[_supply_pb2.Offering, _Mapping]] = ...) -> None: ...

class GetReportRequest(_message.Message):
    __slots__ = ("offering_id", "running")
    OFFERING_ID_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    offering_id: str
    running: bool
    def __init__(self, offering_id: _Optional[str] = ..., running: _Optional[bool] = ...) -> None: ...

class GetReportResponse(_message.Message):
    __slots__ = ("report",)
    REPORT_FIELD_NUMBER: _ClassVar[int]
    report: _supply_pb2.ProbeReport
    def __init__(self, report: _Optional[_Union[_supply_pb2.ProbeReport, _Mapping]] = ...) -> None: ...

class UpdateOfferingRequest(_message.Message):
    __slots__ = ("offering_id", "hardware", "cost_usd_per_second", "scaledown_s", "timeout_s", "cold_timeout_s", "id", "provider", "model", "runtime", "endpoint", "status", "contracts", "action_spaces", "action_dim", "embodiments", "precision", "region", "price_per_frame", "price_per_action_step", "price_per_1k_tokens", "price_per_episode", "max_horizon", "dt_ms", "profile", "auth", "advertised", "parameters", "note", "bounds", "data_collection")
    OFFERING_ID_FIELD_NUMBER: _ClassVar[int]
    HARDWARE_FIELD_NUMBER: _ClassVar[int]
    COST_USD_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    SCALEDOWN_S_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    COLD_TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    RUNTIME_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    CONTRACTS_FIELD_NUMBER: _ClassVar[int]
    ACTION_SPACES_FIELD_NUMBER: _ClassVar[int]
    ACTION_DIM_FIELD_NUMBER: _ClassVar[int]
    EMBODIMENTS_FIELD_NUMBER: _ClassVar[int]
    PRECISION_FIELD_NUMBER: _ClassVar[int]
    REGION_FIELD_NUMBER: _ClassVar[int]
    PRICE_PER_FRAME_FIELD_NUMBER: _ClassVar[int]
    PRICE_PER_ACTION_STEP_FIELD_NUMBER: _ClassVar[int]
    PRICE_PER_1K_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PRICE_PER_EPISODE_FIELD_NUMBER: _ClassVar[int]
    MAX_HORIZON_FIELD_NUMBER: _ClassVar[int]
    DT_MS_FIELD_NUMBER: _ClassVar[int]
    PROFILE_FIELD_NUMBER: _ClassVar[int]
    AUTH_FIELD_NUMBER: _ClassVar[int]
    ADVERTISED_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    BOUNDS_FIELD_NUMBER: _ClassVar[int]
    DATA_COLLECTION_FIELD_NUMBER: _ClassVar[int]
    offering_id: str
    hardware: str
    cost_usd_per_second: float
    scaledown_s: float
    timeout_s: float
    cold_timeout_s: float
    id: _struct_pb2.Value
    provider: _struct_pb2.Value
    model: _struct_pb2.Value
    runtime: _struct_pb2.Value
    endpoint: _struct_pb2.Value
    status: _struct_pb2.Value
    contracts: _struct_pb2.Value
    action_spaces: _struct_pb2.Value
    action_dim: _struct_pb2.Value
    embodiments: _struct_pb2.Value
    precision: _struct_pb2.Value
    region: _struct_pb2.Value
    price_per_frame: _struct_pb2.Value
    price_per_action_step: _struct_pb2.Value
    price_per_1k_tokens: _struct_pb2.Value
    price_per_episode: _struct_pb2.Value
    max_horizon: _struct_pb2.Value
    dt_ms: _struct_pb2.Value
    profile: _struct_pb2.Value
    auth: _struct_pb2.Value
    advertised: _struct_pb2.Value
    parameters: _struct_pb2.Value
    note: _struct_pb2.Value
    bounds: _struct_pb2.Value
    data_collection: _struct_pb2.Value
    def __init__(self, offering_id: _Optional[str] = ..., hardware: _Optional[str] = ..., cost_usd_per_second: _Optional[float] = ..., scaledown_s: _Optional[float] = ..., timeout_s: _Optional[float] = ..., cold_timeout_s: _Optional[float] = ..., id: _Optional[_Union[_struct_pb2.Value, _Mapping]] = ..., provider: _Optional[_Union[_struct_pb2.Value, _Mapping]] = ..., model: _Optional[_Union[_struct_pb2.Value, _Mapping]] = ..., runtime: _Optional[_Union[_struct_pb2.Value, _Mapping]] = ..., endpoint: _Optional[_Union[_struct_pb2.Value, _Mapping]] = ..., status: _Optional[_Union[_struct_pb2.Value, _Mapping]] = ..., contracts: _Optional[_Union[_struct_pb2.Value, _Mapping]] = ..., action_spaces: _Optional[_Union[_struct_pb2.Value, _Mapping]] = ..., action_dim: _Optional[_Union[_struct_pb2.Value, _Mapping]] = ..., embodiments: _Optional[_Union[_struct_pb2.Value, _Mapping]] = ..., precision: _Optional[_Union[_struct_pb2.Value, _Mapping]] = ..., region: _Optional[_Union[_struct_pb2.Value, _Mapping]] = ..., price_per_frame: _Optional[_Union[_struct_pb2.Value, _Mapping]] = ..., price_per_action_step: _Optional[_Union[_struct_pb2.Value, _Mapping]] = ..., price_per_1k_tokens: _Optional[_Union[_struct_pb2.Value, _Mapping]] = ..., price_per_episode: _Optional[_Union[_struct_pb2.Value, _Mapping]] = ..., max_horizon: _Optional[_Union[_struct_pb2.Value, _Mapping]] = ..., dt_ms: _Optional[_Union[_struct_pb2.Value, _Mapping]] = ..., profile: _Optional[_Union[_struct_pb2.Value, _Mapping]] = ..., auth: _Optional[_Union[_struct_pb2.Value, _Mapping]] = ..., advertised: _Optional[_Union[_struct_pb2.Value, _Mapping]] = ..., parameters: _Optional[_Union[_struct_pb2.Value, _Mapping]] = ..., note: _Optional[_Union[_struct_pb2.Value, _Mapping]] = ..., bounds: _Optional[_Union[_struct_pb2.Value, _Mapping]] = ..., data_collection: _Optional[_Union[_struct_pb2.Value, _Mapping]] = ...) -> None: ...

class UpdateOfferingResponse(_message.Message):
    __slots__ = ("offering",)
    OFFERING_FIELD_NUMBER: _ClassVar[int]
    offering: _supply_pb2.Offering
    def __init__(self, offering: _Optional[_Union[_supply_pb2.Offering, _Mapping]] = ...) -> None: ...

class DeleteOfferingRequest(_message.Message):
    __slots__ = ("offering_id", "force")
    OFFERING_ID_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    offering_id: str
    force: bool
    def __init__(self, offering_id: _Optional[str] = ..., force: _Optional[bool] = ...) -> None: ...

class DeleteOfferingResponse(_message.Message):
    __slots__ = ("offering",)
    OFFERING_FIELD_NUMBER: _ClassVar[int]
    offering: _supply_pb2.Offering
    def __init__(self, offering: _Optional[_Union[_supply_pb2.Offering, _Mapping]] = ...) -> None: ...

class ListHardwareRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListHardwareResponse(_message.Message):
    __slots__ = ("object", "data")
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    object: str
    data: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, object: _Optional[str] = ..., data: _Optional[_Iterable[str]] = ...) -> None: ...

class ReviewProviderRequest(_message.Message):
    __slots__ = ("provider", "standing", "note")
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    STANDING_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    provider: str
    standing: _supply_pb2.ProviderStanding
    note: str
    def __init__(self, provider: _Optional[str] = ..., standing: _Optional[_Union[_supply_pb2.ProviderStanding, str]] = ..., note: _Optional[str] = ...) -> None: ...

class ReviewProviderResponse(_message.Message):
    __slots__ = ("provider",)
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    provider: _supply_pb2.Provider
    def __init__(self, provider: _Optional[_Union[_supply_pb2.Provider, _Mapping]] = ...) -> None: ...

class SetModelOwnerRequest(_message.Message):
    __slots__ = ("owner", "org_id", "nobody")
    OWNER_FIELD_NUMBER: _ClassVar[int]
    ORG_ID_FIELD_NUMBER: _ClassVar[int]
    NOBODY_FIELD_NUMBER: _ClassVar[int]
    owner: str
    org_id: str
    nobody: bool
    def __init__(self, owner: _Optional[str] = ..., org_id: _Optional[str] = ..., nobody: _Optional[bool] = ...) -> None: ...

class SetModelOwnerResponse(_message.Message):
    __slots__ = ("owner", "org_id")
    OWNER_FIELD_NUMBER: _ClassVar[int]
    ORG_ID_FIELD_NUMBER: _ClassVar[int]
    owner: str
    org_id: str
    def __init__(self, owner: _Optional[str] = ..., org_id: _Optional[str] = ...) -> None: ...

class PauseOfferingRequest(_message.Message):
    __slots__ = ("offering_id",)
    OFFERING_ID_FIELD_NUMBER: _ClassVar[int]
    offering_id: str
    def __init__(self, offering_id: _Optional[str] = ...) -> None: ...

class PauseOfferingResponse(_message.Message):
    __slots__ = ("offering",)
    OFFERING_FIELD_NUMBER: _ClassVar[int]
    offering: _supply_pb2.Offering
    def __init__(self, offering: _Optional[_Union[_supply_pb2.Offering, _Mapping]] = ...) -> None: ...

class ResumeOfferingRequest(_message.Message):
    __slots__ = ("offering_id",)
    OFFERING_ID_FIELD_NUMBER: _ClassVar[int]
    offering_id: str
    def __init__(self, offering_id: _Optional[str] = ...) -> None: ...

class ResumeOfferingResponse(_message.Message):
    __slots__ = ("offering",)
    OFFERING_FIELD_NUMBER: _ClassVar[int]
    offering: _supply_pb2.Offering
    def __init__(self, offering: _Optional[_Union[_supply_pb2.Offering, _Mapping]] = ...) -> None: ...

class GetOfferingStatsRequest(_message.Message):
    __slots__ = ("offering_id", "days")
    OFFERING_ID_FIELD_NUMBER: _ClassVar[int]
    DAYS_FIELD_NUMBER: _ClassVar[int]
    offering_id: str
    days: int
    def __init__(self, offering_id: _Optional[str] = ..., days: _Optional[int] = ...) -> None: ...

class GetOfferingStatsResponse(_message.Message):
    __slots__ = ("offering_id", "model", "provider", "days", "breaker")
    OFFERING_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    DAYS_FIELD_NUMBER: _ClassVar[int]
    BREAKER_FIELD_NUMBER: _ClassVar[int]
    offering_id: str
    model: str
    provider: str
    days: _containers.RepeatedCompositeFieldContainer[_earning_pb2.OfferingDay]
    breaker: _containers.RepeatedCompositeFieldContainer[_earning_pb2.BreakerChange]
    def __init__(self, offering_id: _Optional[str] = ..., model: _Optional[str] = ..., provider: _Optional[str] = ..., days: _Optional[_Iterable[_Union[_earning_pb2.OfferingDay, _Mapping]]] = ..., breaker: _Optional[_Iterable[_Union[_earning_pb2.BreakerChange, _Mapping]]] = ...) -> None: ...

class ListEarningsRequest(_message.Message):
    __slots__ = ("provider", "model", "offering_id", "since", "until", "limit", "cursor")
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    OFFERING_ID_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    provider: str
    model: str
    offering_id: str
    since: int
    until: int
    limit: int
    cursor: str
    def __init__(self, provider: _Optional[str] = ..., model: _Optional[str] = ..., offering_id: _Optional[str] = ..., since: _Optional[int] = ..., until: _Optional[int] = ..., limit: _Optional[int] = ..., cursor: _Optional[str] = ...) -> None: ...

class ListEarningsResponse(_message.Message):
    __slots__ = ("object", "data", "has_more", "next_cursor")
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_FIELD_NUMBER: _ClassVar[int]
    NEXT_CURSOR_FIELD_NUMBER: _ClassVar[int]
    object: str
    data: _containers.RepeatedCompositeFieldContainer[_earning_pb2.Earning]
    has_more: bool
    next_cursor: str
    def __init__(self, object: _Optional[str] = ..., data: _Optional[_Iterable[_Union[_earning_pb2.Earning, _Mapping]]] = ..., has_more: _Optional[bool] = ..., next_cursor: _Optional[str] = ...) -> None: ...

class ListStatementsRequest(_message.Message):
    __slots__ = ("provider", "limit", "cursor")
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    provider: str
    limit: int
    cursor: str
    def __init__(self, provider: _Optional[str] = ..., limit: _Optional[int] = ..., cursor: _Optional[str] = ...) -> None: ...

class ListStatementsResponse(_message.Message):
    __slots__ = ("object", "data", "has_more", "next_cursor")
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_FIELD_NUMBER: _ClassVar[int]
    NEXT_CURSOR_FIELD_NUMBER: _ClassVar[int]
    object: str
    data: _containers.RepeatedCompositeFieldContainer[_earning_pb2.Statement]
    has_more: bool
    next_cursor: str
    def __init__(self, object: _Optional[str] = ..., data: _Optional[_Iterable[_Union[_earning_pb2.Statement, _Mapping]]] = ..., has_more: _Optional[bool] = ..., next_cursor: _Optional[str] = ...) -> None: ...

class GetProviderBalanceRequest(_message.Message):
    __slots__ = ("provider",)
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    provider: str
    def __init__(self, provider: _Optional[str] = ...) -> None: ...

class GetProviderBalanceResponse(_message.Message):
    __slots__ = ("balance",)
    BALANCE_FIELD_NUMBER: _ClassVar[int]
    balance: _earning_pb2.ProviderBalance
    def __init__(self, balance: _Optional[_Union[_earning_pb2.ProviderBalance, _Mapping]] = ...) -> None: ...

class ListPayoutsRequest(_message.Message):
    __slots__ = ("provider", "limit", "cursor")
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    provider: str
    limit: int
    cursor: str
    def __init__(self, provider: _Optional[str] = ..., limit: _Optional[int] = ..., cursor: _Optional[str] = ...) -> None: ...

class ListPayoutsResponse(_message.Message):
    __slots__ = ("object", "data", "has_more", "next_cursor")
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_FIELD_NUMBER: _ClassVar[int]
    NEXT_CURSOR_FIELD_NUMBER: _ClassVar[int]
    object: str
    data: _containers.RepeatedCompositeFieldContainer[_earning_pb2.Payout]
    has_more: bool
    next_cursor: str
    def __init__(self, object: _Optional[str] = ..., data: _Optional[_Iterable[_Union[_earning_pb2.Payout, _Mapping]]] = ..., has_more: _Optional[bool] = ..., next_cursor: _Optional[str] = ...) -> None: ...

class RecordPayoutRequest(_message.Message):
    __slots__ = ("provider", "amount_usd", "reference")
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    AMOUNT_USD_FIELD_NUMBER: _ClassVar[int]
    REFERENCE_FIELD_NUMBER: _ClassVar[int]
    provider: str
    amount_usd: float
    reference: str
    def __init__(self, provider: _Optional[str] = ..., amount_usd: _Optional[float] = ..., reference: _Optional[str] = ...) -> None: ...

class RecordPayoutResponse(_message.Message):
    __slots__ = ("payout",)
    PAYOUT_FIELD_NUMBER: _ClassVar[int]
    payout: _earning_pb2.Payout
    def __init__(self, payout: _Optional[_Union[_earning_pb2.Payout, _Mapping]] = ...) -> None: ...

class SetShareRequest(_message.Message):
    __slots__ = ("provider", "percent")
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    PERCENT_FIELD_NUMBER: _ClassVar[int]
    provider: str
    percent: float
    def __init__(self, provider: _Optional[str] = ..., percent: _Optional[float] = ...) -> None: ...

class SetShareResponse(_message.Message):
    __slots__ = ("provider", "percent")
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    PERCENT_FIELD_NUMBER: _ClassVar[int]
    provider: str
    percent: float
    def __init__(self, provider: _Optional[str] = ..., percent: _Optional[float] = ...) -> None: ...
