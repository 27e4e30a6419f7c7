from limber._gen.limber.v1 import account_service_pb2 as _account_service_pb2
from limber._gen.limber.v1 import credential_pb2 as _credential_pb2
from limber._gen.limber.v1 import preferences_pb2 as _preferences_pb2
from limber._gen.limber.v1 import workspace_pb2 as _workspace_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class WorkspaceSettings(_message.Message):
    __slots__ = ("retention_days", "zdr", "cache_sharing", "byok_mode", "default_preset", "allowed_regions", "max_hedge_ratio", "trust", "require_signed")
    RETENTION_DAYS_FIELD_NUMBER: _ClassVar[int]
    ZDR_FIELD_NUMBER: _ClassVar[int]
    CACHE_SHARING_FIELD_NUMBER: _ClassVar[int]
    BYOK_MODE_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_PRESET_FIELD_NUMBER: _ClassVar[int]
    ALLOWED_REGIONS_FIELD_NUMBER: _ClassVar[int]
    MAX_HEDGE_RATIO_FIELD_NUMBER: _ClassVar[int]
    TRUST_FIELD_NUMBER: _ClassVar[int]
    REQUIRE_SIGNED_FIELD_NUMBER: _ClassVar[int]
    retention_days: int
    zdr: bool
    cache_sharing: bool
    byok_mode: _credential_pb2.ByokMode
    default_preset: str
    allowed_regions: _containers.RepeatedScalarFieldContainer[str]
    max_hedge_ratio: float
    trust: _preferences_pb2.SupplyTrust
    require_signed: bool
    def __init__(self, retention_days: _Optional[int] = ..., zdr: _Optional[bool] = ..., cache_sharing: _Optional[bool] = ..., byok_mode: _Optional[_Union[_credential_pb2.ByokMode, str]] = ..., default_preset: _Optional[str] = ..., allowed_regions: _Optional[_Iterable[str]] = ..., max_hedge_ratio: _Optional[float] = ..., trust: _Optional[_Union[_preferences_pb2.SupplyTrust, str]] = ..., require_signed: _Optional[bool] = ...) -> None: ...

class CreateWorkspaceRequest(_message.Message):
    __slots__ = ("org_id", "name", "slug", "budget", "settings")
    ORG_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SLUG_FIELD_NUMBER: _ClassVar[int]
    BUDGET_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    org_id: str
    name: str
    slug: str
    budget: _account_service_pb2.NewKeyBudget
    settings: WorkspaceSettings
    def __init__(self, org_id: _Optional[str] = ..., name: _Optional[str] = ..., slug: _Optional[str] = ..., budget: _Optional[_Union[_account_service_pb2.NewKeyBudget, _Mapping]] = ..., settings: _Optional[_Union[WorkspaceSettings, _Mapping]] = ...) -> None: ...

class CreateWorkspaceResponse(_message.Message):
    __slots__ = ("workspace",)
    WORKSPACE_FIELD_NUMBER: _ClassVar[int]
    workspace: _workspace_pb2.Workspace
    def __init__(self, workspace: _Optional[_Union[_workspace_pb2.Workspace, _Mapping]] = ...) -> None: ...

class ListWorkspacesRequest(_message.Message):
    __slots__ = ("org_id", "limit", "cursor")
    ORG_ID_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    org_id: str
    limit: int
    cursor: str
    def __init__(self, org_id: _Optional[str] = ..., limit: _Optional[int] = ..., cursor: _Optional[str] = ...) -> None: ...

class ListWorkspacesResponse(_message.Message):
    __slots__ = ("object", "data", "has_more", "next_cursor")
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_FIELD_NUMBER: _ClassVar[int]
    NEXT_CURSOR_FIELD_NUMBER: _ClassVar[int]
    object: str
    data: _containers.RepeatedCompositeFieldContainer[_workspace_pb2.Workspace]
    has_more: bool
    next_cursor: str
    def __init__(self, object: _Optional[str] = ..., data: _Optional[_Iterable[_Union[_workspace_pb2.Workspace, _Mapping]]] = ..., has_more: _Optional[bool] = ..., next_cursor: _Optional[str] = ...) -> None: ...

class GetWorkspaceRequest(_message.Message):
    __slots__ = ("org_id", "workspace_id")
    ORG_ID_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_ID_FIELD_NUMBER: _ClassVar[int]
    org_id: str
    workspace_id: str
    def __init__(self, org_id: _Optional[str] = ..., workspace_id: _Optional[str] = ...) -> None: ...

class GetWorkspaceResponse(_message.Message):
    __slots__ = ("workspace",)
    WORKSPACE_FIELD_NUMBER: _ClassVar[int]
    workspace: _workspace_pb2.Workspace
    def __init__(self, workspace: _Optional[_Union[_workspace_pb2.Workspace, _Mapping]] = ...) -> None: ...

class UpdateWorkspaceRequest(_message.Message):
    __slots__ = ("org_id", "workspace_id", "name", "slug", "budget", "settings", "clear")
    ORG_ID_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SLUG_FIELD_NUMBER: _ClassVar[int]
    BUDGET_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    CLEAR_FIELD_NUMBER: _ClassVar[int]
    org_id: str
    workspace_id: str
    name: str
    slug: str
    budget: _account_service_pb2.NewKeyBudget
    settings: WorkspaceSettings
    clear: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, org_id: _Optional[str] = ..., workspace_id: _Optional[str] = ..., name: _Optional[str] = ..., slug: _Optional[str] = ..., budget: _Optional[_Union[_account_service_pb2.NewKeyBudget, _Mapping]] = ..., settings: _Optional[_Union[WorkspaceSettings, _Mapping]] = ..., clear: _Optional[_Iterable[str]] = ...) -> None: ...

class UpdateWorkspaceResponse(_message.Message):
    __slots__ = ("workspace",)
    WORKSPACE_FIELD_NUMBER: _ClassVar[int]
    workspace: _workspace_pb2.Workspace
    def __init__(self, workspace: _Optional[_Union[_workspace_pb2.Workspace, _Mapping]] = ...) -> None: ...

class DeleteWorkspaceRequest(_message.Message):
    __slots__ = ("org_id", "workspace_id", "force")
    ORG_ID_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_ID_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    org_id: str
    workspace_id: str
    force: bool
    def __init__(self, org_id: _Optional[str] = ..., workspace_id: _Optional[str] = ..., force: _Optional[bool] = ...) -> None: ...

class DeleteWorkspaceResponse(_message.Message):
    __slots__ = ("id", "deleted", "revoked_keys")
    ID_FIELD_NUMBER: _ClassVar[int]
    DELETED_FIELD_NUMBER: _ClassVar[int]
    REVOKED_KEYS_FIELD_NUMBER: _ClassVar[int]
    id: str
    deleted: bool
    revoked_keys: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, id: _Optional[str] = ..., deleted: _Optional[bool] = ..., revoked_keys: _Optional[_Iterable[str]] = ...) -> None: ...
