from limber._gen.limber.v1 import account_pb2 as _account_pb2
from limber._gen.limber.v1 import member_pb2 as _member_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class InviteMemberRequest(_message.Message):
    __slots__ = ("org_id", "email", "role", "workspace_ids")
    ORG_ID_FIELD_NUMBER: _ClassVar[int]
    EMAIL_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_IDS_FIELD_NUMBER: _ClassVar[int]
    org_id: str
    email: str
    role: str
    workspace_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, org_id: _Optional[str] = ..., email: _Optional[str] = ..., role: _Optional[str] = ..., workspace_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class InviteMemberResponse(_message.Message):
    __slots__ = ("member",)
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    member: _member_pb2.Member
    def __init__(self, member: _Optional[_Union[_member_pb2.Member, _Mapping]] = ...) -> None: ...

class AcceptInviteRequest(_message.Message):
    __slots__ = ("invite", "key_name")
    INVITE_FIELD_NUMBER: _ClassVar[int]
    KEY_NAME_FIELD_NUMBER: _ClassVar[int]
    invite: str
    key_name: str
    def __init__(self, invite: _Optional[str] = ..., key_name: _Optional[str] = ...) -> None: ...

class AcceptInviteResponse(_message.Message):
    __slots__ = ("member", "key")
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    member: _member_pb2.Member
    key: _account_pb2.Key
    def __init__(self, member: _Optional[_Union[_member_pb2.Member, _Mapping]] = ..., key: _Optional[_Union[_account_pb2.Key, _Mapping]] = ...) -> None: ...

class ListMembersRequest(_message.Message):
    __slots__ = ("org_id", "limit", "cursor")
    ORG_ID_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    org_id: str
    limit: int
    cursor: str
    def __init__(self, org_id: _Optional[str] = ..., limit: _Optional[int] = ..., cursor: _Optional[str] = ...) -> None: ...

class ListMembersResponse(_message.Message):
    __slots__ = ("object", "data", "has_more", "next_cursor")
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_FIELD_NUMBER: _ClassVar[int]
    NEXT_CURSOR_FIELD_NUMBER: _ClassVar[int]
    object: str
    data: _containers.RepeatedCompositeFieldContainer[_member_pb2.Member]
    has_more: bool
    next_cursor: str
    def __init__(self, object: _Optional[str] = ..., data: _Optional[_Iterable[_Union[_member_pb2.Member, _Mapping]]] = ..., has_more: _Optional[bool] = ..., next_cursor: _Optional[str] = ...) -> None: ...

class GetMemberRequest(_message.Message):
    __slots__ = ("org_id", "user_id")
    ORG_ID_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    org_id: str
    user_id: str
    def __init__(self, org_id: _Optional[str] = ..., user_id: _Optional[str] = ...) -> None: ...

class GetMemberResponse(_message.Message):
    __slots__ = ("member",)
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    member: _member_pb2.Member
    def __init__(self, member: _Optional[_Union[_member_pb2.Member, _Mapping]] = ...) -> None: ...

class UpdateMemberRequest(_message.Message):
    __slots__ = ("org_id", "user_id", "role", "workspace_ids")
    ORG_ID_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_IDS_FIELD_NUMBER: _ClassVar[int]
    org_id: str
    user_id: str
    role: str
    workspace_ids: MemberWorkspaces
    def __init__(self, org_id: _Optional[str] = ..., user_id: _Optional[str] = ..., role: _Optional[str] = ..., workspace_ids: _Optional[_Union[MemberWorkspaces, _Mapping]] = ...) -> None: ...

class MemberWorkspaces(_message.Message):
    __slots__ = ("ids",)
    IDS_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, ids: _Optional[_Iterable[str]] = ...) -> None: ...

class UpdateMemberResponse(_message.Message):
    __slots__ = ("member",)
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    member: _member_pb2.Member
    def __init__(self, member: _Optional[_Union[_member_pb2.Member, _Mapping]] = ...) -> None: ...

class RemoveMemberRequest(_message.Message):
    __slots__ = ("org_id", "user_id")
    ORG_ID_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    org_id: str
    user_id: str
    def __init__(self, org_id: _Optional[str] = ..., user_id: _Optional[str] = ...) -> None: ...

class RemoveMemberResponse(_message.Message):
    __slots__ = ("user_id", "removed")
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    user_id: str
    removed: bool
    def __init__(self, user_id: _Optional[str] = ..., removed: _Optional[bool] = ...) -> None: ...

class TransferOwnershipRequest(_message.Message):
    __slots__ = ("org_id", "user_id")
    ORG_ID_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    org_id: str
    user_id: str
    def __init__(self, org_id: _Optional[str] = ..., user_id: _Optional[str] = ...) -> None: ...

class TransferOwnershipResponse(_message.Message):
    __slots__ = ("owner", "previous")
    OWNER_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_FIELD_NUMBER: _ClassVar[int]
    owner: _member_pb2.Member
    previous: _member_pb2.Member
    def __init__(self, owner: _Optional[_Union[_member_pb2.Member, _Mapping]] = ..., previous: _Optional[_Union[_member_pb2.Member, _Mapping]] = ...) -> None: ...

class GetPermissionsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetPermissionsResponse(_message.Message):
    __slots__ = ("object", "roles", "permissions", "matrix")
    class MatrixEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _member_pb2.RolePermissions
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_member_pb2.RolePermissions, _Mapping]] = ...) -> None: ...
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    ROLES_FIELD_NUMBER: _ClassVar[int]
    PERMISSIONS_FIELD_NUMBER: _ClassVar[int]
    MATRIX_FIELD_NUMBER: _ClassVar[int]
    object: str
    roles: _containers.RepeatedCompositeFieldContainer[_member_pb2.Role]
    permissions: _containers.RepeatedCompositeFieldContainer[_member_pb2.Permission]
    matrix: _containers.MessageMap[str, _member_pb2.RolePermissions]
    def __init__(self, object: _Optional[str] = ..., roles: _Optional[_Iterable[_Union[_member_pb2.Role, _Mapping]]] = ..., permissions: _Optional[_Iterable[_Union[_member_pb2.Permission, _Mapping]]] = ..., matrix: _Optional[_Mapping[str, _member_pb2.RolePermissions]] = ...) -> None: ...
