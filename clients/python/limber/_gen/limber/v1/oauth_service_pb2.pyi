from limber._gen.limber.v1 import oauth_pb2 as _oauth_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CreateOauthClientRequest(_message.Message):
    __slots__ = ("name", "redirect_uris", "scopes", "token_endpoint_auth_method")
    NAME_FIELD_NUMBER: _ClassVar[int]
    REDIRECT_URIS_FIELD_NUMBER: _ClassVar[int]
    SCOPES_FIELD_NUMBER: _ClassVar[int]
    TOKEN_ENDPOINT_AUTH_METHOD_FIELD_NUMBER: _ClassVar[int]
    name: str
    redirect_uris: _containers.RepeatedScalarFieldContainer[str]
    scopes: _containers.RepeatedScalarFieldContainer[str]
    token_endpoint_auth_method: str
    def __init__(self, name: _Optional[str] = ..., redirect_uris: _Optional[_Iterable[str]] = ..., scopes: _Optional[_Iterable[str]] = ..., token_endpoint_auth_method: _Optional[str] = ...) -> None: ...

class CreateOauthClientResponse(_message.Message):
    __slots__ = ("client",)
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    client: _oauth_pb2.OauthClient
    def __init__(self, client: _Optional[_Union[_oauth_pb2.OauthClient, _Mapping]] = ...) -> None: ...

class ListOauthClientsRequest(_message.Message):
    __slots__ = ("limit", "cursor")
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    limit: int
    cursor: str
    def __init__(self, limit: _Optional[int] = ..., cursor: _Optional[str] = ...) -> None: ...

class ListOauthClientsResponse(_message.Message):
    __slots__ = ("object", "data", "has_more", "next_cursor")
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_FIELD_NUMBER: _ClassVar[int]
    NEXT_CURSOR_FIELD_NUMBER: _ClassVar[int]
    object: str
    data: _containers.RepeatedCompositeFieldContainer[_oauth_pb2.OauthClient]
    has_more: bool
    next_cursor: str
    def __init__(self, object: _Optional[str] = ..., data: _Optional[_Iterable[_Union[_oauth_pb2.OauthClient, _Mapping]]] = ..., has_more: _Optional[bool] = ..., next_cursor: _Optional[str] = ...) -> None: ...

class DeleteOauthClientRequest(_message.Message):
    __slots__ = ("client_id",)
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    client_id: str
    def __init__(self, client_id: _Optional[str] = ...) -> None: ...

class DeleteOauthClientResponse(_message.Message):
    __slots__ = ("client_id", "deleted")
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    DELETED_FIELD_NUMBER: _ClassVar[int]
    client_id: str
    deleted: bool
    def __init__(self, client_id: _Optional[str] = ..., deleted: _Optional[bool] = ...) -> None: ...

class AuthorizeRequest(_message.Message):
    __slots__ = ("client_id", "redirect_uri", "code_challenge", "code_challenge_method", "scope", "state", "response_type", "budget_usd", "expires_in", "robot_id", "models", "workspace_id", "resource")
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    REDIRECT_URI_FIELD_NUMBER: _ClassVar[int]
    CODE_CHALLENGE_FIELD_NUMBER: _ClassVar[int]
    CODE_CHALLENGE_METHOD_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_TYPE_FIELD_NUMBER: _ClassVar[int]
    BUDGET_USD_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_IN_FIELD_NUMBER: _ClassVar[int]
    ROBOT_ID_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_ID_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    client_id: str
    redirect_uri: str
    code_challenge: str
    code_challenge_method: str
    scope: str
    state: str
    response_type: str
    budget_usd: float
    expires_in: int
    robot_id: str
    models: _containers.RepeatedScalarFieldContainer[str]
    workspace_id: str
    resource: str
    def __init__(self, client_id: _Optional[str] = ..., redirect_uri: _Optional[str] = ..., code_challenge: _Optional[str] = ..., code_challenge_method: _Optional[str] = ..., scope: _Optional[str] = ..., state: _Optional[str] = ..., response_type: _Optional[str] = ..., budget_usd: _Optional[float] = ..., expires_in: _Optional[int] = ..., robot_id: _Optional[str] = ..., models: _Optional[_Iterable[str]] = ..., workspace_id: _Optional[str] = ..., resource: _Optional[str] = ...) -> None: ...

