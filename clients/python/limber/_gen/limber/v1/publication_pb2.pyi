from limber._gen.limber.v1 import evaluation_pb2 as _evaluation_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Publication(_message.Message):
    __slots__ = ("id", "object", "evaluation_id", "comparison_id", "title", "published_at", "withdrawn_at", "path", "discloses")
    ID_FIELD_NUMBER: _ClassVar[int]
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    EVALUATION_ID_FIELD_NUMBER: _ClassVar[int]
    COMPARISON_ID_FIELD_NUMBER: _ClassVar[int]
    TITLE_FIELD_NUMBER: _ClassVar[int]
    PUBLISHED_AT_FIELD_NUMBER: _ClassVar[int]
    WITHDRAWN_AT_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    DISCLOSES_FIELD_NUMBER: _ClassVar[int]
    id: str
    object: str
    evaluation_id: str
    comparison_id: str
    title: str
    published_at: int
    withdrawn_at: int
    path: str
    discloses: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, id: _Optional[str] = ..., object: _Optional[str] = ..., evaluation_id: _Optional[str] = ..., comparison_id: _Optional[str] = ..., title: _Optional[str] = ..., published_at: _Optional[int] = ..., withdrawn_at: _Optional[int] = ..., path: _Optional[str] = ..., discloses: _Optional[_Iterable[str]] = ...) -> None: ...

class SigningKey(_message.Message):
    __slots__ = ("kty", "crv", "x", "kid", "alg", "use")
    KTY_FIELD_NUMBER: _ClassVar[int]
    CRV_FIELD_NUMBER: _ClassVar[int]
    X_FIELD_NUMBER: _ClassVar[int]
    KID_FIELD_NUMBER: _ClassVar[int]
    ALG_FIELD_NUMBER: _ClassVar[int]
    USE_FIELD_NUMBER: _ClassVar[int]
    kty: str
    crv: str
    x: str
    kid: str
    alg: str
    use: str
    def __init__(self, kty: _Optional[str] = ..., crv: _Optional[str] = ..., x: _Optional[str] = ..., kid: _Optional[str] = ..., alg: _Optional[str] = ..., use: _Optional[str] = ...) -> None: ...

class LeaderboardEntry(_message.Message):
    __slots__ = ("rank", "model", "revision", "publisher", "publication_id", "successes", "episodes", "success_rate", "interval", "progress", "attempts", "strength")
    RANK_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    PUBLISHER_FIELD_NUMBER: _ClassVar[int]
    PUBLICATION_ID_FIELD_NUMBER: _ClassVar[int]
    SUCCESSES_FIELD_NUMBER: _ClassVar[int]
    EPISODES_FIELD_NUMBER: _ClassVar[int]
    SUCCESS_RATE_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    STRENGTH_FIELD_NUMBER: _ClassVar[int]
    rank: int
    model: str
    revision: str
    publisher: str
    publication_id: str
    successes: int
    episodes: int
    success_rate: float
    interval: _evaluation_pb2.Interval
    progress: float
    attempts: int
    strength: _evaluation_pb2.PolicyStrength
    def __init__(self, rank: _Optional[int] = ..., model: _Optional[str] = ..., revision: _Optional[str] = ..., publisher: _Optional[str] = ..., publication_id: _Optional[str] = ..., successes: _Optional[int] = ..., episodes: _Optional[int] = ..., success_rate: _Optional[float] = ..., interval: _Optional[_Union[_evaluation_pb2.Interval, _Mapping]] = ..., progress: _Optional[float] = ..., attempts: _Optional[int] = ..., strength: _Optional[_Union[_evaluation_pb2.PolicyStrength, _Mapping]] = ...) -> None: ...
