from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class HedgeWithheld(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    HEDGE_WITHHELD_UNSPECIFIED: _ClassVar[HedgeWithheld]
    HEDGE_WITHHELD_NO_EQUAL: _ClassVar[HedgeWithheld]
    HEDGE_WITHHELD_MAX_COST_USD: _ClassVar[HedgeWithheld]
    HEDGE_WITHHELD_DEADLINE: _ClassVar[HedgeWithheld]
    HEDGE_WITHHELD_BUDGET: _ClassVar[HedgeWithheld]
    HEDGE_WITHHELD_CIRCUIT_OPEN: _ClassVar[HedgeWithheld]

class AttemptStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ATTEMPT_STATUS_UNSPECIFIED: _ClassVar[AttemptStatus]
    ATTEMPT_STATUS_OK: _ClassVar[AttemptStatus]
    ATTEMPT_STATUS_ERROR: _ClassVar[AttemptStatus]
    ATTEMPT_STATUS_CANCELLED: _ClassVar[AttemptStatus]

class AttemptFailure(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ATTEMPT_FAILURE_UNSPECIFIED: _ClassVar[AttemptFailure]
    ATTEMPT_FAILURE_TIMEOUT: _ClassVar[AttemptFailure]
    ATTEMPT_FAILURE_UNREACHABLE: _ClassVar[AttemptFailure]
    ATTEMPT_FAILURE_CONNECTION_LOST: _ClassVar[AttemptFailure]
    ATTEMPT_FAILURE_UPSTREAM_ERROR: _ClassVar[AttemptFailure]
    ATTEMPT_FAILURE_UPSTREAM_AUTH: _ClassVar[AttemptFailure]
    ATTEMPT_FAILURE_UPSTREAM_BUSY: _ClassVar[AttemptFailure]
    ATTEMPT_FAILURE_INPUT_REJECTED: _ClassVar[AttemptFailure]
    ATTEMPT_FAILURE_MALFORMED_ANSWER: _ClassVar[AttemptFailure]
    ATTEMPT_FAILURE_ANSWER_TOO_LARGE: _ClassVar[AttemptFailure]
    ATTEMPT_FAILURE_ACTION_DIM_MISMATCH: _ClassVar[AttemptFailure]
    ATTEMPT_FAILURE_NON_FINITE_ACTION: _ClassVar[AttemptFailure]
    ATTEMPT_FAILURE_EMPTY_ANSWER: _ClassVar[AttemptFailure]
    ATTEMPT_FAILURE_WRONG_STEP_COUNT: _ClassVar[AttemptFailure]
    ATTEMPT_FAILURE_UNREADABLE_FRAME: _ClassVar[AttemptFailure]
    ATTEMPT_FAILURE_DEADLINE: _ClassVar[AttemptFailure]
    ATTEMPT_FAILURE_UNSAFE_ACTION: _ClassVar[AttemptFailure]

class PinOutcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PIN_OUTCOME_UNSPECIFIED: _ClassVar[PinOutcome]
    PIN_OUTCOME_NEW: _ClassVar[PinOutcome]
    PIN_OUTCOME_KEPT: _ClassVar[PinOutcome]
    PIN_OUTCOME_MOVED: _ClassVar[PinOutcome]
HEDGE_WITHHELD_UNSPECIFIED: HedgeWithheld
HEDGE_WITHHELD_NO_EQUAL: HedgeWithheld
HEDGE_WITHHELD_MAX_COST_USD: HedgeWithheld
HEDGE_WITHHELD_DEADLINE: HedgeWithheld
HEDGE_WITHHELD_BUDGET: HedgeWithheld
HEDGE_WITHHELD_CIRCUIT_OPEN: HedgeWithheld
ATTEMPT_STATUS_UNSPECIFIED: AttemptStatus
ATTEMPT_STATUS_OK: AttemptStatus
ATTEMPT_STATUS_ERROR: AttemptStatus
ATTEMPT_STATUS_CANCELLED: AttemptStatus
ATTEMPT_FAILURE_UNSPECIFIED: AttemptFailure
ATTEMPT_FAILURE_TIMEOUT: AttemptFailure
ATTEMPT_FAILURE_UNREACHABLE: AttemptFailure
ATTEMPT_FAILURE_CONNECTION_LOST: AttemptFailure
ATTEMPT_FAILURE_UPSTREAM_ERROR: AttemptFailure
ATTEMPT_FAILURE_UPSTREAM_AUTH: AttemptFailure
ATTEMPT_FAILURE_UPSTREAM_BUSY: AttemptFailure
ATTEMPT_FAILURE_INPUT_REJECTED: AttemptFailure
ATTEMPT_FAILURE_MALFORMED_ANSWER: AttemptFailure
ATTEMPT_FAILURE_ANSWER_TOO_LARGE: AttemptFailure
ATTEMPT_FAILURE_ACTION_DIM_MISMATCH: AttemptFailure
ATTEMPT_FAILURE_NON_FINITE_ACTION: AttemptFailure
ATTEMPT_FAILURE_EMPTY_ANSWER: AttemptFailure
ATTEMPT_FAILURE_WRONG_STEP_COUNT: AttemptFailure
ATTEMPT_FAILURE_UNREADABLE_FRAME: AttemptFailure
ATTEMPT_FAILURE_DEADLINE: AttemptFailure
ATTEMPT_FAILURE_UNSAFE_ACTION: AttemptFailure
PIN_OUTCOME_UNSPECIFIED: PinOutcome
PIN_OUTCOME_NEW: PinOutcome
PIN_OUTCOME_KEPT: PinOutcome
PIN_OUTCOME_MOVED: PinOutcome

class Route(_message.Message):
    __slots__ = ("model", "region", "precision", "attempts", "fallback_used", "simulated", "hedge_cost_usd", "provider", "offering_id", "pin", "byok", "hedge_withheld")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    REGION_FIELD_NUMBER: _ClassVar[int]
    PRECISION_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    FALLBACK_USED_FIELD_NUMBER: _ClassVar[int]
    SIMULATED_FIELD_NUMBER: _ClassVar[int]
    HEDGE_COST_USD_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    OFFERING_ID_FIELD_NUMBER: _ClassVar[int]
    PIN_FIELD_NUMBER: _ClassVar[int]
    BYOK_FIELD_NUMBER: _ClassVar[int]
    HEDGE_WITHHELD_FIELD_NUMBER: _ClassVar[int]
    model: str
    region: str
    precision: str
    attempts: _containers.RepeatedCompositeFieldContainer[Attempt]
    fallback_used: bool
    simulated: bool
    hedge_cost_usd: float
    provider: str
    offering_id: str
    pin: PinOutcome
    byok: bool
    hedge_withheld: HedgeWithheld
    def __init__(self, model: _Optional[str] = ..., region: _Optional[str] = ..., precision: _Optional[str] = ..., attempts: _Optional[_Iterable[_Union[Attempt, _Mapping]]] = ..., fallback_used: _Optional[bool] = ..., simulated: _Optional[bool] = ..., hedge_cost_usd: _Optional[float] = ..., provider: _Optional[str] = ..., offering_id: _Optional[str] = ..., pin: _Optional[_Union[PinOutcome, str]] = ..., byok: _Optional[bool] = ..., hedge_withheld: _Optional[_Union[HedgeWithheld, str]] = ...) -> None: ...

class DirectRoute(_message.Message):
    __slots__ = ("model", "region", "precision", "simulated", "provider", "offering_id", "byok")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    REGION_FIELD_NUMBER: _ClassVar[int]
    PRECISION_FIELD_NUMBER: _ClassVar[int]
    SIMULATED_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    OFFERING_ID_FIELD_NUMBER: _ClassVar[int]
    BYOK_FIELD_NUMBER: _ClassVar[int]
    model: str
    region: str
    precision: str
    simulated: bool
    provider: str
    offering_id: str
    byok: bool
    def __init__(self, model: _Optional[str] = ..., region: _Optional[str] = ..., precision: _Optional[str] = ..., simulated: _Optional[bool] = ..., provider: _Optional[str] = ..., offering_id: _Optional[str] = ..., byok: _Optional[bool] = ...) -> None: ...

class Attempt(_message.Message):
    __slots__ = ("model", "status", "latency_ms", "reason", "provider", "offering_id", "byok")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    LATENCY_MS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    OFFERING_ID_FIELD_NUMBER: _ClassVar[int]
    BYOK_FIELD_NUMBER: _ClassVar[int]
    model: str
    status: AttemptStatus
    latency_ms: float
    reason: AttemptFailure
    provider: str
    offering_id: str
    byok: bool
    def __init__(self, model: _Optional[str] = ..., status: _Optional[_Union[AttemptStatus, str]] = ..., latency_ms: _Optional[float] = ..., reason: _Optional[_Union[AttemptFailure, str]] = ..., provider: _Optional[str] = ..., offering_id: _Optional[str] = ..., byok: _Optional[bool] = ...) -> None: ...