class DescribeConsentRequest(_message.Message):
    __slots__ = ("client_id", "redirect_uri", "scope", "resource")
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    REDIRECT_URI_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    client_id: str
    redirect_uri: str
    scope: str
    resource: str
    def __init__(self, client_id: _Optional[str] = ..., redirect_uri: _Optional[str] = ..., scope: _Optional[str] = ..., resource: _Optional[str] = ...) -> None: ...

class DescribeConsentResponse(_message.Message):
    __slots__ = ("client_id", "client_name", "registered_itself", "redirect_host", "scopes", "org_id", "org_name", "workspace_id", "robot_id", "models", "budget_usd", "expires_at", "hardware")
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    CLIENT_NAME_FIELD_NUMBER: _ClassVar[int]
    REGISTERED_ITSELF_FIELD_NUMBER: _ClassVar[int]
    REDIRECT_HOST_FIELD_NUMBER: _ClassVar[int]
    SCOPES_FIELD_NUMBER: _ClassVar[int]
    ORG_ID_FIELD_NUMBER: _ClassVar[int]
    ORG_NAME_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_ID_FIELD_NUMBER: _ClassVar[int]
    ROBOT_ID_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    BUDGET_USD_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    HARDWARE_FIELD_NUMBER: _ClassVar[int]
    client_id: str
    client_name: str
    registered_itself: bool
    redirect_host: str
    scopes: _containers.RepeatedCompositeFieldContainer[ConsentScope]
    org_id: str
    org_name: str
    workspace_id: str
    robot_id: str
    models: _containers.RepeatedScalarFieldContainer[str]
    budget_usd: float
    expires_at: int
    hardware: bool
    def __init__(self, client_id: _Optional[str] = ..., client_name: _Optional[str] = ..., registered_itself: _Optional[bool] = ..., redirect_host: _Optional[str] = ..., scopes: _Optional[_Iterable[_Union[ConsentScope, _Mapping]]] = ..., org_id: _Optional[str] = ..., org_name: _Optional[str] = ..., workspace_id: _Optional[str] = ..., robot_id: _Optional[str] = ..., models: _Optional[_Iterable[str]] = ..., budget_usd: _Optional[float] = ..., expires_at: _Optional[int] = ..., hardware: _Optional[bool] = ...) -> None: ...

class ConsentScope(_message.Message):
    __slots__ = ("scope", "description", "grantable")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    GRANTABLE_FIELD_NUMBER: _ClassVar[int]
    scope: str
    description: str
    grantable: bool
    def __init__(self, scope: _Optional[str] = ..., description: _Optional[str] = ..., grantable: _Optional[bool] = ...) -> None: ...

class RegisterOauthClientRequest(_message.Message):
    __slots__ = ("client_name", "redirect_uris", "token_endpoint_auth_method", "grant_types", "response_types", "scope")
    CLIENT_NAME_FIELD_NUMBER: _ClassVar[int]
    REDIRECT_URIS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_ENDPOINT_AUTH_METHOD_FIELD_NUMBER: _ClassVar[int]
    GRANT_TYPES_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_TYPES_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    client_name: str
    redirect_uris: _containers.RepeatedScalarFieldContainer[str]
    token_endpoint_auth_method: str
    grant_types: _containers.RepeatedScalarFieldContainer[str]
    response_types: _containers.RepeatedScalarFieldContainer[str]
    scope: str
    def __init__(self, client_name: _Optional[str] = ..., redirect_uris: _Optional[_Iterable[str]] = ..., token_endpoint_auth_method: _Optional[str] = ..., grant_types: _Optional[_Iterable[str]] = ..., response_types: _Optional[_Iterable[str]] = ..., scope: _Optional[str] = ...) -> None: ...

