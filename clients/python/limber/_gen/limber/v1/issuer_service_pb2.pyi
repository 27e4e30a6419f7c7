from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class IssuerStep(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ISSUER_STEP_UNSPECIFIED: _ClassVar[IssuerStep]
    ISSUER_STEP_ADDRESS: _ClassVar[IssuerStep]
    ISSUER_STEP_DNS: _ClassVar[IssuerStep]
    ISSUER_STEP_CONNECTION: _ClassVar[IssuerStep]
    ISSUER_STEP_TLS: _ClassVar[IssuerStep]
    ISSUER_STEP_DISCOVERY: _ClassVar[IssuerStep]
    ISSUER_STEP_CLIENT: _ClassVar[IssuerStep]
ISSUER_STEP_UNSPECIFIED: IssuerStep
ISSUER_STEP_ADDRESS: IssuerStep
ISSUER_STEP_DNS: IssuerStep
ISSUER_STEP_CONNECTION: IssuerStep
ISSUER_STEP_TLS: IssuerStep
ISSUER_STEP_DISCOVERY: IssuerStep
ISSUER_STEP_CLIENT: IssuerStep

class Issuer(_message.Message):
    __slots__ = ("name", "issuer", "client_id", "has_secret", "domains", "join_role", "redirect_uri", "created", "updated", "emails_verified")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ISSUER_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    HAS_SECRET_FIELD_NUMBER: _ClassVar[int]
    DOMAINS_FIELD_NUMBER: _ClassVar[int]
    JOIN_ROLE_FIELD_NUMBER: _ClassVar[int]
    REDIRECT_URI_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    UPDATED_FIELD_NUMBER: _ClassVar[int]
    EMAILS_VERIFIED_FIELD_NUMBER: _ClassVar[int]
    name: str
    issuer: str
    client_id: str
    has_secret: bool
    domains: _containers.RepeatedScalarFieldContainer[str]
    join_role: str
    redirect_uri: str
    created: int
    updated: int
    emails_verified: bool
    def __init__(self, name: _Optional[str] = ..., issuer: _Optional[str] = ..., client_id: _Optional[str] = ..., has_secret: _Optional[bool] = ..., domains: _Optional[_Iterable[str]] = ..., join_role: _Optional[str] = ..., redirect_uri: _Optional[str] = ..., created: _Optional[int] = ..., updated: _Optional[int] = ..., emails_verified: _Optional[bool] = ...) -> None: ...

class EmailDomain(_message.Message):
    __slots__ = ("domain", "issuer", "verified")
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    ISSUER_FIELD_NUMBER: _ClassVar[int]
    VERIFIED_FIELD_NUMBER: _ClassVar[int]
    domain: str
    issuer: str
    verified: int
    def __init__(self, domain: _Optional[str] = ..., issuer: _Optional[str] = ..., verified: _Optional[int] = ...) -> None: ...

class PutIssuerRequest(_message.Message):
    __slots__ = ("org_id", "name", "issuer", "client_id", "client_secret", "domains", "join_role", "emails_verified")
    ORG_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ISSUER_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    CLIENT_SECRET_FIELD_NUMBER: _ClassVar[int]
    DOMAINS_FIELD_NUMBER: _ClassVar[int]
    JOIN_ROLE_FIELD_NUMBER: _ClassVar[int]
    EMAILS_VERIFIED_FIELD_NUMBER: _ClassVar[int]
    org_id: str
    name: str
    issuer: str
    client_id: str
    client_secret: str
    domains: _containers.RepeatedScalarFieldContainer[str]
    join_role: str
    emails_verified: bool
    def __init__(self, org_id: _Optional[str] = ..., name: _Optional[str] = ..., issuer: _Optional[str] = ..., client_id: _Optional[str] = ..., client_secret: _Optional[str] = ..., domains: _Optional[_Iterable[str]] = ..., join_role: _Optional[str] = ..., emails_verified: _Optional[bool] = ...) -> None: ...

class PutIssuerResponse(_message.Message):
    __slots__ = ("issuer",)
    ISSUER_FIELD_NUMBER: _ClassVar[int]
    issuer: Issuer
    def __init__(self, issuer: _Optional[_Union[Issuer, _Mapping]] = ...) -> None: ...

class TestIssuerRequest(_message.Message):
    __slots__ = ("org_id", "name", "issuer", "client_id", "client_secret")
    ORG_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ISSUER_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    CLIENT_SECRET_FIELD_NUMBER: _ClassVar[int]
    org_id: str
    name: str
    issuer: str
    client_id: str
    client_secret: str
    def __init__(self, org_id: _Optional[str] = ..., name: _Optional[str] = ..., issuer: _Optional[str] = ..., client_id: _Optional[str] = ..., client_secret: _Optional[str] = ...) -> None: ...

class TestIssuerResponse(_message.Message):
    __slots__ = ("ok", "failed", "reason", "issuer")
    OK_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ISSUER_FIELD_NUMBER: _ClassVar[int]
    ok: bool
    failed: IssuerStep
    reason: str
    issuer: str
    def __init__(self, ok: _Optional[bool] = ..., failed: _Optional[_Union[IssuerStep, str]] = ..., reason: _Optional[str] = ..., issuer: _Optional[str] = ...) -> None: ...

class ListIssuersRequest(_message.Message):
    __slots__ = ("org_id", "limit", "cursor")
    ORG_ID_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    org_id: str
    limit: int
    cursor: str
    def __init__(self, org_id: _Optional[str] = ..., limit: _Optional[int] = ..., cursor: _Optional[str] = ...) -> None: ...

class ListIssuersResponse(_message.Message):
    __slots__ = ("object", "data", "has_more", "next_cursor")
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_FIELD_NUMBER: _ClassVar[int]
    NEXT_CURSOR_FIELD_NUMBER: _ClassVar[int]
    object: str
    data: _containers.RepeatedCompositeFieldContainer[Issuer]
    has_more: bool
    next_cursor: str
    def __init__(self, object: _Optional[str] = ..., data: _Optional[_Iterable[_Union[Issuer, _Mapping]]] = ..., has_more: _Optional[bool] = ..., next_cursor: _Optional[str] = ...) -> None: ...

class DeleteIssuerRequest(_message.Message):
    __slots__ = ("org_id", "name")
    ORG_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    org_id: str
    name: str
    def __init__(self, org_id: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class DeleteIssuerResponse(_message.Message):
    __slots__ = ("name", "deleted")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DELETED_FIELD_NUMBER: _ClassVar[int]
    name: str
    deleted: bool
    def __init__(self, name: _Optional[str] = ..., deleted: _Optional[bool] = ...) -> None: ...

class VerifyDomainRequest(_message.Message):
    __slots__ = ("org_id", "domain")
    ORG_ID_FIELD_NUMBER: _ClassVar[int]
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    org_id: str
    domain: str
    def __init__(self, org_id: _Optional[str] = ..., domain: _Optional[str] = ...) -> None: ...

class VerifyDomainResponse(_message.Message):
    __slots__ = ("domain",)
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    domain: EmailDomain
    def __init__(self, domain: _Optional[_Union[EmailDomain, _Mapping]] = ...) -> None: ...

class ListDomainsRequest(_message.Message):
    __slots__ = ("org_id", "limit", "cursor")
    ORG_ID_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    org_id: str
    limit: int
    cursor: str
    def __init__(self, org_id: _Optional[str] = ..., limit: _Optional[int] = ..., cursor: _Optional[str] = ...) -> None: ...

class ListDomainsResponse(_message.Message):
    __slots__ = ("object", "data", "has_more", "next_cursor")
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_FIELD_NUMBER: _ClassVar[int]
    NEXT_CURSOR_FIELD_NUMBER: _ClassVar[int]
    object: str
    data: _containers.RepeatedCompositeFieldContainer[EmailDomain]
    has_more: bool
    next_cursor: str
    def __init__(self, object: _Optional[str] = ..., data: _Optional[_Iterable[_Union[EmailDomain, _Mapping]]] = ..., has_more: _Optional[bool] = ..., next_cursor: _Optional[str] = ...) -> None: ...

class DeleteDomainRequest(_message.Message):
    __slots__ = ("org_id", "domain")
    ORG_ID_FIELD_NUMBER: _ClassVar[int]
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    org_id: str
    domain: str
    def __init__(self, org_id: _Optional[str] = ..., domain: _Optional[str] = ...) -> None: ...

class DeleteDomainResponse(_message.Message):
    __slots__ = ("domain", "deleted")
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    DELETED_FIELD_NUMBER: _ClassVar[int]
    domain: str
    deleted: bool
    def __init__(self, domain: _Optional[str] = ..., deleted: _Optional[bool] = ...) -> None: ...
