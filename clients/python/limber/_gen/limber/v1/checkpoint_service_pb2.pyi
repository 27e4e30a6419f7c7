from limber._gen.limber.v1 import action_pb2 as _action_pb2
from limber._gen.limber.v1 import checkpoint_pb2 as _checkpoint_pb2
from limber._gen.limber.v1 import input_contract_pb2 as _input_contract_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AddMakerKeyRequest(_message.Message):
    __slots__ = ("owner", "public_key", "name")
    OWNER_FIELD_NUMBER: _ClassVar[int]
    PUBLIC_KEY_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    owner: str
    public_key: str
    name: str
    def __init__(self, owner: _Optional[str] = ..., public_key: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class AddMakerKeyResponse(_message.Message):
    __slots__ = ("key",)
    KEY_FIELD_NUMBER: _ClassVar[int]
    key: _checkpoint_pb2.MakerKey
    def __init__(self, key: _Optional[_Union[_checkpoint_pb2.MakerKey, _Mapping]] = ...) -> None: ...

class ListMakerKeysRequest(_message.Message):
    __slots__ = ("owner",)
    OWNER_FIELD_NUMBER: _ClassVar[int]
    owner: str
    def __init__(self, owner: _Optional[str] = ...) -> None: ...

class ListMakerKeysResponse(_message.Message):
    __slots__ = ("object", "data")
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    object: str
    data: _containers.RepeatedCompositeFieldContainer[_checkpoint_pb2.MakerKey]
    def __init__(self, object: _Optional[str] = ..., data: _Optional[_Iterable[_Union[_checkpoint_pb2.MakerKey, _Mapping]]] = ...) -> None: ...

class DeleteMakerKeyRequest(_message.Message):
    __slots__ = ("owner", "maker_key_id")
    OWNER_FIELD_NUMBER: _ClassVar[int]
    MAKER_KEY_ID_FIELD_NUMBER: _ClassVar[int]
    owner: str
    maker_key_id: str
    def __init__(self, owner: _Optional[str] = ..., maker_key_id: _Optional[str] = ...) -> None: ...

class DeleteMakerKeyResponse(_message.Message):
    __slots__ = ("object", "maker_key_id", "deleted")
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    MAKER_KEY_ID_FIELD_NUMBER: _ClassVar[int]
    DELETED_FIELD_NUMBER: _ClassVar[int]
    object: str
    maker_key_id: str
    deleted: bool
    def __init__(self, object: _Optional[str] = ..., maker_key_id: _Optional[str] = ..., deleted: _Optional[bool] = ...) -> None: ...

class StateCheckpointRequest(_message.Message):
    __slots__ = ("served_by", "model", "digest", "input", "bounds")
    SERVED_BY_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    BOUNDS_FIELD_NUMBER: _ClassVar[int]
    served_by: str
    model: str
    digest: str
    input: _input_contract_pb2.InputContract
    bounds: _action_pb2.SafetyBounds
    def __init__(self, served_by: _Optional[str] = ..., model: _Optional[str] = ..., digest: _Optional[str] = ..., input: _Optional[_Union[_input_contract_pb2.InputContract, _Mapping]] = ..., bounds: _Optional[_Union[_action_pb2.SafetyBounds, _Mapping]] = ...) -> None: ...

class StateCheckpointResponse(_message.Message):
    __slots__ = ("statement",)
    STATEMENT_FIELD_NUMBER: _ClassVar[int]
    statement: str
    def __init__(self, statement: _Optional[str] = ...) -> None: ...
