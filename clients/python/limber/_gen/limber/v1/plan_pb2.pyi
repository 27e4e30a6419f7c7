from limber._gen.limber.v1 import input_contract_pb2 as _input_contract_pb2
from limber._gen.limber.v1 import preferences_pb2 as _preferences_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DropReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DROP_REASON_UNSPECIFIED: _ClassVar[DropReason]
    DROP_REASON_NOT_IN_ONLY: _ClassVar[DropReason]
    DROP_REASON_IN_IGNORE: _ClassVar[DropReason]
    DROP_REASON_REGION: _ClassVar[DropReason]
    DROP_REASON_DATA_COLLECTION: _ClassVar[DropReason]
    DROP_REASON_MAX_LATENCY_MS: _ClassVar[DropReason]
    DROP_REASON_MIN_UPTIME_30D: _ClassVar[DropReason]
    DROP_REASON_MAX_COST_USD: _ClassVar[DropReason]
    DROP_REASON_MAX_PRICE_PER_FRAME: _ClassVar[DropReason]
    DROP_REASON_MAX_PRICE_PER_ACTION_STEP: _ClassVar[DropReason]
    DROP_REASON_REQUIRE_PARAMETERS: _ClassVar[DropReason]
    DROP_REASON_ACTION_SPACE: _ClassVar[DropReason]
    DROP_REASON_CONTRACT: _ClassVar[DropReason]
    DROP_REASON_HORIZON_EXCEEDS_OFFERING: _ClassVar[DropReason]
    DROP_REASON_KEY_SCOPE: _ClassVar[DropReason]
    DROP_REASON_NOT_LIVE: _ClassVar[DropReason]
    DROP_REASON_NOT_SIMULATED_ALLOWED: _ClassVar[DropReason]
    DROP_REASON_CIRCUIT_OPEN: _ClassVar[DropReason]
    DROP_REASON_DEADLINE_UNREACHABLE: _ClassVar[DropReason]
    DROP_REASON_NOT_IN_ORDER: _ClassVar[DropReason]
    DROP_REASON_BYOK_ONLY: _ClassVar[DropReason]
    DROP_REASON_EMBODIMENT: _ClassVar[DropReason]
    DROP_REASON_NOT_IN_OFFERINGS: _ClassVar[DropReason]
    DROP_REASON_TRUST: _ClassVar[DropReason]
    DROP_REASON_ZDR: _ClassVar[DropReason]
    DROP_REASON_INPUT: _ClassVar[DropReason]
    DROP_REASON_ACTION_MEANING: _ClassVar[DropReason]
    DROP_REASON_UNSIGNED: _ClassVar[DropReason]
    DROP_REASON_NO_FALLBACKS: _ClassVar[DropReason]
    DROP_REASON_PLAN_FULL: _ClassVar[DropReason]
    DROP_REASON_UNAFFORDABLE: _ClassVar[DropReason]
DROP_REASON_UNSPECIFIED: DropReason
DROP_REASON_NOT_IN_ONLY: DropReason
DROP_REASON_IN_IGNORE: DropReason
DROP_REASON_REGION: DropReason
DROP_REASON_DATA_COLLECTION: DropReason
DROP_REASON_MAX_LATENCY_MS: DropReason
DROP_REASON_MIN_UPTIME_30D: DropReason
DROP_REASON_MAX_COST_USD: DropReason
DROP_REASON_MAX_PRICE_PER_FRAME: DropReason
DROP_REASON_MAX_PRICE_PER_ACTION_STEP: DropReason
DROP_REASON_REQUIRE_PARAMETERS: DropReason
DROP_REASON_ACTION_SPACE: DropReason
DROP_REASON_CONTRACT: DropReason
DROP_REASON_HORIZON_EXCEEDS_OFFERING: DropReason
DROP_REASON_KEY_SCOPE: DropReason
DROP_REASON_NOT_LIVE: DropReason
DROP_REASON_NOT_SIMULATED_ALLOWED: DropReason
DROP_REASON_CIRCUIT_OPEN: DropReason
DROP_REASON_DEADLINE_UNREACHABLE: DropReason
DROP_REASON_NOT_IN_ORDER: DropReason
DROP_REASON_BYOK_ONLY: DropReason
DROP_REASON_EMBODIMENT: DropReason
DROP_REASON_NOT_IN_OFFERINGS: DropReason
DROP_REASON_TRUST: DropReason
DROP_REASON_ZDR: DropReason
DROP_REASON_INPUT: DropReason
DROP_REASON_ACTION_MEANING: DropReason
DROP_REASON_UNSIGNED: DropReason
DROP_REASON_NO_FALLBACKS: DropReason
DROP_REASON_PLAN_FULL: DropReason
DROP_REASON_UNAFFORDABLE: DropReason

