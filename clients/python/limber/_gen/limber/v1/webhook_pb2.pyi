from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class WebhookStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    WEBHOOK_STATUS_UNSPECIFIED: _ClassVar[WebhookStatus]
    WEBHOOK_STATUS_ENABLED: _ClassVar[WebhookStatus]
    WEBHOOK_STATUS_DISABLED: _ClassVar[WebhookStatus]

class WebhookDeliveryStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    WEBHOOK_DELIVERY_STATUS_UNSPECIFIED: _ClassVar[WebhookDeliveryStatus]
    WEBHOOK_DELIVERY_STATUS_PENDING: _ClassVar[WebhookDeliveryStatus]
    WEBHOOK_DELIVERY_STATUS_DELIVERED: _ClassVar[WebhookDeliveryStatus]
    WEBHOOK_DELIVERY_STATUS_FAILED: _ClassVar[WebhookDeliveryStatus]
WEBHOOK_STATUS_UNSPECIFIED: WebhookStatus
WEBHOOK_STATUS_ENABLED: WebhookStatus
WEBHOOK_STATUS_DISABLED: WebhookStatus
WEBHOOK_DELIVERY_STATUS_UNSPECIFIED: WebhookDeliveryStatus
WEBHOOK_DELIVERY_STATUS_PENDING: WebhookDeliveryStatus
WEBHOOK_DELIVERY_STATUS_DELIVERED: WebhookDeliveryStatus
WEBHOOK_DELIVERY_STATUS_FAILED: WebhookDeliveryStatus

class Webhook(_message.Message):
    __slots__ = ("id", "object", "url", "events", "description", "status", "secret", "created_at", "last_delivery", "consecutive_failures", "workspace_id")
    ID_FIELD_NUMBER: _ClassVar[int]
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    LAST_DELIVERY_FIELD_NUMBER: _ClassVar[int]
    CONSECUTIVE_FAILURES_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    object: str
    url: str
    events: _containers.RepeatedScalarFieldContainer[str]
    description: str
    status: WebhookStatus
    secret: str
    created_at: int
    last_delivery: WebhookDelivery
    consecutive_failures: int
    workspace_id: str
    def __init__(self, id: _Optional[str] = ..., object: _Optional[str] = ..., url: _Optional[str] = ..., events: _Optional[_Iterable[str]] = ..., description: _Optional[str] = ..., status: _Optional[_Union[WebhookStatus, str]] = ..., secret: _Optional[str] = ..., created_at: _Optional[int] = ..., last_delivery: _Optional[_Union[WebhookDelivery, _Mapping]] = ..., consecutive_failures: _Optional[int] = ..., workspace_id: _Optional[str] = ...) -> None: ...

class WebhookDelivery(_message.Message):
    __slots__ = ("id", "event_id", "event", "status", "tries", "last_status", "last_error", "created_at", "next_try_at", "delivered_at")
    ID_FIELD_NUMBER: _ClassVar[int]
    EVENT_ID_FIELD_NUMBER: _ClassVar[int]
    EVENT_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    TRIES_FIELD_NUMBER: _ClassVar[int]
    LAST_STATUS_FIELD_NUMBER: _ClassVar[int]
    LAST_ERROR_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    NEXT_TRY_AT_FIELD_NUMBER: _ClassVar[int]
    DELIVERED_AT_FIELD_NUMBER: _ClassVar[int]
    id: str
    event_id: str
    event: str
    status: WebhookDeliveryStatus
    tries: int
    last_status: int
    last_error: str
    created_at: int
    next_try_at: int
    delivered_at: int
    def __init__(self, id: _Optional[str] = ..., event_id: _Optional[str] = ..., event: _Optional[str] = ..., status: _Optional[_Union[WebhookDeliveryStatus, str]] = ..., tries: _Optional[int] = ..., last_status: _Optional[int] = ..., last_error: _Optional[str] = ..., created_at: _Optional[int] = ..., next_try_at: _Optional[int] = ..., delivered_at: _Optional[int] = ...) -> None: ...
