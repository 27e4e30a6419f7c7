from limber._gen.limber.v1 import contract_pb2 as _contract_pb2
from limber._gen.limber.v1 import input_contract_pb2 as _input_contract_pb2
from limber._gen.limber.v1 import preferences_pb2 as _preferences_pb2
from limber._gen.limber.v1 import supply_pb2 as _supply_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CircuitState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CIRCUIT_STATE_UNSPECIFIED: _ClassVar[CircuitState]
    CIRCUIT_STATE_CLOSED: _ClassVar[CircuitState]
    CIRCUIT_STATE_OPEN: _ClassVar[CircuitState]
    CIRCUIT_STATE_HALF_OPEN: _ClassVar[CircuitState]
    CIRCUIT_STATE_FORCED_OPEN: _ClassVar[CircuitState]
    CIRCUIT_STATE_FORCED_CLOSED: _ClassVar[CircuitState]

class ModelKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MODEL_KIND_UNSPECIFIED: _ClassVar[ModelKind]
    MODEL_KIND_WORLD_MODEL: _ClassVar[ModelKind]
    MODEL_KIND_POLICY: _ClassVar[ModelKind]
    MODEL_KIND_REASONING: _ClassVar[ModelKind]

class Domain(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DOMAIN_UNSPECIFIED: _ClassVar[Domain]
    DOMAIN_EMBODIED: _ClassVar[Domain]
    DOMAIN_DRIVING: _ClassVar[Domain]
    DOMAIN_GAME: _ClassVar[Domain]
    DOMAIN_SCIENCE: _ClassVar[Domain]
    DOMAIN_GENERAL: _ClassVar[Domain]

class ModelTier(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MODEL_TIER_UNSPECIFIED: _ClassVar[ModelTier]
    MODEL_TIER_SERVABLE: _ClassVar[ModelTier]
    MODEL_TIER_INTEGRATION: _ClassVar[ModelTier]
    MODEL_TIER_CATALOG: _ClassVar[ModelTier]

class ModelEra(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MODEL_ERA_UNSPECIFIED: _ClassVar[ModelEra]
    MODEL_ERA_CURRENT: _ClassVar[ModelEra]
    MODEL_ERA_CLASSIC: _ClassVar[ModelEra]

class Embodiment(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EMBODIMENT_UNSPECIFIED: _ClassVar[Embodiment]
    EMBODIMENT_ARM: _ClassVar[Embodiment]
    EMBODIMENT_HUMANOID: _ClassVar[Embodiment]
    EMBODIMENT_QUADRUPED: _ClassVar[Embodiment]
    EMBODIMENT_MOBILE_BASE: _ClassVar[Embodiment]
    EMBODIMENT_VEHICLE: _ClassVar[Embodiment]
    EMBODIMENT_VIRTUAL_AGENT: _ClassVar[Embodiment]
    EMBODIMENT_AGNOSTIC: _ClassVar[Embodiment]
    EMBODIMENT_NONE: _ClassVar[Embodiment]

class LiteratureKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LITERATURE_KIND_UNSPECIFIED: _ClassVar[LiteratureKind]
    LITERATURE_KIND_SURVEY: _ClassVar[LiteratureKind]
    LITERATURE_KIND_POSITION: _ClassVar[LiteratureKind]
    LITERATURE_KIND_THEORY: _ClassVar[LiteratureKind]
    LITERATURE_KIND_TUTORIAL: _ClassVar[LiteratureKind]
CIRCUIT_STATE_UNSPECIFIED: CircuitState
CIRCUIT_STATE_CLOSED: CircuitState
CIRCUIT_STATE_OPEN: CircuitState
CIRCUIT_STATE_HALF_OPEN: CircuitState
CIRCUIT_STATE_FORCED_OPEN: CircuitState
CIRCUIT_STATE_FORCED_CLOSED: CircuitState
MODEL_KIND_UNSPECIFIED: ModelKind
MODEL_KIND_WORLD_MODEL: ModelKind
MODEL_KIND_POLICY: ModelKind
MODEL_KIND_REASONING: ModelKind
DOMAIN_UNSPECIFIED: Domain
DOMAIN_EMBODIED: Domain
DOMAIN_DRIVING: Domain
DOMAIN_GAME: Domain
DOMAIN_SCIENCE: Domain
DOMAIN_GENERAL: Domain
MODEL_TIER_UNSPECIFIED: ModelTier
MODEL_TIER_SERVABLE: ModelTier
MODEL_TIER_INTEGRATION: ModelTier
MODEL_TIER_CATALOG: ModelTier
MODEL_ERA_UNSPECIFIED: ModelEra
MODEL_ERA_CURRENT: ModelEra
MODEL_ERA_CLASSIC: ModelEra
EMBODIMENT_UNSPECIFIED: Embodiment
EMBODIMENT_ARM: Embodiment
EMBODIMENT_HUMANOID: Embodiment
EMBODIMENT_QUADRUPED: Embodiment
EMBODIMENT_MOBILE_BASE: Embodiment
EMBODIMENT_VEHICLE: Embodiment
EMBODIMENT_VIRTUAL_AGENT: Embodiment
EMBODIMENT_AGNOSTIC: Embodiment
EMBODIMENT_NONE: Embodiment
LITERATURE_KIND_UNSPECIFIED: LiteratureKind
LITERATURE_KIND_SURVEY: LiteratureKind
LITERATURE_KIND_POSITION: LiteratureKind
LITERATURE_KIND_THEORY: LiteratureKind
LITERATURE_KIND_TUTORIAL: LiteratureKind

class Model(_message.Message):
    __slots__ = ("id", "object", "name", "vendor", "summary", "limits", "kind", "domain", "family", "tier", "era", "contracts", "embodiments", "action_spaces", "featured", "providers", "servable_candidate", "year", "params_b", "license", "arxiv", "repo", "weights", "protocols", "sources", "offerings", "deprecated_at", "sunset_at", "input", "actions")
    ID_FIELD_NUMBER: _ClassVar[int]
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    VENDOR_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    FAMILY_FIELD_NUMBER: _ClassVar[int]
    TIER_FIELD_NUMBER: _ClassVar[int]
    ERA_FIELD_NUMBER: _ClassVar[int]
    CONTRACTS_FIELD_NUMBER: _ClassVar[int]
    EMBODIMENTS_FIELD_NUMBER: _ClassVar[int]
    ACTION_SPACES_FIELD_NUMBER: _ClassVar[int]
    FEATURED_FIELD_NUMBER: _ClassVar[int]
    PROVIDERS_FIELD_NUMBER: _ClassVar[int]
    SERVABLE_CANDIDATE_FIELD_NUMBER: _ClassVar[int]
    YEAR_FIELD_NUMBER: _ClassVar[int]
    PARAMS_B_FIELD_NUMBER: _ClassVar[int]
    LICENSE_FIELD_NUMBER: _ClassVar[int]
    ARXIV_FIELD_NUMBER: _ClassVar[int]
    REPO_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    PROTOCOLS_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    OFFERINGS_FIELD_NUMBER: _ClassVar[int]
    DEPRECATED_AT_FIELD_NUMBER: _ClassVar[int]
    SUNSET_AT_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    ACTIONS_FIELD_NUMBER: _ClassVar[int]
    id: str
    object: str
    name: str
    vendor: str
    summary: str
    limits: str
    kind: ModelKind
    domain: Domain
    family: str
    tier: ModelTier
    era: ModelEra
    contracts: _containers.RepeatedScalarFieldContainer[_contract_pb2.Contract]
    embodiments: _containers.RepeatedScalarFieldContainer[Embodiment]
    action_spaces: _containers.RepeatedScalarFieldContainer[str]
    featured: bool
    providers: _containers.RepeatedScalarFieldContainer[str]
    servable_candidate: bool
    year: int
    params_b: float
    license: str
    arxiv: str
    repo: str
    weights: str
    protocols: _containers.RepeatedScalarFieldContainer[str]
    sources: _containers.RepeatedScalarFieldContainer[str]
    offerings: ModelOfferings
    deprecated_at: int
    sunset_at: int
    input: _input_contract_pb2.InputContract
    actions: _input_contract_pb2.ActionMeanings
    def __init__(self, id: _Optional[str] = ..., object: _Optional[str] = ..., name: _Optional[str] = ..., vendor: _Optional[str] = ..., summary: _Optional[str] = ..., limits: _Optional[str] = ..., kind: _Optional[_Union[ModelKind, str]] = ..., domain: _Optional[_Union[Domain, str]] = ..., family: _Optional[str] = ..., tier: _Optional[_Union[ModelTier, str]] = ..., era: _Optional[_Union[ModelEra, str]] = ..., contracts: _Optional[_Iterable[_Union[_contract_pb2.Contract, str]]] = ..., embodiments: _Optional[_Iterable[_Union[Embodiment, str]]] = ..., action_spaces: _Optional[_Iterable[str]] = ..., featured: _Optional[bool] = ..., providers: _Optional[_Iterable[str]] = ..., servable_candidate: _Optional[bool] = ..., year: _Optional[int] = ..., params_b: _Optional[float] = ..., license: _Optional[str] = ..., arxiv: _Optional[str] = ..., repo: _Optional[str] = ..., weights: _Optional[str] = ..., protocols: _Optional[_Iterable[str]] = ..., sources: _Optional[_Iterable[str]] = ..., offerings: _Optional[_Union[ModelOfferings, _Mapping]] = ..., deprecated_at: _Optional[int] = ..., sunset_at: _Optional[int] = ..., input: _Optional[_Union[_input_contract_pb2.InputContract, _Mapping]] = ..., actions: _Optional[_Union[_input_contract_pb2.ActionMeanings, _Mapping]] = ...) -> None: ...

class ModelOfferings(_message.Message):
    __slots__ = ("offerings",)
    OFFERINGS_FIELD_NUMBER: _ClassVar[int]
    offerings: _containers.RepeatedCompositeFieldContainer[ModelOffering]
    def __init__(self, offerings: _Optional[_Iterable[_Union[ModelOffering, _Mapping]]] = ...) -> None: ...

class ModelOffering(_message.Message):
    __slots__ = ("id", "provider", "status", "circuit", "runtime", "region", "precision", "hardware", "contracts", "action_spaces", "embodiments", "prices", "wake_up_usd", "cold", "advertised_ms", "measured_ms", "uptime_30d", "max_horizon", "dt_ms", "action_dim", "parameters", "data_collection", "input", "input_source", "actions", "actions_source", "uptime_measured")
    ID_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    CIRCUIT_FIELD_NUMBER: _ClassVar[int]
    RUNTIME_FIELD_NUMBER: _ClassVar[int]
    REGION_FIELD_NUMBER: _ClassVar[int]
    PRECISION_FIELD_NUMBER: _ClassVar[int]
    HARDWARE_FIELD_NUMBER: _ClassVar[int]
    CONTRACTS_FIELD_NUMBER: _ClassVar[int]
    ACTION_SPACES_FIELD_NUMBER: _ClassVar[int]
    EMBODIMENTS_FIELD_NUMBER: _ClassVar[int]
    PRICES_FIELD_NUMBER: _ClassVar[int]
    WAKE_UP_USD_FIELD_NUMBER: _ClassVar[int]
    COLD_FIELD_NUMBER: _ClassVar[int]
    ADVERTISED_MS_FIELD_NUMBER: _ClassVar[int]
    MEASURED_MS_FIELD_NUMBER: _ClassVar[int]
    UPTIME_30D_FIELD_NUMBER: _ClassVar[int]
    MAX_HORIZON_FIELD_NUMBER: _ClassVar[int]
    DT_MS_FIELD_NUMBER: _ClassVar[int]
    ACTION_DIM_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    DATA_COLLECTION_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    INPUT_SOURCE_FIELD_NUMBER: _ClassVar[int]
    ACTIONS_FIELD_NUMBER: _ClassVar[int]
    ACTIONS_SOURCE_FIELD_NUMBER: _ClassVar[int]
    UPTIME_MEASURED_FIELD_NUMBER: _ClassVar[int]
    id: str
    provider: str
    status: _supply_pb2.OfferingStatus
    circuit: CircuitState
    runtime: str
    region: str
    precision: str
    hardware: str
    contracts: _containers.RepeatedScalarFieldContainer[_contract_pb2.Contract]
    action_spaces: _containers.RepeatedScalarFieldContainer[str]
    embodiments: _containers.RepeatedScalarFieldContainer[str]
    prices: _containers.RepeatedCompositeFieldContainer[OfferingPrice]
    wake_up_usd: float
    cold: bool
    advertised_ms: LatencyFigures
    measured_ms: LatencyFigures
    uptime_30d: float
    max_horizon: int
    dt_ms: int
    action_dim: int
    parameters: _containers.RepeatedScalarFieldContainer[str]
    data_collection: _preferences_pb2.DataCollection
    input: _input_contract_pb2.InputContract
    input_source: _input_contract_pb2.ContractSource
    actions: _input_contract_pb2.ActionMeanings
    actions_source: _input_contract_pb2.ContractSource
    uptime_measured: bool
    def __init__(self, id: _Optional[str] = ..., provider: _Optional[str] = ..., status: _Optional[_Union[_supply_pb2.OfferingStatus, str]] = ..., circuit: _Optional[_Union[CircuitState, str]] = ..., runtime: _Optional[str] = ..., region: _Optional[str] = ..., precision: _Optional[str] = ..., hardware: _Optional[str] = ..., contracts: _Optional[_Iterable[_Union[_contract_pb2.Contract, str]]] = ..., action_spaces: _Optional[_Iterable[str]] = ..., embodiments: _Optional[_Iterable[str]] = ..., prices: _Optional[_Iterable[_Union[OfferingPrice, _Mapping]]] = ..., wake_up_usd: _Optional[float] = ..., cold: _Optional[bool] = ..., advertised_ms: _Optional[_Union[LatencyFigures, _Mapping]] = ..., measured_ms: _Optional[_Union[LatencyFigures, _Mapping]] = ..., uptime_30d: _Optional[float] = ..., max_horizon: _Optional[int] = ..., dt_ms: _Optional[int] = ..., action_dim: _Optional[int] = ..., parameters: _Optional[_Iterable[str]] = ..., data_collection: _Optional[_Union[_preferences_pb2.DataCollection, str]] = ..., input: _Optional[_Union[_input_contract_pb2.InputContract, _Mapping]] = ..., input_source: _Optional[_Union[_input_contract_pb2.ContractSource, str]] = ..., actions: _Optional[_Union[_input_contract_pb2.ActionMeanings, _Mapping]] = ..., actions_source: _Optional[_Union[_input_contract_pb2.ContractSource, str]] = ..., uptime_measured: _Optional[bool] = ...) -> None: ...

class OfferingPrice(_message.Message):
    __slots__ = ("contract", "unit", "list_usd", "now_usd")
    CONTRACT_FIELD_NUMBER: _ClassVar[int]
    UNIT_FIELD_NUMBER: _ClassVar[int]
    LIST_USD_FIELD_NUMBER: _ClassVar[int]
    NOW_USD_FIELD_NUMBER: _ClassVar[int]
    contract: _contract_pb2.Contract
    unit: str
    list_usd: float
    now_usd: float
    def __init__(self, contract: _Optional[_Union[_contract_pb2.Contract, str]] = ..., unit: _Optional[str] = ..., list_usd: _Optional[float] = ..., now_usd: _Optional[float] = ...) -> None: ...

class LatencyFigures(_message.Message):
    __slots__ = ("p50", "p95", "p99")
    P50_FIELD_NUMBER: _ClassVar[int]
    P95_FIELD_NUMBER: _ClassVar[int]
    P99_FIELD_NUMBER: _ClassVar[int]
    p50: float
    p95: float
    p99: float
    def __init__(self, p50: _Optional[float] = ..., p95: _Optional[float] = ..., p99: _Optional[float] = ...) -> None: ...

class Scenario(_message.Message):
    __slots__ = ("id", "object", "name", "vendor", "year", "target", "topic", "runnable", "license", "arxiv", "repo", "sources", "runs_here", "summary", "success", "version", "variants")
    ID_FIELD_NUMBER: _ClassVar[int]
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    VENDOR_FIELD_NUMBER: _ClassVar[int]
    YEAR_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    RUNNABLE_FIELD_NUMBER: _ClassVar[int]
    LICENSE_FIELD_NUMBER: _ClassVar[int]
    ARXIV_FIELD_NUMBER: _ClassVar[int]
    REPO_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    RUNS_HERE_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    VARIANTS_FIELD_NUMBER: _ClassVar[int]
    id: str
    object: str
    name: str
    vendor: str
    year: int
    target: Domain
    topic: str
    runnable: bool
    license: str
    arxiv: str
    repo: str
    sources: _containers.RepeatedScalarFieldContainer[str]
    runs_here: bool
    summary: str
    success: str
    version: str
    variants: _containers.RepeatedCompositeFieldContainer[ScenarioVariant]
    def __init__(self, id: _Optional[str] = ..., object: _Optional[str] = ..., name: _Optional[str] = ..., vendor: _Optional[str] = ..., year: _Optional[int] = ..., target: _Optional[_Union[Domain, str]] = ..., topic: _Optional[str] = ..., runnable: _Optional[bool] = ..., license: _Optional[str] = ..., arxiv: _Optional[str] = ..., repo: _Optional[str] = ..., sources: _Optional[_Iterable[str]] = ..., runs_here: _Optional[bool] = ..., summary: _Optional[str] = ..., success: _Optional[str] = ..., version: _Optional[str] = ..., variants: _Optional[_Iterable[_Union[ScenarioVariant, _Mapping]]] = ...) -> None: ...

class ScenarioVariant(_message.Message):
    __slots__ = ("action_space", "action_fields", "units", "proprio_names", "dt_ms", "max_steps")
    ACTION_SPACE_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELDS_FIELD_NUMBER: _ClassVar[int]
    UNITS_FIELD_NUMBER: _ClassVar[int]
    PROPRIO_NAMES_FIELD_NUMBER: _ClassVar[int]
    DT_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_STEPS_FIELD_NUMBER: _ClassVar[int]
    action_space: str
    action_fields: _containers.RepeatedScalarFieldContainer[str]
    units: str
    proprio_names: _containers.RepeatedScalarFieldContainer[str]
    dt_ms: float
    max_steps: int
    def __init__(self, action_space: _Optional[str] = ..., action_fields: _Optional[_Iterable[str]] = ..., units: _Optional[str] = ..., proprio_names: _Optional[_Iterable[str]] = ..., dt_ms: _Optional[float] = ..., max_steps: _Optional[int] = ...) -> None: ...

class Literature(_message.Message):
    __slots__ = ("id", "object", "title", "kind", "year", "domain", "arxiv", "repo", "sources")
    ID_FIELD_NUMBER: _ClassVar[int]
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    TITLE_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    YEAR_FIELD_NUMBER: _ClassVar[int]
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    ARXIV_FIELD_NUMBER: _ClassVar[int]
    REPO_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    id: str
    object: str
    title: str
    kind: LiteratureKind
    year: int
    domain: Domain
    arxiv: str
    repo: str
    sources: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, id: _Optional[str] = ..., object: _Optional[str] = ..., title: _Optional[str] = ..., kind: _Optional[_Union[LiteratureKind, str]] = ..., year: _Optional[int] = ..., domain: _Optional[_Union[Domain, str]] = ..., arxiv: _Optional[str] = ..., repo: _Optional[str] = ..., sources: _Optional[_Iterable[str]] = ...) -> None: ...

class ProviderListing(_message.Message):
    __slots__ = ("name", "display_name", "homepage", "regions", "data_collection", "models", "contracts", "action_spaces", "live_offerings")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DISPLAY_NAME_FIELD_NUMBER: _ClassVar[int]
    HOMEPAGE_FIELD_NUMBER: _ClassVar[int]
    REGIONS_FIELD_NUMBER: _ClassVar[int]
    DATA_COLLECTION_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    CONTRACTS_FIELD_NUMBER: _ClassVar[int]
    ACTION_SPACES_FIELD_NUMBER: _ClassVar[int]
    LIVE_OFFERINGS_FIELD_NUMBER: _ClassVar[int]
    name: str
    display_name: str
    homepage: str
    regions: _containers.RepeatedScalarFieldContainer[str]
    data_collection: _preferences_pb2.DataCollection
    models: _containers.RepeatedScalarFieldContainer[str]
    contracts: _containers.RepeatedScalarFieldContainer[_contract_pb2.Contract]
    action_spaces: _containers.RepeatedScalarFieldContainer[str]
    live_offerings: int
    def __init__(self, name: _Optional[str] = ..., display_name: _Optional[str] = ..., homepage: _Optional[str] = ..., regions: _Optional[_Iterable[str]] = ..., data_collection: _Optional[_Union[_preferences_pb2.DataCollection, str]] = ..., models: _Optional[_Iterable[str]] = ..., contracts: _Optional[_Iterable[_Union[_contract_pb2.Contract, str]]] = ..., action_spaces: _Optional[_Iterable[str]] = ..., live_offerings: _Optional[int] = ...) -> None: ...

class FacetValues(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedCompositeFieldContainer[FacetValue]
    def __init__(self, values: _Optional[_Iterable[_Union[FacetValue, _Mapping]]] = ...) -> None: ...

class FacetValue(_message.Message):
    __slots__ = ("value", "count", "live_count", "meaning")
    VALUE_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    LIVE_COUNT_FIELD_NUMBER: _ClassVar[int]
    MEANING_FIELD_NUMBER: _ClassVar[int]
    value: str
    count: int
    live_count: int
    meaning: str
    def __init__(self, value: _Optional[str] = ..., count: _Optional[int] = ..., live_count: _Optional[int] = ..., meaning: _Optional[str] = ...) -> None: ...

class ActionSpaceLayout(_message.Message):
    __slots__ = ("id", "dims", "dims_rule", "units", "reference", "fields", "other_layouts", "note")
    ID_FIELD_NUMBER: _ClassVar[int]
    DIMS_FIELD_NUMBER: _ClassVar[int]
    DIMS_RULE_FIELD_NUMBER: _ClassVar[int]
    UNITS_FIELD_NUMBER: _ClassVar[int]
    REFERENCE_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    OTHER_LAYOUTS_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    id: str
    dims: int
    dims_rule: str
    units: str
    reference: str
    fields: _containers.RepeatedCompositeFieldContainer[ActionField]
    other_layouts: _containers.RepeatedCompositeFieldContainer[OtherLayout]
    note: str
    def __init__(self, id: _Optional[str] = ..., dims: _Optional[int] = ..., dims_rule: _Optional[str] = ..., units: _Optional[str] = ..., reference: _Optional[str] = ..., fields: _Optional[_Iterable[_Union[ActionField, _Mapping]]] = ..., other_layouts: _Optional[_Iterable[_Union[OtherLayout, _Mapping]]] = ..., note: _Optional[str] = ...) -> None: ...

class ActionField(_message.Message):
    __slots__ = ("name", "unit", "meaning")
    NAME_FIELD_NUMBER: _ClassVar[int]
    UNIT_FIELD_NUMBER: _ClassVar[int]
    MEANING_FIELD_NUMBER: _ClassVar[int]
    name: str
    unit: str
    meaning: str
    def __init__(self, name: _Optional[str] = ..., unit: _Optional[str] = ..., meaning: _Optional[str] = ...) -> None: ...

class OtherLayout(_message.Message):
    __slots__ = ("name", "order", "note")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ORDER_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    name: str
    order: _containers.RepeatedScalarFieldContainer[str]
    note: str
    def __init__(self, name: _Optional[str] = ..., order: _Optional[_Iterable[str]] = ..., note: _Optional[str] = ...) -> None: ...

class AliasListing(_message.Message):
    __slots__ = ("id", "description", "filter", "sort", "resolves_to")
    ID_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    SORT_FIELD_NUMBER: _ClassVar[int]
    RESOLVES_TO_FIELD_NUMBER: _ClassVar[int]
    id: str
    description: str
    filter: AliasFilter
    sort: _preferences_pb2.SortAxis
    resolves_to: _containers.RepeatedCompositeFieldContainer[ModelSummary]
    def __init__(self, id: _Optional[str] = ..., description: _Optional[str] = ..., filter: _Optional[_Union[AliasFilter, _Mapping]] = ..., sort: _Optional[_Union[_preferences_pb2.SortAxis, str]] = ..., resolves_to: _Optional[_Iterable[_Union[ModelSummary, _Mapping]]] = ...) -> None: ...

class AliasFilter(_message.Message):
    __slots__ = ("contract", "domain", "family")
    CONTRACT_FIELD_NUMBER: _ClassVar[int]
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    FAMILY_FIELD_NUMBER: _ClassVar[int]
    contract: _contract_pb2.Contract
    domain: Domain
    family: str
    def __init__(self, contract: _Optional[_Union[_contract_pb2.Contract, str]] = ..., domain: _Optional[_Union[Domain, str]] = ..., family: _Optional[str] = ...) -> None: ...

class ModelSummary(_message.Message):
    __slots__ = ("id", "name", "vendor", "contracts", "action_spaces", "providers", "input", "actions")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    VENDOR_FIELD_NUMBER: _ClassVar[int]
    CONTRACTS_FIELD_NUMBER: _ClassVar[int]
    ACTION_SPACES_FIELD_NUMBER: _ClassVar[int]
    PROVIDERS_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    ACTIONS_FIELD_NUMBER: _ClassVar[int]
    id: str
    name: str
    vendor: str
    contracts: _containers.RepeatedScalarFieldContainer[_contract_pb2.Contract]
    action_spaces: _containers.RepeatedScalarFieldContainer[str]
    providers: _containers.RepeatedScalarFieldContainer[str]
    input: _input_contract_pb2.InputContract
    actions: _input_contract_pb2.ActionMeanings
    def __init__(self, id: _Optional[str] = ..., name: _Optional[str] = ..., vendor: _Optional[str] = ..., contracts: _Optional[_Iterable[_Union[_contract_pb2.Contract, str]]] = ..., action_spaces: _Optional[_Iterable[str]] = ..., providers: _Optional[_Iterable[str]] = ..., input: _Optional[_Union[_input_contract_pb2.InputContract, _Mapping]] = ..., actions: _Optional[_Union[_input_contract_pb2.ActionMeanings, _Mapping]] = ...) -> None: ...

class VariantListing(_message.Message):
    __slots__ = ("suffix", "description", "example")
    SUFFIX_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    EXAMPLE_FIELD_NUMBER: _ClassVar[int]
    suffix: str
    description: str
    example: str
    def __init__(self, suffix: _Optional[str] = ..., description: _Optional[str] = ..., example: _Optional[str] = ...) -> None: ...

class PreferenceListing(_message.Message):
    __slots__ = ("value", "description")
    VALUE_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    value: _preferences_pb2.Preference
    description: str
    def __init__(self, value: _Optional[_Union[_preferences_pb2.Preference, str]] = ..., description: _Optional[str] = ...) -> None: ...

class LiveListing(_message.Message):
    __slots__ = ("models", "providers", "contracts", "action_spaces", "catalog_models", "note")
    MODELS_FIELD_NUMBER: _ClassVar[int]
    PROVIDERS_FIELD_NUMBER: _ClassVar[int]
    CONTRACTS_FIELD_NUMBER: _ClassVar[int]
    ACTION_SPACES_FIELD_NUMBER: _ClassVar[int]
    CATALOG_MODELS_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    models: _containers.RepeatedScalarFieldContainer[str]
    providers: _containers.RepeatedScalarFieldContainer[str]
    contracts: _containers.RepeatedScalarFieldContainer[_contract_pb2.Contract]
    action_spaces: _containers.RepeatedScalarFieldContainer[str]
    catalog_models: int
    note: str
    def __init__(self, models: _Optional[_Iterable[str]] = ..., providers: _Optional[_Iterable[str]] = ..., contracts: _Optional[_Iterable[_Union[_contract_pb2.Contract, str]]] = ..., action_spaces: _Optional[_Iterable[str]] = ..., catalog_models: _Optional[int] = ..., note: _Optional[str] = ...) -> None: ...

class Runtime(_message.Message):
    __slots__ = ("id", "name", "transport", "direction", "contracts", "encodings", "url_schemes", "auth", "stateful", "streaming", "discovery", "profiles", "options_schema")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    TRANSPORT_FIELD_NUMBER: _ClassVar[int]
    DIRECTION_FIELD_NUMBER: _ClassVar[int]
    CONTRACTS_FIELD_NUMBER: _ClassVar[int]
    ENCODINGS_FIELD_NUMBER: _ClassVar[int]
    URL_SCHEMES_FIELD_NUMBER: _ClassVar[int]
    AUTH_FIELD_NUMBER: _ClassVar[int]
    STATEFUL_FIELD_NUMBER: _ClassVar[int]
    STREAMING_FIELD_NUMBER: _ClassVar[int]
    DISCOVERY_FIELD_NUMBER: _ClassVar[int]
    PROFILES_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_SCHEMA_FIELD_NUMBER: _ClassVar[int]
    id: str
    name: str
    transport: str
    direction: str
    contracts: _containers.RepeatedScalarFieldContainer[_contract_pb2.Contract]
    encodings: _containers.RepeatedScalarFieldContainer[str]
    url_schemes: _containers.RepeatedScalarFieldContainer[str]
    auth: _containers.RepeatedScalarFieldContainer[str]
    stateful: str
    streaming: bool
    discovery: str
    profiles: _containers.RepeatedScalarFieldContainer[str]
    options_schema: str
    def __init__(self, id: _Optional[str] = ..., name: _Optional[str] = ..., transport: _Optional[str] = ..., direction: _Optional[str] = ..., contracts: _Optional[_Iterable[_Union[_contract_pb2.Contract, str]]] = ..., encodings: _Optional[_Iterable[str]] = ..., url_schemes: _Optional[_Iterable[str]] = ..., auth: _Optional[_Iterable[str]] = ..., stateful: _Optional[str] = ..., streaming: _Optional[bool] = ..., discovery: _Optional[str] = ..., profiles: _Optional[_Iterable[str]] = ..., options_schema: _Optional[str] = ...) -> None: ...
