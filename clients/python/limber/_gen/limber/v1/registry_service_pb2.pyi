from limber._gen.limber.v1 import contract_pb2 as _contract_pb2
from limber._gen.limber.v1 import registry_pb2 as _registry_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ListModelsRequest(_message.Message):
    __slots__ = ("q", "domain", "family", "tier", "contract", "embodiment", "action_space", "era", "kind", "featured", "limit", "offset")
    Q_FIELD_NUMBER: _ClassVar[int]
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    FAMILY_FIELD_NUMBER: _ClassVar[int]
    TIER_FIELD_NUMBER: _ClassVar[int]
    CONTRACT_FIELD_NUMBER: _ClassVar[int]
    EMBODIMENT_FIELD_NUMBER: _ClassVar[int]
    ACTION_SPACE_FIELD_NUMBER: _ClassVar[int]
    ERA_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    FEATURED_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    q: str
    domain: _registry_pb2.Domain
    family: str
    tier: _registry_pb2.ModelTier
    contract: _contract_pb2.Contract
    embodiment: _registry_pb2.Embodiment
    action_space: str
    era: _registry_pb2.ModelEra
    kind: _registry_pb2.ModelKind
    featured: bool
    limit: int
    offset: int
    def __init__(self, q: _Optional[str] = ..., domain: _Optional[_Union[_registry_pb2.Domain, str]] = ..., family: _Optional[str] = ..., tier: _Optional[_Union[_registry_pb2.ModelTier, str]] = ..., contract: _Optional[_Union[_contract_pb2.Contract, str]] = ..., embodiment: _Optional[_Union[_registry_pb2.Embodiment, str]] = ..., action_space: _Optional[str] = ..., era: _Optional[_Union[_registry_pb2.ModelEra, str]] = ..., kind: _Optional[_Union[_registry_pb2.ModelKind, str]] = ..., featured: _Optional[bool] = ..., limit: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class ListModelsResponse(_message.Message):
    __slots__ = ("object", "data", "total", "limit", "offset")
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    object: str
    data: _containers.RepeatedCompositeFieldContainer[_registry_pb2.Model]
    total: int
    limit: int
    offset: int
    def __init__(self, object: _Optional[str] = ..., data: _Optional[_Iterable[_Union[_registry_pb2.Model, _Mapping]]] = ..., total: _Optional[int] = ..., limit: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class GetModelRequest(_message.Message):
    __slots__ = ("owner", "name")
    OWNER_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    owner: str
    name: str
    def __init__(self, owner: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class GetModelResponse(_message.Message):
    __slots__ = ("model",)
    MODEL_FIELD_NUMBER: _ClassVar[int]
    model: _registry_pb2.Model
    def __init__(self, model: _Optional[_Union[_registry_pb2.Model, _Mapping]] = ...) -> None: ...

class GetTaxonomyRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetTaxonomyResponse(_message.Message):
    __slots__ = ("facets", "action_spaces")
    class FacetsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _registry_pb2.FacetValues
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_registry_pb2.FacetValues, _Mapping]] = ...) -> None: ...
    FACETS_FIELD_NUMBER: _ClassVar[int]
    ACTION_SPACES_FIELD_NUMBER: _ClassVar[int]
    facets: _containers.MessageMap[str, _registry_pb2.FacetValues]
    action_spaces: _containers.RepeatedCompositeFieldContainer[_registry_pb2.ActionSpaceLayout]
    def __init__(self, facets: _Optional[_Mapping[str, _registry_pb2.FacetValues]] = ..., action_spaces: _Optional[_Iterable[_Union[_registry_pb2.ActionSpaceLayout, _Mapping]]] = ...) -> None: ...

