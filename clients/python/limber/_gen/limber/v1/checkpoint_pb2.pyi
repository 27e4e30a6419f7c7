from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class SignedCheckpoint(_message.Message):
    __slots__ = ("digest", "signature")
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    digest: str
    signature: bytes
    def __init__(self, digest: _Optional[str] = ..., signature: _Optional[bytes] = ...) -> None: ...

class OfferingCheckpoint(_message.Message):
    __slots__ = ("digest", "signed")
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    SIGNED_FIELD_NUMBER: _ClassVar[int]
    digest: str
    signed: bool
    def __init__(self, digest: _Optional[str] = ..., signed: _Optional[bool] = ...) -> None: ...

class MakerKey(_message.Message):
    __slots__ = ("id", "owner", "name", "public_key", "created")
    ID_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PUBLIC_KEY_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    id: str
    owner: str
    name: str
    public_key: str
    created: int
    def __init__(self, id: _Optional[str] = ..., owner: _Optional[str] = ..., name: _Optional[str] = ..., public_key: _Optional[str] = ..., created: _Optional[int] = ...) -> None: ...
