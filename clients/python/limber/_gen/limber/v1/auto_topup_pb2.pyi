from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AutoTopUp(_message.Message):
    __slots__ = ("enabled", "threshold_usd", "amount_usd", "monthly_ceiling_usd", "charged_this_month_usd", "payment_method", "declines", "pending_payment_id", "not_before")
    ENABLED_FIELD_NUMBER: _ClassVar[int]
    THRESHOLD_USD_FIELD_NUMBER: _ClassVar[int]
    AMOUNT_USD_FIELD_NUMBER: _ClassVar[int]
    MONTHLY_CEILING_USD_FIELD_NUMBER: _ClassVar[int]
    CHARGED_THIS_MONTH_USD_FIELD_NUMBER: _ClassVar[int]
    PAYMENT_METHOD_FIELD_NUMBER: _ClassVar[int]
    DECLINES_FIELD_NUMBER: _ClassVar[int]
    PENDING_PAYMENT_ID_FIELD_NUMBER: _ClassVar[int]
    NOT_BEFORE_FIELD_NUMBER: _ClassVar[int]
    enabled: bool
    threshold_usd: float
    amount_usd: float
    monthly_ceiling_usd: float
    charged_this_month_usd: float
    payment_method: PaymentMethod
    declines: int
    pending_payment_id: str
    not_before: int
    def __init__(self, enabled: _Optional[bool] = ..., threshold_usd: _Optional[float] = ..., amount_usd: _Optional[float] = ..., monthly_ceiling_usd: _Optional[float] = ..., charged_this_month_usd: _Optional[float] = ..., payment_method: _Optional[_Union[PaymentMethod, _Mapping]] = ..., declines: _Optional[int] = ..., pending_payment_id: _Optional[str] = ..., not_before: _Optional[int] = ...) -> None: ...

class PaymentMethod(_message.Message):
    __slots__ = ("kind", "brand", "last4", "since")
    KIND_FIELD_NUMBER: _ClassVar[int]
    BRAND_FIELD_NUMBER: _ClassVar[int]
    LAST4_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    kind: str
    brand: str
    last4: str
    since: int
    def __init__(self, kind: _Optional[str] = ..., brand: _Optional[str] = ..., last4: _Optional[str] = ..., since: _Optional[int] = ...) -> None: ...

class GetAutoTopUpRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetAutoTopUpResponse(_message.Message):
    __slots__ = ("auto_topup",)
    AUTO_TOPUP_FIELD_NUMBER: _ClassVar[int]
    auto_topup: AutoTopUp
    def __init__(self, auto_topup: _Optional[_Union[AutoTopUp, _Mapping]] = ...) -> None: ...

class UpdateAutoTopUpRequest(_message.Message):
    __slots__ = ("enabled", "threshold_usd", "amount_usd", "monthly_ceiling_usd")
    ENABLED_FIELD_NUMBER: _ClassVar[int]
    THRESHOLD_USD_FIELD_NUMBER: _ClassVar[int]
    AMOUNT_USD_FIELD_NUMBER: _ClassVar[int]
    MONTHLY_CEILING_USD_FIELD_NUMBER: _ClassVar[int]
    enabled: bool
    threshold_usd: float
    amount_usd: float
    monthly_ceiling_usd: float
    def __init__(self, enabled: _Optional[bool] = ..., threshold_usd: _Optional[float] = ..., amount_usd: _Optional[float] = ..., monthly_ceiling_usd: _Optional[float] = ...) -> None: ...

class UpdateAutoTopUpResponse(_message.Message):
    __slots__ = ("auto_topup",)
    AUTO_TOPUP_FIELD_NUMBER: _ClassVar[int]
    auto_topup: AutoTopUp
    def __init__(self, auto_topup: _Optional[_Union[AutoTopUp, _Mapping]] = ...) -> None: ...

class SetUpPaymentMethodRequest(_message.Message):
    __slots__ = ("success_url", "cancel_url")
    SUCCESS_URL_FIELD_NUMBER: _ClassVar[int]
    CANCEL_URL_FIELD_NUMBER: _ClassVar[int]
    success_url: str
    cancel_url: str
    def __init__(self, success_url: _Optional[str] = ..., cancel_url: _Optional[str] = ...) -> None: ...

class SetUpPaymentMethodResponse(_message.Message):
    __slots__ = ("setup_url", "expires_at")
    SETUP_URL_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    setup_url: str
    expires_at: int
    def __init__(self, setup_url: _Optional[str] = ..., expires_at: _Optional[int] = ...) -> None: ...

class DeletePaymentMethodRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DeletePaymentMethodResponse(_message.Message):
    __slots__ = ("auto_topup",)
    AUTO_TOPUP_FIELD_NUMBER: _ClassVar[int]
    auto_topup: AutoTopUp
    def __init__(self, auto_topup: _Optional[_Union[AutoTopUp, _Mapping]] = ...) -> None: ...
