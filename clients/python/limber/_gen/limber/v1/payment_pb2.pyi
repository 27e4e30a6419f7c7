from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PaymentKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PAYMENT_KIND_UNSPECIFIED: _ClassVar[PaymentKind]
    PAYMENT_KIND_PAYMENT: _ClassVar[PaymentKind]
    PAYMENT_KIND_CREDIT: _ClassVar[PaymentKind]
    PAYMENT_KIND_AVAILABILITY_FEE: _ClassVar[PaymentKind]

class PaymentStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PAYMENT_STATUS_UNSPECIFIED: _ClassVar[PaymentStatus]
    PAYMENT_STATUS_PENDING: _ClassVar[PaymentStatus]
    PAYMENT_STATUS_SUCCEEDED: _ClassVar[PaymentStatus]
    PAYMENT_STATUS_FAILED: _ClassVar[PaymentStatus]
    PAYMENT_STATUS_EXPIRED: _ClassVar[PaymentStatus]
    PAYMENT_STATUS_REFUNDED: _ClassVar[PaymentStatus]
PAYMENT_KIND_UNSPECIFIED: PaymentKind
PAYMENT_KIND_PAYMENT: PaymentKind
PAYMENT_KIND_CREDIT: PaymentKind
PAYMENT_KIND_AVAILABILITY_FEE: PaymentKind
PAYMENT_STATUS_UNSPECIFIED: PaymentStatus
PAYMENT_STATUS_PENDING: PaymentStatus
PAYMENT_STATUS_SUCCEEDED: PaymentStatus
PAYMENT_STATUS_FAILED: PaymentStatus
PAYMENT_STATUS_EXPIRED: PaymentStatus
PAYMENT_STATUS_REFUNDED: PaymentStatus

class Payment(_message.Message):
    __slots__ = ("id", "amount_usd", "fee_usd", "status", "refunded_usd", "owed_usd", "processor", "checkout_url", "created", "expires_at", "completed_at", "kind", "note", "automatic")
    ID_FIELD_NUMBER: _ClassVar[int]
    AMOUNT_USD_FIELD_NUMBER: _ClassVar[int]
    FEE_USD_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    REFUNDED_USD_FIELD_NUMBER: _ClassVar[int]
    OWED_USD_FIELD_NUMBER: _ClassVar[int]
    PROCESSOR_FIELD_NUMBER: _ClassVar[int]
    CHECKOUT_URL_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    COMPLETED_AT_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    AUTOMATIC_FIELD_NUMBER: _ClassVar[int]
    id: str
    amount_usd: float
    fee_usd: float
    status: PaymentStatus
    refunded_usd: float
    owed_usd: float
    processor: str
    checkout_url: str
    created: int
    expires_at: int
    completed_at: int
    kind: PaymentKind
    note: str
    automatic: bool
    def __init__(self, id: _Optional[str] = ..., amount_usd: _Optional[float] = ..., fee_usd: _Optional[float] = ..., status: _Optional[_Union[PaymentStatus, str]] = ..., refunded_usd: _Optional[float] = ..., owed_usd: _Optional[float] = ..., processor: _Optional[str] = ..., checkout_url: _Optional[str] = ..., created: _Optional[int] = ..., expires_at: _Optional[int] = ..., completed_at: _Optional[int] = ..., kind: _Optional[_Union[PaymentKind, str]] = ..., note: _Optional[str] = ..., automatic: _Optional[bool] = ...) -> None: ...
