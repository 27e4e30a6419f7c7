from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Session(_message.Message):
    __slots__ = ("id", "user_id", "email", "org_id", "org_name", "role", "permissions", "own_permissions", "workspace_id", "workspaces", "reaches_organisation", "organisations", "method", "created", "expires_at")
    ID_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    EMAIL_FIELD_NUMBER: _ClassVar[int]
    ORG_ID_FIELD_NUMBER: _ClassVar[int]
    ORG_NAME_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    PERMISSIONS_FIELD_NUMBER: _ClassVar[int]
    OWN_PERMISSIONS_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_ID_FIELD_NUMBER: _ClassVar[int]
    WORKSPACES_FIELD_NUMBER: _ClassVar[int]
    REACHES_ORGANISATION_FIELD_NUMBER: _ClassVar[int]
    ORGANISATIONS_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    id: str
    user_id: str
    email: str
    org_id: str
    org_name: str
    role: str
    permissions: _containers.RepeatedScalarFieldContainer[str]
    own_permissions: _containers.RepeatedScalarFieldContainer[str]
    workspace_id: str
    workspaces: _containers.RepeatedCompositeFieldContainer[SessionWorkspace]
    reaches_organisation: bool
    organisations: _containers.RepeatedCompositeFieldContainer[SessionOrganisation]
    method: str
    created: int
    expires_at: int
    def __init__(self, id: _Optional[str] = ..., user_id: _Optional[str] = ..., email: _Optional[str] = ..., org_id: _Optional[str] = ..., org_name: _Optional[str] = ..., role: _Optional[str] = ..., permissions: _Optional[_Iterable[str]] = ..., own_permissions: _Optional[_Iterable[str]] = ..., workspace_id: _Optional[str] = ..., workspaces: _Optional[_Iterable[_Union[SessionWorkspace, _Mapping]]] = ..., reaches_organisation: _Optional[bool] = ..., organisations: _Optional[_Iterable[_Union[SessionOrganisation, _Mapping]]] = ..., method: _Optional[str] = ..., created: _Optional[int] = ..., expires_at: _Optional[int] = ...) -> None: ...

class SessionWorkspace(_message.Message):
    __slots__ = ("workspace_id", "name")
    WORKSPACE_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    workspace_id: str
    name: str
    def __init__(self, workspace_id: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class SessionOrganisation(_message.Message):
    __slots__ = ("org_id", "name", "user_id", "role")
    ORG_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    org_id: str
    name: str
    user_id: str
    role: str
    def __init__(self, org_id: _Optional[str] = ..., name: _Optional[str] = ..., user_id: _Optional[str] = ..., role: _Optional[str] = ...) -> None: ...

class CreateSessionRequest(_message.Message):
    __slots__ = ("token",)
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    token: str
    def __init__(self, token: _Optional[str] = ...) -> None: ...

class CreateSessionResponse(_message.Message):
    __slots__ = ("session",)
    SESSION_FIELD_NUMBER: _ClassVar[int]
    session: Session
    def __init__(self, session: _Optional[_Union[Session, _Mapping]] = ...) -> None: ...

class BeginSignInRequest(_message.Message):
    __slots__ = ("email", "return_to")
    EMAIL_FIELD_NUMBER: _ClassVar[int]
    RETURN_TO_FIELD_NUMBER: _ClassVar[int]
    email: str
    return_to: str
    def __init__(self, email: _Optional[str] = ..., return_to: _Optional[str] = ...) -> None: ...

class BeginSignInResponse(_message.Message):
    __slots__ = ("authorization_url",)
    AUTHORIZATION_URL_FIELD_NUMBER: _ClassVar[int]
    authorization_url: str
    def __init__(self, authorization_url: _Optional[str] = ...) -> None: ...

class FinishSignInRequest(_message.Message):
    __slots__ = ("issuer_id", "query")
    ISSUER_ID_FIELD_NUMBER: _ClassVar[int]
    QUERY_FIELD_NUMBER: _ClassVar[int]
    issuer_id: str
    query: str
    def __init__(self, issuer_id: _Optional[str] = ..., query: _Optional[str] = ...) -> None: ...

class FinishSignInResponse(_message.Message):
    __slots__ = ("session", "return_to")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    RETURN_TO_FIELD_NUMBER: _ClassVar[int]
    session: Session
    return_to: str
    def __init__(self, session: _Optional[_Union[Session, _Mapping]] = ..., return_to: _Optional[str] = ...) -> None: ...

class GetSessionRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetSessionResponse(_message.Message):
    __slots__ = ("session",)
    SESSION_FIELD_NUMBER: _ClassVar[int]
    session: Session
    def __init__(self, session: _Optional[_Union[Session, _Mapping]] = ...) -> None: ...

class UpdateSessionRequest(_message.Message):
    __slots__ = ("org_id", "workspace_id")
    ORG_ID_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_ID_FIELD_NUMBER: _ClassVar[int]
    org_id: str
    workspace_id: str
    def __init__(self, org_id: _Optional[str] = ..., workspace_id: _Optional[str] = ...) -> None: ...

class UpdateSessionResponse(_message.Message):
    __slots__ = ("session",)
    SESSION_FIELD_NUMBER: _ClassVar[int]
    session: Session
    def __init__(self, session: _Optional[_Union[Session, _Mapping]] = ...) -> None: ...

class DeleteSessionRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DeleteSessionResponse(_message.Message):
    __slots__ = ("ended",)
    ENDED_FIELD_NUMBER: _ClassVar[int]
    ended: int
    def __init__(self, ended: _Optional[int] = ...) -> None: ...

class CreateSignInLinkRequest(_message.Message):
    __slots__ = ("org_id", "user_id")
    ORG_ID_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    org_id: str
    user_id: str
    def __init__(self, org_id: _Optional[str] = ..., user_id: _Optional[str] = ...) -> None: ...

class CreateSignInLinkResponse(_message.Message):
    __slots__ = ("url", "token", "expires_at")
    URL_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    url: str
    token: str
    expires_at: int
    def __init__(self, url: _Optional[str] = ..., token: _Optional[str] = ..., expires_at: _Optional[int] = ...) -> None: ...

class EndSessionsRequest(_message.Message):
    __slots__ = ("org_id", "user_id")
    ORG_ID_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    org_id: str
    user_id: str
    def __init__(self, org_id: _Optional[str] = ..., user_id: _Optional[str] = ...) -> None: ...

class EndSessionsResponse(_message.Message):
    __slots__ = ("ended",)
    ENDED_FIELD_NUMBER: _ClassVar[int]
    ended: int
    def __init__(self, ended: _Optional[int] = ...) -> None: ...
