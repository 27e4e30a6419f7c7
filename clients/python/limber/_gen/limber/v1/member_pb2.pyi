from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class MemberStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MEMBER_STATUS_UNSPECIFIED: _ClassVar[MemberStatus]
    MEMBER_STATUS_INVITED: _ClassVar[MemberStatus]
    MEMBER_STATUS_ACTIVE: _ClassVar[MemberStatus]
    MEMBER_STATUS_DEACTIVATED: _ClassVar[MemberStatus]
MEMBER_STATUS_UNSPECIFIED: MemberStatus
MEMBER_STATUS_INVITED: MemberStatus
MEMBER_STATUS_ACTIVE: MemberStatus
MEMBER_STATUS_DEACTIVATED: MemberStatus

class Member(_message.Message):
    __slots__ = ("user_id", "org_id", "email", "role", "given_role", "workspace_ids", "status", "created", "invite", "invite_expires_at", "sign_in_url", "invite_mailed")
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    ORG_ID_FIELD_NUMBER: _ClassVar[int]
    EMAIL_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    GIVEN_ROLE_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_IDS_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    INVITE_FIELD_NUMBER: _ClassVar[int]
    INVITE_EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    SIGN_IN_URL_FIELD_NUMBER: _ClassVar[int]
    INVITE_MAILED_FIELD_NUMBER: _ClassVar[int]
    user_id: str
    org_id: str
    email: str
    role: str
    given_role: str
    workspace_ids: _containers.RepeatedScalarFieldContainer[str]
    status: MemberStatus
    created: int
    invite: str
    invite_expires_at: int
    sign_in_url: str
    invite_mailed: bool
    def __init__(self, user_id: _Optional[str] = ..., org_id: _Optional[str] = ..., email: _Optional[str] = ..., role: _Optional[str] = ..., given_role: _Optional[str] = ..., workspace_ids: _Optional[_Iterable[str]] = ..., status: _Optional[_Union[MemberStatus, str]] = ..., created: _Optional[int] = ..., invite: _Optional[str] = ..., invite_expires_at: _Optional[int] = ..., sign_in_url: _Optional[str] = ..., invite_mailed: _Optional[bool] = ...) -> None: ...

class Role(_message.Message):
    __slots__ = ("id", "name", "description", "permissions", "own_permissions")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    PERMISSIONS_FIELD_NUMBER: _ClassVar[int]
    OWN_PERMISSIONS_FIELD_NUMBER: _ClassVar[int]
    id: str
    name: str
    description: str
    permissions: _containers.RepeatedScalarFieldContainer[str]
    own_permissions: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, id: _Optional[str] = ..., name: _Optional[str] = ..., description: _Optional[str] = ..., permissions: _Optional[_Iterable[str]] = ..., own_permissions: _Optional[_Iterable[str]] = ...) -> None: ...

class Permission(_message.Message):
    __slots__ = ("id", "description", "endpoints")
    ID_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    id: str
    description: str
    endpoints: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, id: _Optional[str] = ..., description: _Optional[str] = ..., endpoints: _Optional[_Iterable[str]] = ...) -> None: ...

class RolePermissions(_message.Message):
    __slots__ = ("permissions",)
    class PermissionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: bool
        def __init__(self, key: _Optional[str] = ..., value: _Optional[bool] = ...) -> None: ...
    PERMISSIONS_FIELD_NUMBER: _ClassVar[int]
    permissions: _containers.ScalarMap[str, bool]
    def __init__(self, permissions: _Optional[_Mapping[str, bool]] = ...) -> None: ...
