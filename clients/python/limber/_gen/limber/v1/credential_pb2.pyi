from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ByokMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    BYOK_MODE_UNSPECIFIED: _ClassVar[ByokMode]
    BYOK_MODE_OFF: _ClassVar[ByokMode]
    BYOK_MODE_FALLBACK: _ClassVar[ByokMode]
    BYOK_MODE_PREFER: _ClassVar[ByokMode]
    BYOK_MODE_REQUIRE: _ClassVar[ByokMode]

class CredentialFault(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CREDENTIAL_FAULT_UNSPECIFIED: _ClassVar[CredentialFault]
    CREDENTIAL_FAULT_UNKNOWN_MASTER_KEY: _ClassVar[CredentialFault]
    CREDENTIAL_FAULT_CHANGED: _ClassVar[CredentialFault]
BYOK_MODE_UNSPECIFIED: ByokMode
BYOK_MODE_OFF: ByokMode
BYOK_MODE_FALLBACK: ByokMode
BYOK_MODE_PREFER: ByokMode
BYOK_MODE_REQUIRE: ByokMode
CREDENTIAL_FAULT_UNSPECIFIED: CredentialFault
CREDENTIAL_FAULT_UNKNOWN_MASTER_KEY: CredentialFault
CREDENTIAL_FAULT_CHANGED: CredentialFault

class Credential(_message.Message):
    __slots__ = ("provider", "label", "fingerprint", "mode", "created_at", "updated_at", "verified_at", "provider_known")
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    UPDATED_AT_FIELD_NUMBER: _ClassVar[int]
    VERIFIED_AT_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_KNOWN_FIELD_NUMBER: _ClassVar[int]
    provider: str
    label: str
    fingerprint: str
    mode: ByokMode
    created_at: int
    updated_at: int
    verified_at: int
    provider_known: bool
    def __init__(self, provider: _Optional[str] = ..., label: _Optional[str] = ..., fingerprint: _Optional[str] = ..., mode: _Optional[_Union[ByokMode, str]] = ..., created_at: _Optional[int] = ..., updated_at: _Optional[int] = ..., verified_at: _Optional[int] = ..., provider_known: _Optional[bool] = ...) -> None: ...

class NewCredential(_message.Message):
    __slots__ = ("secret", "label", "mode")
    SECRET_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    secret: str
    label: str
    mode: ByokMode
    def __init__(self, secret: _Optional[str] = ..., label: _Optional[str] = ..., mode: _Optional[_Union[ByokMode, str]] = ...) -> None: ...
