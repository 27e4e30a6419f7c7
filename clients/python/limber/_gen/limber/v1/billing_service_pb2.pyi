from limber._gen.limber.v1 import account_pb2 as _account_pb2
from limber._gen.limber.v1 import auto_topup_pb2 as _auto_topup_pb2
from limber._gen.limber.v1 import payment_pb2 as _payment_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GetBillingRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetReceiptRequest(_message.Message):
    __slots__ = ("payment_id",)
    PAYMENT_ID_FIELD_NUMBER: _ClassVar[int]
    payment_id: str
    def __init__(self, payment_id: _Optional[str] = ...) -> None: ...

class GetReceiptResponse(_message.Message):
    __slots__ = ("filename", "content_type", "content")
    FILENAME_FIELD_NUMBER: _ClassVar[int]
    CONTENT_TYPE_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    filename: str
    content_type: str
    content: bytes
    def __init__(self, filename: _Optional[str] = ..., content_type: _Optional[str] = ..., content: _Optional[bytes] = ...) -> None: ...

class GetInvoiceRequest(_message.Message):
    __slots__ = ("month",)
    MONTH_FIELD_NUMBER: _ClassVar[int]
    month: str
    def __init__(self, month: _Optional[str] = ...) -> None: ...

class GetInvoiceResponse(_message.Message):
    __slots__ = ("filename", "content_type", "content", "total_usd", "open")
    FILENAME_FIELD_NUMBER: _ClassVar[int]
    CONTENT_TYPE_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    TOTAL_USD_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    filename: str
    content_type: str
    content: bytes
    total_usd: float
    open: bool
    def __init__(self, filename: _Optional[str] = ..., content_type: _Optional[str] = ..., content: _Optional[bytes] = ..., total_usd: _Optional[float] = ..., open: _Optional[bool] = ...) -> None: ...

class GetBillingResponse(_message.Message):
    __slots__ = ("enabled", "currency", "min_usd", "max_usd", "processor")
    ENABLED_FIELD_NUMBER: _ClassVar[int]
    CURRENCY_FIELD_NUMBER: _ClassVar[int]
    MIN_USD_FIELD_NUMBER: _ClassVar[int]
    MAX_USD_FIELD_NUMBER: _ClassVar[int]
    PROCESSOR_FIELD_NUMBER: _ClassVar[int]
    enabled: bool
    currency: str
    min_usd: float
    max_usd: float
    processor: str
    def __init__(self, enabled: _Optional[bool] = ..., currency: _Optional[str] = ..., min_usd: _Optional[float] = ..., max_usd: _Optional[float] = ..., processor: _Optional[str] = ...) -> None: ...

class GetBalanceRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetBalanceResponse(_message.Message):
    __slots__ = ("balance",)
    BALANCE_FIELD_NUMBER: _ClassVar[int]
    balance: _account_pb2.Balance
    def __init__(self, balance: _Optional[_Union[_account_pb2.Balance, _Mapping]] = ...) -> None: ...

class TopUpRequest(_message.Message):
    __slots__ = ("amount_usd", "success_url", "cancel_url", "idempotency_key")
    AMOUNT_USD_FIELD_NUMBER: _ClassVar[int]
    SUCCESS_URL_FIELD_NUMBER: _ClassVar[int]
    CANCEL_URL_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    amount_usd: float
    success_url: str
    cancel_url: str
    idempotency_key: str
    def __init__(self, amount_usd: _Optional[float] = ..., success_url: _Optional[str] = ..., cancel_url: _Optional[str] = ..., idempotency_key: _Optional[str] = ...) -> None: ...

class TopUpResponse(_message.Message):
    __slots__ = ("payment_id", "checkout_url", "amount_usd", "fee_usd", "status", "expires_at")
    PAYMENT_ID_FIELD_NUMBER: _ClassVar[int]
    CHECKOUT_URL_FIELD_NUMBER: _ClassVar[int]
    AMOUNT_USD_FIELD_NUMBER: _ClassVar[int]
    FEE_USD_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    payment_id: str
    checkout_url: str
    amount_usd: float
    fee_usd: float
    status: _payment_pb2.PaymentStatus
    expires_at: int
    def __init__(self, payment_id: _Optional[str] = ..., checkout_url: _Optional[str] = ..., amount_usd: _Optional[float] = ..., fee_usd: _Optional[float] = ..., status: _Optional[_Union[_payment_pb2.PaymentStatus, str]] = ..., expires_at: _Optional[int] = ...) -> None: ...

class ListPaymentsRequest(_message.Message):
    __slots__ = ("limit", "cursor")
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    limit: int
    cursor: str
    def __init__(self, limit: _Optional[int] = ..., cursor: _Optional[str] = ...) -> None: ...

class ListPaymentsResponse(_message.Message):
    __slots__ = ("object", "data", "has_more", "next_cursor")
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_FIELD_NUMBER: _ClassVar[int]
    NEXT_CURSOR_FIELD_NUMBER: _ClassVar[int]
    object: str
    data: _containers.RepeatedCompositeFieldContainer[_payment_pb2.Payment]
    has_more: bool
    next_cursor: str
    def __init__(self, object: _Optional[str] = ..., data: _Optional[_Iterable[_Union[_payment_pb2.Payment, _Mapping]]] = ..., has_more: _Optional[bool] = ..., next_cursor: _Optional[str] = ...) -> None: ...

class ReconcilePaymentRequest(_message.Message):
    __slots__ = ("payment_id",)
    PAYMENT_ID_FIELD_NUMBER: _ClassVar[int]
    payment_id: str
    def __init__(self, payment_id: _Optional[str] = ...) -> None: ...

class ReconcilePaymentResponse(_message.Message):
    __slots__ = ("payment",)
    PAYMENT_FIELD_NUMBER: _ClassVar[int]
    payment: _payment_pb2.Payment
    def __init__(self, payment: _Optional[_Union[_payment_pb2.Payment, _Mapping]] = ...) -> None: ...

class TakeProcessorMessageRequest(_message.Message):
    __slots__ = ("payload", "signature")
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    payload: bytes
    signature: str
    def __init__(self, payload: _Optional[bytes] = ..., signature: _Optional[str] = ...) -> None: ...

class TakeProcessorMessageResponse(_message.Message):
    __slots__ = ("received",)
    RECEIVED_FIELD_NUMBER: _ClassVar[int]
    received: bool
    def __init__(self, received: _Optional[bool] = ...) -> None: ...