class PlanStep(_message.Message):
    __slots__ = ("rank", "offering_id", "model", "provider", "region", "precision", "score", "price_unit_usd", "price_now_usd", "estimated_cost_usd", "wake_up_usd", "expected_ms", "cold", "reason_codes", "byok", "trust", "input", "actions", "quality")
    RANK_FIELD_NUMBER: _ClassVar[int]
    OFFERING_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    REGION_FIELD_NUMBER: _ClassVar[int]
    PRECISION_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    PRICE_UNIT_USD_FIELD_NUMBER: _ClassVar[int]
    PRICE_NOW_USD_FIELD_NUMBER: _ClassVar[int]
    ESTIMATED_COST_USD_FIELD_NUMBER: _ClassVar[int]
    WAKE_UP_USD_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_MS_FIELD_NUMBER: _ClassVar[int]
    COLD_FIELD_NUMBER: _ClassVar[int]
    REASON_CODES_FIELD_NUMBER: _ClassVar[int]
    BYOK_FIELD_NUMBER: _ClassVar[int]
    TRUST_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    ACTIONS_FIELD_NUMBER: _ClassVar[int]
    QUALITY_FIELD_NUMBER: _ClassVar[int]
    rank: int
    offering_id: str
    model: str
    provider: str
    region: str
    precision: str
    score: float
    price_unit_usd: float
    price_now_usd: float
    estimated_cost_usd: float
    wake_up_usd: float
    expected_ms: ExpectedLatency
    cold: bool
    reason_codes: _containers.RepeatedScalarFieldContainer[str]
    byok: bool
    trust: _preferences_pb2.SupplyTrust
    input: _input_contract_pb2.InputContract
    actions: _input_contract_pb2.ActionMeaning
    quality: _containers.RepeatedCompositeFieldContainer[QualityEvaluation]
    def __init__(self, rank: _Optional[int] = ..., offering_id: _Optional[str] = ..., model: _Optional[str] = ..., provider: _Optional[str] = ..., region: _Optional[str] = ..., precision: _Optional[str] = ..., score: _Optional[float] = ..., price_unit_usd: _Optional[float] = ..., price_now_usd: _Optional[float] = ..., estimated_cost_usd: _Optional[float] = ..., wake_up_usd: _Optional[float] = ..., expected_ms: _Optional[_Union[ExpectedLatency, _Mapping]] = ..., cold: _Optional[bool] = ..., reason_codes: _Optional[_Iterable[str]] = ..., byok: _Optional[bool] = ..., trust: _Optional[_Union[_preferences_pb2.SupplyTrust, str]] = ..., input: _Optional[_Union[_input_contract_pb2.InputContract, _Mapping]] = ..., actions: _Optional[_Union[_input_contract_pb2.ActionMeaning, _Mapping]] = ..., quality: _Optional[_Iterable[_Union[QualityEvaluation, _Mapping]]] = ...) -> None: ...

class QualityEvaluation(_message.Message):
    __slots__ = ("publication_id", "scenario", "successes", "episodes", "lower_bound")
    PUBLICATION_ID_FIELD_NUMBER: _ClassVar[int]
    SCENARIO_FIELD_NUMBER: _ClassVar[int]
    SUCCESSES_FIELD_NUMBER: _ClassVar[int]
    EPISODES_FIELD_NUMBER: _ClassVar[int]
    LOWER_BOUND_FIELD_NUMBER: _ClassVar[int]
    publication_id: str
    scenario: str
    successes: int
    episodes: int
    lower_bound: float
    def __init__(self, publication_id: _Optional[str] = ..., scenario: _Optional[str] = ..., successes: _Optional[int] = ..., episodes: _Optional[int] = ..., lower_bound: _Optional[float] = ...) -> None: ...

class ExpectedLatency(_message.Message):
    __slots__ = ("p50", "p95")
    P50_FIELD_NUMBER: _ClassVar[int]
    P95_FIELD_NUMBER: _ClassVar[int]
    p50: float
    p95: float
    def __init__(self, p50: _Optional[float] = ..., p95: _Optional[float] = ...) -> None: ...

class DroppedOffering(_message.Message):
    __slots__ = ("offering_id", "model", "provider", "reason", "detail", "stage")
    OFFERING_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    offering_id: str
    model: str
    provider: str
    reason: DropReason
    detail: str
    stage: str
    def __init__(self, offering_id: _Optional[str] = ..., model: _Optional[str] = ..., provider: _Optional[str] = ..., reason: _Optional[_Union[DropReason, str]] = ..., detail: _Optional[str] = ..., stage: _Optional[str] = ...) -> None: ...

class Suggestion(_message.Message):
    __slots__ = ("field", "value", "admits", "change")
    FIELD_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    ADMITS_FIELD_NUMBER: _ClassVar[int]
    CHANGE_FIELD_NUMBER: _ClassVar[int]
    field: str
    value: float
    admits: int
    change: str
    def __init__(self, field: _Optional[str] = ..., value: _Optional[float] = ..., admits: _Optional[int] = ..., change: _Optional[str] = ...) -> None: ...