class RegisterOauthClientResponse(_message.Message):
    __slots__ = ("client_id", "client_secret", "client_id_issued_at", "client_secret_expires_at", "client_name", "redirect_uris", "token_endpoint_auth_method", "grant_types", "response_types", "scope")
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    CLIENT_SECRET_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_ISSUED_AT_FIELD_NUMBER: _ClassVar[int]
    CLIENT_SECRET_EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    CLIENT_NAME_FIELD_NUMBER: _ClassVar[int]
    REDIRECT_URIS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_ENDPOINT_AUTH_METHOD_FIELD_NUMBER: _ClassVar[int]
    GRANT_TYPES_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_TYPES_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    client_id: str
    client_secret: str
    client_id_issued_at: int
    client_secret_expires_at: int
    client_name: str
    redirect_uris: _containers.RepeatedScalarFieldContainer[str]
    token_endpoint_auth_method: str
    grant_types: _containers.RepeatedScalarFieldContainer[str]
    response_types: _containers.RepeatedScalarFieldContainer[str]
    scope: str
    def __init__(self, client_id: _Optional[str] = ..., client_secret: _Optional[str] = ..., client_id_issued_at: _Optional[int] = ..., client_secret_expires_at: _Optional[int] = ..., client_name: _Optional[str] = ..., redirect_uris: _Optional[_Iterable[str]] = ..., token_endpoint_auth_method: _Optional[str] = ..., grant_types: _Optional[_Iterable[str]] = ..., response_types: _Optional[_Iterable[str]] = ..., scope: _Optional[str] = ...) -> None: ...

class GetResourceMetadataRequest(_message.Message):
    __slots__ = ("issuer",)
    ISSUER_FIELD_NUMBER: _ClassVar[int]
    issuer: str
    def __init__(self, issuer: _Optional[str] = ...) -> None: ...

class GetResourceMetadataResponse(_message.Message):
    __slots__ = ("resource", "authorization_servers", "scopes_supported", "bearer_methods_supported", "resource_name", "resource_documentation")
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    AUTHORIZATION_SERVERS_FIELD_NUMBER: _ClassVar[int]
    SCOPES_SUPPORTED_FIELD_NUMBER: _ClassVar[int]
    BEARER_METHODS_SUPPORTED_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_NAME_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_DOCUMENTATION_FIELD_NUMBER: _ClassVar[int]
    resource: str
    authorization_servers: _containers.RepeatedScalarFieldContainer[str]
    scopes_supported: _containers.RepeatedScalarFieldContainer[str]
    bearer_methods_supported: _containers.RepeatedScalarFieldContainer[str]
    resource_name: str
    resource_documentation: str
    def __init__(self, resource: _Optional[str] = ..., authorization_servers: _Optional[_Iterable[str]] = ..., scopes_supported: _Optional[_Iterable[str]] = ..., bearer_methods_supported: _Optional[_Iterable[str]] = ..., resource_name: _Optional[str] = ..., resource_documentation: _Optional[str] = ...) -> None: ...

class AuthorizeResponse(_message.Message):
    __slots__ = ("code", "redirect_url", "expires_in", "scope", "state")
    CODE_FIELD_NUMBER: _ClassVar[int]
    REDIRECT_URL_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_IN_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    code: str
    redirect_url: str
    expires_in: int
    scope: str
    state: str
    def __init__(self, code: _Optional[str] = ..., redirect_url: _Optional[str] = ..., expires_in: _Optional[int] = ..., scope: _Optional[str] = ..., state: _Optional[str] = ...) -> None: ...

class ExchangeTokenRequest(_message.Message):
    __slots__ = ("grant_type", "code", "code_verifier", "client_id", "client_secret", "redirect_uri", "resource")
    GRANT_TYPE_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    CODE_VERIFIER_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    CLIENT_SECRET_FIELD_NUMBER: _ClassVar[int]
    REDIRECT_URI_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    grant_type: str
    code: str
    code_verifier: str
    client_id: str
    client_secret: str
    redirect_uri: str
    resource: str
    def __init__(self, grant_type: _Optional[str] = ..., code: _Optional[str] = ..., code_verifier: _Optional[str] = ..., client_id: _Optional[str] = ..., client_secret: _Optional[str] = ..., redirect_uri: _Optional[str] = ..., resource: _Optional[str] = ...) -> None: ...