class ListScenariosRequest(_message.Message):
    __slots__ = ("target", "runnable", "limit", "offset")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    RUNNABLE_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    target: _registry_pb2.Domain
    runnable: bool
    limit: int
    offset: int
    def __init__(self, target: _Optional[_Union[_registry_pb2.Domain, str]] = ..., runnable: _Optional[bool] = ..., limit: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class ListScenariosResponse(_message.Message):
    __slots__ = ("object", "data", "total", "limit", "offset")
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    object: str
    data: _containers.RepeatedCompositeFieldContainer[_registry_pb2.Scenario]
    total: int
    limit: int
    offset: int
    def __init__(self, object: _Optional[str] = ..., data: _Optional[_Iterable[_Union[_registry_pb2.Scenario, _Mapping]]] = ..., total: _Optional[int] = ..., limit: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class ListLiteratureRequest(_message.Message):
    __slots__ = ("kind", "limit", "offset")
    KIND_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    kind: _registry_pb2.LiteratureKind
    limit: int
    offset: int
    def __init__(self, kind: _Optional[_Union[_registry_pb2.LiteratureKind, str]] = ..., limit: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class ListLiteratureResponse(_message.Message):
    __slots__ = ("object", "data", "total", "limit", "offset")
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    object: str
    data: _containers.RepeatedCompositeFieldContainer[_registry_pb2.Literature]
    total: int
    limit: int
    offset: int
    def __init__(self, object: _Optional[str] = ..., data: _Optional[_Iterable[_Union[_registry_pb2.Literature, _Mapping]]] = ..., total: _Optional[int] = ..., limit: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class ListProvidersRequest(_message.Message):
    __slots__ = ("limit", "offset")
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    limit: int
    offset: int
    def __init__(self, limit: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class ListProvidersResponse(_message.Message):
    __slots__ = ("object", "data", "total", "limit", "offset")
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    object: str
    data: _containers.RepeatedCompositeFieldContainer[_registry_pb2.ProviderListing]
    total: int
    limit: int
    offset: int
    def __init__(self, object: _Optional[str] = ..., data: _Optional[_Iterable[_Union[_registry_pb2.ProviderListing, _Mapping]]] = ..., total: _Optional[int] = ..., limit: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class ListRoutesRequest(_message.Message):
    __slots__ = ("contract",)
    CONTRACT_FIELD_NUMBER: _ClassVar[int]
    contract: _contract_pb2.Contract
    def __init__(self, contract: _Optional[_Union[_contract_pb2.Contract, str]] = ...) -> None: ...

class ListRoutesResponse(_message.Message):
    __slots__ = ("object", "aliases", "variants", "preferences", "live", "data")
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    ALIASES_FIELD_NUMBER: _ClassVar[int]
    VARIANTS_FIELD_NUMBER: _ClassVar[int]
    PREFERENCES_FIELD_NUMBER: _ClassVar[int]
    LIVE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    object: str
    aliases: _containers.RepeatedCompositeFieldContainer[_registry_pb2.AliasListing]
    variants: _containers.RepeatedCompositeFieldContainer[_registry_pb2.VariantListing]
    preferences: _containers.RepeatedCompositeFieldContainer[_registry_pb2.PreferenceListing]
    live: _registry_pb2.LiveListing
    data: _containers.RepeatedCompositeFieldContainer[_registry_pb2.AliasListing]
    def __init__(self, object: _Optional[str] = ..., aliases: _Optional[_Iterable[_Union[_registry_pb2.AliasListing, _Mapping]]] = ..., variants: _Optional[_Iterable[_Union[_registry_pb2.VariantListing, _Mapping]]] = ..., preferences: _Optional[_Iterable[_Union[_registry_pb2.PreferenceListing, _Mapping]]] = ..., live: _Optional[_Union[_registry_pb2.LiveListing, _Mapping]] = ..., data: _Optional[_Iterable[_Union[_registry_pb2.AliasListing, _Mapping]]] = ...) -> None: ...

class ListRuntimesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListRuntimesResponse(_message.Message):
    __slots__ = ("object", "data")
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    object: str
    data: _containers.RepeatedCompositeFieldContainer[_registry_pb2.Runtime]
    def __init__(self, object: _Optional[str] = ..., data: _Optional[_Iterable[_Union[_registry_pb2.Runtime, _Mapping]]] = ...) -> None: ...
