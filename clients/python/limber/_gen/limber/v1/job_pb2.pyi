from google.protobuf import struct_pb2 as _struct_pb2
from limber._gen.limber.v1 import contract_pb2 as _contract_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class JobKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    JOB_KIND_UNSPECIFIED: _ClassVar[JobKind]
    JOB_KIND_BATCH: _ClassVar[JobKind]
    JOB_KIND_EVALUATION: _ClassVar[JobKind]
    JOB_KIND_VERIFICATION: _ClassVar[JobKind]
    JOB_KIND_EXPORT: _ClassVar[JobKind]
    JOB_KIND_FILM: _ClassVar[JobKind]

class JobStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    JOB_STATUS_UNSPECIFIED: _ClassVar[JobStatus]
    JOB_STATUS_VALIDATING: _ClassVar[JobStatus]
    JOB_STATUS_QUEUED: _ClassVar[JobStatus]
    JOB_STATUS_PROVISIONING: _ClassVar[JobStatus]
    JOB_STATUS_IN_PROGRESS: _ClassVar[JobStatus]
    JOB_STATUS_RUNNING: _ClassVar[JobStatus]
    JOB_STATUS_CANCELLING: _ClassVar[JobStatus]
    JOB_STATUS_FINALIZING: _ClassVar[JobStatus]
    JOB_STATUS_SCORING: _ClassVar[JobStatus]
    JOB_STATUS_COMPLETED: _ClassVar[JobStatus]
    JOB_STATUS_FAILED: _ClassVar[JobStatus]
    JOB_STATUS_CANCELLED: _ClassVar[JobStatus]
    JOB_STATUS_EXPIRED: _ClassVar[JobStatus]

class BatchItemStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    BATCH_ITEM_STATUS_UNSPECIFIED: _ClassVar[BatchItemStatus]
    BATCH_ITEM_STATUS_QUEUED: _ClassVar[BatchItemStatus]
    BATCH_ITEM_STATUS_RUNNING: _ClassVar[BatchItemStatus]
    BATCH_ITEM_STATUS_COMPLETED: _ClassVar[BatchItemStatus]
    BATCH_ITEM_STATUS_FAILED: _ClassVar[BatchItemStatus]
    BATCH_ITEM_STATUS_CANCELLED: _ClassVar[BatchItemStatus]
JOB_KIND_UNSPECIFIED: JobKind
JOB_KIND_BATCH: JobKind
JOB_KIND_EVALUATION: JobKind
JOB_KIND_VERIFICATION: JobKind
JOB_KIND_EXPORT: JobKind
JOB_KIND_FILM: JobKind
JOB_STATUS_UNSPECIFIED: JobStatus
JOB_STATUS_VALIDATING: JobStatus
JOB_STATUS_QUEUED: JobStatus
JOB_STATUS_PROVISIONING: JobStatus
JOB_STATUS_IN_PROGRESS: JobStatus
JOB_STATUS_RUNNING: JobStatus
JOB_STATUS_CANCELLING: JobStatus
JOB_STATUS_FINALIZING: JobStatus
JOB_STATUS_SCORING: JobStatus
JOB_STATUS_COMPLETED: JobStatus
JOB_STATUS_FAILED: JobStatus
JOB_STATUS_CANCELLED: JobStatus
JOB_STATUS_EXPIRED: JobStatus
BATCH_ITEM_STATUS_UNSPECIFIED: BatchItemStatus
BATCH_ITEM_STATUS_QUEUED: BatchItemStatus
BATCH_ITEM_STATUS_RUNNING: BatchItemStatus
BATCH_ITEM_STATUS_COMPLETED: BatchItemStatus
BATCH_ITEM_STATUS_FAILED: BatchItemStatus
BATCH_ITEM_STATUS_CANCELLED: BatchItemStatus

class Job(_message.Message):
    __slots__ = ("id", "object", "kind", "status", "total", "ended", "created_at", "started_at", "finished_at", "cost_usd")
    ID_FIELD_NUMBER: _ClassVar[int]
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    FINISHED_AT_FIELD_NUMBER: _ClassVar[int]
    COST_USD_FIELD_NUMBER: _ClassVar[int]
    id: str
    object: str
    kind: JobKind
    status: JobStatus
    total: int
    ended: int
    created_at: int
    started_at: int
    finished_at: int
    cost_usd: float
    def __init__(self, id: _Optional[str] = ..., object: _Optional[str] = ..., kind: _Optional[_Union[JobKind, str]] = ..., status: _Optional[_Union[JobStatus, str]] = ..., total: _Optional[int] = ..., ended: _Optional[int] = ..., created_at: _Optional[int] = ..., started_at: _Optional[int] = ..., finished_at: _Optional[int] = ..., cost_usd: _Optional[float] = ...) -> None: ...