class ExchangeTokenResponse(_message.Message):
    __slots__ = ("access_token", "token_type", "key_id", "user_id", "scope", "expires_at", "expires_in")
    ACCESS_TOKEN_FIELD_NUMBER: _ClassVar[int]
    TOKEN_TYPE_FIELD_NUMBER: _ClassVar[int]
    KEY_ID_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_IN_FIELD_NUMBER: _ClassVar[int]
    access_token: str
    token_type: str
    key_id: str
    user_id: str
    scope: str
    expires_at: int
    expires_in: int
    def __init__(self, access_token: _Optional[str] = ..., token_type: _Optional[str] = ..., key_id: _Optional[str] = ..., user_id: _Optional[str] = ..., scope: _Optional[str] = ..., expires_at: _Optional[int] = ..., expires_in: _Optional[int] = ...) -> None: ...

class RevokeTokenRequest(_message.Message):
    __slots__ = ("token", "token_type_hint", "client_id", "client_secret")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    TOKEN_TYPE_HINT_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    CLIENT_SECRET_FIELD_NUMBER: _ClassVar[int]
    token: str
    token_type_hint: str
    client_id: str
    client_secret: str
    def __init__(self, token: _Optional[str] = ..., token_type_hint: _Optional[str] = ..., client_id: _Optional[str] = ..., client_secret: _Optional[str] = ...) -> None: ...

class RevokeTokenResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetServerMetadataRequest(_message.Message):
    __slots__ = ("issuer",)
    ISSUER_FIELD_NUMBER: _ClassVar[int]
    issuer: str
    def __init__(self, issuer: _Optional[str] = ...) -> None: ...

class GetServerMetadataResponse(_message.Message):
    __slots__ = ("issuer", "authorization_endpoint", "token_endpoint", "revocation_endpoint", "scopes_supported", "response_types_supported", "grant_types_supported", "code_challenge_methods_supported", "token_endpoint_auth_methods_supported", "revocation_endpoint_auth_methods_supported", "service_documentation", "registration_endpoint", "authorization_response_iss_parameter_supported")
    ISSUER_FIELD_NUMBER: _ClassVar[int]
    AUTHORIZATION_ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    TOKEN_ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    REVOCATION_ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    SCOPES_SUPPORTED_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_TYPES_SUPPORTED_FIELD_NUMBER: _ClassVar[int]
    GRANT_TYPES_SUPPORTED_FIELD_NUMBER: _ClassVar[int]
    CODE_CHALLENGE_METHODS_SUPPORTED_FIELD_NUMBER: _ClassVar[int]
    TOKEN_ENDPOINT_AUTH_METHODS_SUPPORTED_FIELD_NUMBER: _ClassVar[int]
    REVOCATION_ENDPOINT_AUTH_METHODS_SUPPORTED_FIELD_NUMBER: _ClassVar[int]
    SERVICE_DOCUMENTATION_FIELD_NUMBER: _ClassVar[int]
    REGISTRATION_ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    AUTHORIZATION_RESPONSE_ISS_PARAMETER_SUPPORTED_FIELD_NUMBER: _ClassVar[int]
    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    revocation_endpoint: str
    scopes_supported: _containers.RepeatedScalarFieldContainer[str]
    response_types_supported: _containers.RepeatedScalarFieldContainer[str]
    grant_types_supported: _containers.RepeatedScalarFieldContainer[str]
    code_challenge_methods_supported: _containers.RepeatedScalarFieldContainer[str]
    token_endpoint_auth_methods_supported: _containers.RepeatedScalarFieldContainer[str]
    revocation_endpoint_auth_methods_supported: _containers.RepeatedScalarFieldContainer[str]
    service_documentation: str
    registration_endpoint: str
    authorization_response_iss_parameter_supported: bool
    def __init__(self, issuer: _Optional[str] = ..., authorization_endpoint: _Optional[str] = ..., token_endpoint: _Optional[str] = ..., revocation_endpoint: _Optional[str] = ..., scopes_supported: _Optional[_Iterable[str]] = ..., response_types_supported: _Optional[_Iterable[str]] = ..., grant_types_supported: _Optional[_Iterable[str]] = ..., code_challenge_methods_supported: _Optional[_Iterable[str]] = ..., token_endpoint_auth_methods_supported: _Optional[_Iterable[str]] = ..., revocation_endpoint_auth_methods_supported: _Optional[_Iterable[str]] = ..., service_documentation: _Optional[str] = ..., registration_endpoint: _Optional[str] = ..., authorization_response_iss_parameter_supported: _Optional[bool] = ...) -> None: ...
