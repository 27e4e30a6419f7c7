from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Priority(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PRIORITY_UNSPECIFIED: _ClassVar[Priority]
    PRIORITY_BATCH: _ClassVar[Priority]
    PRIORITY_ADMINISTRATION: _ClassVar[Priority]
    PRIORITY_PREDICT: _ClassVar[Priority]
    PRIORITY_ACT: _ClassVar[Priority]
    PRIORITY_LOOP: _ClassVar[Priority]
    PRIORITY_CRITICAL: _ClassVar[Priority]

class WorkspaceReach(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    WORKSPACE_REACH_UNSPECIFIED: _ClassVar[WorkspaceReach]
    WORKSPACE_REACH_NONE: _ClassVar[WorkspaceReach]
    WORKSPACE_REACH_OWN_WORKSPACE: _ClassVar[WorkspaceReach]
    WORKSPACE_REACH_ORGANISATION_READ: _ClassVar[WorkspaceReach]
    WORKSPACE_REACH_ORGANISATION: _ClassVar[WorkspaceReach]

class Yield(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    YIELD_UNSPECIFIED: _ClassVar[Yield]
    YIELD_NOTHING: _ClassVar[Yield]
    YIELD_AUTHORITY: _ClassVar[Yield]
    YIELD_GRANTED: _ClassVar[Yield]

class Dialect(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DIALECT_UNSPECIFIED: _ClassVar[Dialect]
    DIALECT_OAUTH: _ClassVar[Dialect]
    DIALECT_SCIM: _ClassVar[Dialect]

class Access(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ACCESS_UNSPECIFIED: _ClassVar[Access]
    ACCESS_PUBLIC: _ClassVar[Access]
    ACCESS_KEY: _ClassVar[Access]
    ACCESS_ADMIN: _ClassVar[Access]
    ACCESS_ADMIN_OR_KEY: _ClassVar[Access]
    ACCESS_ADMIN_OR_SIGNUP: _ClassVar[Access]

class StreamFormat(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STREAM_FORMAT_UNSPECIFIED: _ClassVar[StreamFormat]
    STREAM_FORMAT_SSE: _ClassVar[StreamFormat]
    STREAM_FORMAT_LINES: _ClassVar[StreamFormat]

class RpcCode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RPC_CODE_UNSPECIFIED: _ClassVar[RpcCode]
    RPC_CODE_CANCELLED: _ClassVar[RpcCode]
    RPC_CODE_INVALID_ARGUMENT: _ClassVar[RpcCode]
    RPC_CODE_DEADLINE_EXCEEDED: _ClassVar[RpcCode]
    RPC_CODE_NOT_FOUND: _ClassVar[RpcCode]
    RPC_CODE_ALREADY_EXISTS: _ClassVar[RpcCode]
    RPC_CODE_PERMISSION_DENIED: _ClassVar[RpcCode]
    RPC_CODE_RESOURCE_EXHAUSTED: _ClassVar[RpcCode]
    RPC_CODE_FAILED_PRECONDITION: _ClassVar[RpcCode]
    RPC_CODE_ABORTED: _ClassVar[RpcCode]
    RPC_CODE_UNIMPLEMENTED: _ClassVar[RpcCode]
    RPC_CODE_INTERNAL: _ClassVar[RpcCode]
    RPC_CODE_UNAVAILABLE: _ClassVar[RpcCode]
    RPC_CODE_UNAUTHENTICATED: _ClassVar[RpcCode]

class ErrorType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ERROR_TYPE_UNSPECIFIED: _ClassVar[ErrorType]
    ERROR_TYPE_AUTHENTICATION_ERROR: _ClassVar[ErrorType]
    ERROR_TYPE_PERMISSION_ERROR: _ClassVar[ErrorType]
    ERROR_TYPE_BILLING_ERROR: _ClassVar[ErrorType]
    ERROR_TYPE_RATE_LIMIT_ERROR: _ClassVar[ErrorType]
    ERROR_TYPE_VALIDATION_ERROR: _ClassVar[ErrorType]
    ERROR_TYPE_NOT_FOUND_ERROR: _ClassVar[ErrorType]
    ERROR_TYPE_CONFLICT_ERROR: _ClassVar[ErrorType]
    ERROR_TYPE_ROUTING_ERROR: _ClassVar[ErrorType]
    ERROR_TYPE_UPSTREAM_ERROR: _ClassVar[ErrorType]
    ERROR_TYPE_TIMEOUT_ERROR: _ClassVar[ErrorType]
    ERROR_TYPE_SERVER_ERROR: _ClassVar[ErrorType]
PRIORITY_UNSPECIFIED: Priority
PRIORITY_BATCH: Priority
PRIORITY_ADMINISTRATION: Priority
PRIORITY_PREDICT: Priority
PRIORITY_ACT: Priority
PRIORITY_LOOP: Priority
PRIORITY_CRITICAL: Priority
WORKSPACE_REACH_UNSPECIFIED: WorkspaceReach
WORKSPACE_REACH_NONE: WorkspaceReach
WORKSPACE_REACH_OWN_WORKSPACE: WorkspaceReach
WORKSPACE_REACH_ORGANISATION_READ: WorkspaceReach
WORKSPACE_REACH_ORGANISATION: WorkspaceReach
YIELD_UNSPECIFIED: Yield
YIELD_NOTHING: Yield
YIELD_AUTHORITY: Yield
YIELD_GRANTED: Yield
DIALECT_UNSPECIFIED: Dialect
DIALECT_OAUTH: Dialect
DIALECT_SCIM: Dialect
ACCESS_UNSPECIFIED: Access
ACCESS_PUBLIC: Access
ACCESS_KEY: Access
ACCESS_ADMIN: Access
ACCESS_ADMIN_OR_KEY: Access
ACCESS_ADMIN_OR_SIGNUP: Access
STREAM_FORMAT_UNSPECIFIED: StreamFormat
STREAM_FORMAT_SSE: StreamFormat
STREAM_FORMAT_LINES: StreamFormat
RPC_CODE_UNSPECIFIED: RpcCode
RPC_CODE_CANCELLED: RpcCode
RPC_CODE_INVALID_ARGUMENT: RpcCode
RPC_CODE_DEADLINE_EXCEEDED: RpcCode
RPC_CODE_NOT_FOUND: RpcCode
RPC_CODE_ALREADY_EXISTS: RpcCode
RPC_CODE_PERMISSION_DENIED: RpcCode
RPC_CODE_RESOURCE_EXHAUSTED: RpcCode
RPC_CODE_FAILED_PRECONDITION: RpcCode
RPC_CODE_ABORTED: RpcCode
RPC_CODE_UNIMPLEMENTED: RpcCode
RPC_CODE_INTERNAL: RpcCode
RPC_CODE_UNAVAILABLE: RpcCode
RPC_CODE_UNAUTHENTICATED: RpcCode
ERROR_TYPE_UNSPECIFIED: ErrorType
ERROR_TYPE_AUTHENTICATION_ERROR: ErrorType
ERROR_TYPE_PERMISSION_ERROR: ErrorType
ERROR_TYPE_BILLING_ERROR: ErrorType
ERROR_TYPE_RATE_LIMIT_ERROR: ErrorType
ERROR_TYPE_VALIDATION_ERROR: ErrorType
ERROR_TYPE_NOT_FOUND_ERROR: ErrorType
ERROR_TYPE_CONFLICT_ERROR: ErrorType
ERROR_TYPE_ROUTING_ERROR: ErrorType
ERROR_TYPE_UPSTREAM_ERROR: ErrorType
ERROR_TYPE_TIMEOUT_ERROR: ErrorType
ERROR_TYPE_SERVER_ERROR: ErrorType

class Rpc(_message.Message):
    __slots__ = ("access", "permission", "success_status", "idempotent", "stream_format", "scope", "own", "dialect", "per_minute", "max_bytes", "workspaces", "yields", "priority", "tool")
    ACCESS_FIELD_NUMBER: _ClassVar[int]
    PERMISSION_FIELD_NUMBER: _ClassVar[int]
    SUCCESS_STATUS_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENT_FIELD_NUMBER: _ClassVar[int]
    STREAM_FORMAT_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    OWN_FIELD_NUMBER: _ClassVar[int]
    DIALECT_FIELD_NUMBER: _ClassVar[int]
    PER_MINUTE_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    WORKSPACES_FIELD_NUMBER: _ClassVar[int]
    YIELDS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    TOOL_FIELD_NUMBER: _ClassVar[int]
    access: Access
    permission: str
    success_status: int
    idempotent: bool
    stream_format: StreamFormat
    scope: str
    own: bool
    dialect: Dialect
    per_minute: int
    max_bytes: int
    workspaces: WorkspaceReach
    yields: Yield
    priority: Priority
    tool: Tool
    def __init__(self, access: _Optional[_Union[Access, str]] = ..., permission: _Optional[str] = ..., success_status: _Optional[int] = ..., idempotent: _Optional[bool] = ..., stream_format: _Optional[_Union[StreamFormat, str]] = ..., scope: _Optional[str] = ..., own: _Optional[bool] = ..., dialect: _Optional[_Union[Dialect, str]] = ..., per_minute: _Optional[int] = ..., max_bytes: _Optional[int] = ..., workspaces: _Optional[_Union[WorkspaceReach, str]] = ..., yields: _Optional[_Union[Yield, str]] = ..., priority: _Optional[_Union[Priority, str]] = ..., tool: _Optional[_Union[Tool, _Mapping]] = ...) -> None: ...

class Tool(_message.Message):
    __slots__ = ("name", "description", "fields", "moves")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    MOVES_FIELD_NUMBER: _ClassVar[int]
    name: str
    description: str
    fields: _containers.RepeatedScalarFieldContainer[str]
    moves: bool
    def __init__(self, name: _Optional[str] = ..., description: _Optional[str] = ..., fields: _Optional[_Iterable[str]] = ..., moves: _Optional[bool] = ...) -> None: ...

class Refusal(_message.Message):
    __slots__ = ("status", "rpc_code", "type", "retryable", "scim_type")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    RPC_CODE_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    RETRYABLE_FIELD_NUMBER: _ClassVar[int]
    SCIM_TYPE_FIELD_NUMBER: _ClassVar[int]
    status: int
    rpc_code: RpcCode
    type: ErrorType
    retryable: bool
    scim_type: str
    def __init__(self, status: _Optional[int] = ..., rpc_code: _Optional[_Union[RpcCode, str]] = ..., type: _Optional[_Union[ErrorType, str]] = ..., retryable: _Optional[bool] = ..., scim_type: _Optional[str] = ...) -> None: ...