class BatchCounts(_message.Message):
    __slots__ = ("total", "queued", "running", "completed", "failed", "cancelled")
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    QUEUED_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    COMPLETED_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    total: int
    queued: int
    running: int
    completed: int
    failed: int
    cancelled: int
    def __init__(self, total: _Optional[int] = ..., queued: _Optional[int] = ..., running: _Optional[int] = ..., completed: _Optional[int] = ..., failed: _Optional[int] = ..., cancelled: _Optional[int] = ...) -> None: ...

class Batch(_message.Message):
    __slots__ = ("id", "object", "contract", "status", "request_counts", "created_at", "started_at", "finalizing_at", "completed_at", "expires_at", "cost_usd", "errors", "items", "metadata", "reserved_usd")
    ID_FIELD_NUMBER: _ClassVar[int]
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    CONTRACT_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_COUNTS_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    FINALIZING_AT_FIELD_NUMBER: _ClassVar[int]
    COMPLETED_AT_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    COST_USD_FIELD_NUMBER: _ClassVar[int]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    RESERVED_USD_FIELD_NUMBER: _ClassVar[int]
    id: str
    object: str
    contract: _contract_pb2.Contract
    status: JobStatus
    request_counts: BatchCounts
    created_at: int
    started_at: int
    finalizing_at: int
    completed_at: int
    expires_at: int
    cost_usd: float
    errors: _containers.RepeatedCompositeFieldContainer[BatchError]
    items: _containers.RepeatedCompositeFieldContainer[BatchItem]
    metadata: _struct_pb2.Struct
    reserved_usd: float
    def __init__(self, id: _Optional[str] = ..., object: _Optional[str] = ..., contract: _Optional[_Union[_contract_pb2.Contract, str]] = ..., status: _Optional[_Union[JobStatus, str]] = ..., request_counts: _Optional[_Union[BatchCounts, _Mapping]] = ..., created_at: _Optional[int] = ..., started_at: _Optional[int] = ..., finalizing_at: _Optional[int] = ..., completed_at: _Optional[int] = ..., expires_at: _Optional[int] = ..., cost_usd: _Optional[float] = ..., errors: _Optional[_Iterable[_Union[BatchError, _Mapping]]] = ..., items: _Optional[_Iterable[_Union[BatchItem, _Mapping]]] = ..., metadata: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., reserved_usd: _Optional[float] = ...) -> None: ...

class BatchError(_message.Message):
    __slots__ = ("index", "code", "message")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    index: int
    code: str
    message: str
    def __init__(self, index: _Optional[int] = ..., code: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class BatchItem(_message.Message):
    __slots__ = ("index", "custom_id", "status", "cost_usd")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    CUSTOM_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    COST_USD_FIELD_NUMBER: _ClassVar[int]
    index: int
    custom_id: str
    status: BatchItemStatus
    cost_usd: float
    def __init__(self, index: _Optional[int] = ..., custom_id: _Optional[str] = ..., status: _Optional[_Union[BatchItemStatus, str]] = ..., cost_usd: _Optional[float] = ...) -> None: ...

class BatchResult(_message.Message):
    __slots__ = ("id", "custom_id", "index", "status", "response", "error")
    ID_FIELD_NUMBER: _ClassVar[int]
    CUSTOM_ID_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    id: str
    custom_id: str
    index: int
    status: BatchItemStatus
    response: BatchAnswer
    error: _struct_pb2.Struct
    def __init__(self, id: _Optional[str] = ..., custom_id: _Optional[str] = ..., index: _Optional[int] = ..., status: _Optional[_Union[BatchItemStatus, str]] = ..., response: _Optional[_Union[BatchAnswer, _Mapping]] = ..., error: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class BatchAnswer(_message.Message):
    __slots__ = ("status_code", "body")
    STATUS_CODE_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    status_code: int
    body: _struct_pb2.Struct
    def __init__(self, status_code: _Optional[int] = ..., body: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...
