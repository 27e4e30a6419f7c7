from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Preference(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PREFERENCE_UNSPECIFIED: _ClassVar[Preference]
    PREFERENCE_BALANCED: _ClassVar[Preference]
    PREFERENCE_FASTEST: _ClassVar[Preference]
    PREFERENCE_CHEAPEST: _ClassVar[Preference]
    PREFERENCE_RELIABLE: _ClassVar[Preference]

class SortAxis(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SORT_AXIS_UNSPECIFIED: _ClassVar[SortAxis]
    SORT_AXIS_PRICE: _ClassVar[SortAxis]
    SORT_AXIS_LATENCY: _ClassVar[SortAxis]
    SORT_AXIS_THROUGHPUT: _ClassVar[SortAxis]
    SORT_AXIS_QUALITY: _ClassVar[SortAxis]

class DataCollection(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DATA_COLLECTION_UNSPECIFIED: _ClassVar[DataCollection]
    DATA_COLLECTION_ALLOW: _ClassVar[DataCollection]
    DATA_COLLECTION_DENY: _ClassVar[DataCollection]

class SupplyTrust(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SUPPLY_TRUST_UNSPECIFIED: _ClassVar[SupplyTrust]
    SUPPLY_TRUST_OWN: _ClassVar[SupplyTrust]
    SUPPLY_TRUST_VERIFIED: _ClassVar[SupplyTrust]
    SUPPLY_TRUST_NAMED: _ClassVar[SupplyTrust]
    SUPPLY_TRUST_COMMUNITY: _ClassVar[SupplyTrust]
PREFERENCE_UNSPECIFIED: Preference
PREFERENCE_BALANCED: Preference
PREFERENCE_FASTEST: Preference
PREFERENCE_CHEAPEST: Preference
PREFERENCE_RELIABLE: Preference
SORT_AXIS_UNSPECIFIED: SortAxis
SORT_AXIS_PRICE: SortAxis
SORT_AXIS_LATENCY: SortAxis
SORT_AXIS_THROUGHPUT: SortAxis
SORT_AXIS_QUALITY: SortAxis
DATA_COLLECTION_UNSPECIFIED: DataCollection
DATA_COLLECTION_ALLOW: DataCollection
DATA_COLLECTION_DENY: DataCollection
SUPPLY_TRUST_UNSPECIFIED: SupplyTrust
SUPPLY_TRUST_OWN: SupplyTrust
SUPPLY_TRUST_VERIFIED: SupplyTrust
SUPPLY_TRUST_NAMED: SupplyTrust
SUPPLY_TRUST_COMMUNITY: SupplyTrust

class ProviderPreferences(_message.Message):
    __slots__ = ("order", "only", "ignore", "sort", "objective", "session_id", "max_latency_ms", "deadline_ms", "max_cost_usd", "max_price_per_frame", "max_price_per_action_step", "min_uptime_30d", "region", "data_collection", "require_parameters", "allow_fallbacks", "hedge", "allow_simulated", "models", "trust", "offerings", "require_signed")
    class ObjectiveEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    ORDER_FIELD_NUMBER: _ClassVar[int]
    ONLY_FIELD_NUMBER: _ClassVar[int]
    IGNORE_FIELD_NUMBER: _ClassVar[int]
    SORT_FIELD_NUMBER: _ClassVar[int]
    OBJECTIVE_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    MAX_LATENCY_MS_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_COST_USD_FIELD_NUMBER: _ClassVar[int]
    MAX_PRICE_PER_FRAME_FIELD_NUMBER: _ClassVar[int]
    MAX_PRICE_PER_ACTION_STEP_FIELD_NUMBER: _ClassVar[int]
    MIN_UPTIME_30D_FIELD_NUMBER: _ClassVar[int]
    REGION_FIELD_NUMBER: _ClassVar[int]
    DATA_COLLECTION_FIELD_NUMBER: _ClassVar[int]
    REQUIRE_PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    ALLOW_FALLBACKS_FIELD_NUMBER: _ClassVar[int]
    HEDGE_FIELD_NUMBER: _ClassVar[int]
    ALLOW_SIMULATED_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    TRUST_FIELD_NUMBER: _ClassVar[int]
    OFFERINGS_FIELD_NUMBER: _ClassVar[int]
    REQUIRE_SIGNED_FIELD_NUMBER: _ClassVar[int]
    order: _containers.RepeatedScalarFieldContainer[str]
    only: _containers.RepeatedScalarFieldContainer[str]
    ignore: _containers.RepeatedScalarFieldContainer[str]
    sort: SortAxis
    objective: _containers.ScalarMap[str, float]
    session_id: str
    max_latency_ms: int
    deadline_ms: int
    max_cost_usd: float
    max_price_per_frame: float
    max_price_per_action_step: float
    min_uptime_30d: float
    region: _containers.RepeatedScalarFieldContainer[str]
    data_collection: DataCollection
    require_parameters: bool
    allow_fallbacks: bool
    hedge: Hedge
    allow_simulated: bool
    models: _containers.RepeatedScalarFieldContainer[str]
    trust: SupplyTrust
    offerings: _containers.RepeatedScalarFieldContainer[str]
    require_signed: bool
    def __init__(self, order: _Optional[_Iterable[str]] = ..., only: _Optional[_Iterable[str]] = ..., ignore: _Optional[_Iterable[str]] = ..., sort: _Optional[_Union[SortAxis, str]] = ..., objective: _Optional[_Mapping[str, float]] = ..., session_id: _Optional[str] = ..., max_latency_ms: _Optional[int] = ..., deadline_ms: _Optional[int] = ..., max_cost_usd: _Optional[float] = ..., max_price_per_frame: _Optional[float] = ..., max_price_per_action_step: _Optional[float] = ..., min_uptime_30d: _Optional[float] = ..., region: _Optional[_Iterable[str]] = ..., data_collection: _Optional[_Union[DataCollection, str]] = ..., require_parameters: _Optional[bool] = ..., allow_fallbacks: _Optional[bool] = ..., hedge: _Optional[_Union[Hedge, _Mapping]] = ..., allow_simulated: _Optional[bool] = ..., models: _Optional[_Iterable[str]] = ..., trust: _Optional[_Union[SupplyTrust, str]] = ..., offerings: _Optional[_Iterable[str]] = ..., require_signed: _Optional[bool] = ...) -> None: ...

class Hedge(_message.Message):
    __slots__ = ("after_ms",)
    AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    after_ms: int
    def __init__(self, after_ms: _Optional[int] = ...) -> None: ...
