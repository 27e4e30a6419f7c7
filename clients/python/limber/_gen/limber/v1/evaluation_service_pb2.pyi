from google.protobuf import struct_pb2 as _struct_pb2
from limber._gen.limber.v1 import evaluation_pb2 as _evaluation_pb2
from limber._gen.limber.v1 import supply_pb2 as _supply_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class EvaluateRequest(_message.Message):
    __slots__ = ("policy_endpoint", "scenario", "episodes", "seed", "action_space", "horizon", "replan_steps", "mode", "policy_timeout_ms", "media", "pictures", "metadata", "idempotency_key", "runner", "wall_budget_s", "stop_after_faults", "runtime", "profile", "auth", "dry_run", "max_calls_usd", "camera_map", "state_map", "parallel_episodes", "media_episodes")
    class CameraMapEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    POLICY_ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    SCENARIO_FIELD_NUMBER: _ClassVar[int]
    EPISODES_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    ACTION_SPACE_FIELD_NUMBER: _ClassVar[int]
    HORIZON_FIELD_NUMBER: _ClassVar[int]
    REPLAN_STEPS_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    POLICY_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    MEDIA_FIELD_NUMBER: _ClassVar[int]
    PICTURES_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    RUNNER_FIELD_NUMBER: _ClassVar[int]
    WALL_BUDGET_S_FIELD_NUMBER: _ClassVar[int]
    STOP_AFTER_FAULTS_FIELD_NUMBER: _ClassVar[int]
    RUNTIME_FIELD_NUMBER: _ClassVar[int]
    PROFILE_FIELD_NUMBER: _ClassVar[int]
    AUTH_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    MAX_CALLS_USD_FIELD_NUMBER: _ClassVar[int]
    CAMERA_MAP_FIELD_NUMBER: _ClassVar[int]
    STATE_MAP_FIELD_NUMBER: _ClassVar[int]
    PARALLEL_EPISODES_FIELD_NUMBER: _ClassVar[int]
    MEDIA_EPISODES_FIELD_NUMBER: _ClassVar[int]
    policy_endpoint: str
    scenario: str
    episodes: int
    seed: int
    action_space: str
    horizon: int
    replan_steps: int
    mode: _evaluation_pb2.EvaluationMode
    policy_timeout_ms: int
    media: _evaluation_pb2.EvaluationMedia
    pictures: bool
    metadata: _struct_pb2.Struct
    idempotency_key: str
    runner: _evaluation_pb2.EvaluationRunner
    wall_budget_s: int
    stop_after_faults: int
    runtime: str
    profile: _supply_pb2.WireProfile
    auth: _supply_pb2.ProviderAuth
    dry_run: bool
    max_calls_usd: float
    camera_map: _containers.ScalarMap[str, str]
    state_map: _containers.RepeatedCompositeFieldContainer[_evaluation_pb2.StateMapping]
    parallel_episodes: int
    media_episodes: _evaluation_pb2.EvaluationMediaEpisodes
    def __init__(self, policy_endpoint: _Optional[str] = ..., scenario: _Optional[str] = ..., episodes: _Optional[int] = ..., seed: _Optional[int] = ..., action_space: _Optional[str] = ..., horizon: _Optional[int] = ..., replan_steps: _Optional[int] = ..., mode: _Optional[_Union[_evaluation_pb2.EvaluationMode, str]] = ..., policy_timeout_ms: _Optional[int] = ..., media: _Optional[_Union[_evaluation_pb2.EvaluationMedia, str]] = ..., pictures: _Optional[bool] = ..., metadata: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., idempotency_key: _Optional[str] = ..., runner: _Optional[_Union[_evaluation_pb2.EvaluationRunner, str]] = ..., wall_budget_s: _Optional[int] = ..., stop_after_faults: _Optional[int] = ..., runtime: _Optional[str] = ..., profile: _Optional[_Union[_supply_pb2.WireProfile, _Mapping]] = ..., auth: _Optional[_Union[_supply_pb2.ProviderAuth, _Mapping]] = ..., dry_run: _Optional[bool] = ..., max_calls_usd: _Optional[float] = ..., camera_map: _Optional[_Mapping[str, str]] = ..., state_map: _Optional[_Iterable[_Union[_evaluation_pb2.StateMapping, _Mapping]]] = ..., parallel_episodes: _Optional[int] = ..., media_episodes: _Optional[_Union[_evaluation_pb2.EvaluationMediaEpisodes, str]] = ...) -> None: ...

class CompareEvaluationsRequest(_message.Message):
    __slots__ = ("policies", "scenario", "episodes", "seed", "action_space", "mode", "policy_timeout_ms", "media", "pictures", "metric", "blind", "stop_when_known", "wall_budget_s", "stop_after_faults", "max_calls_usd", "metadata", "idempotency_key", "dry_run", "parallel_episodes", "media_episodes", "suite")
    POLICIES_FIELD_NUMBER: _ClassVar[int]
    SCENARIO_FIELD_NUMBER: _ClassVar[int]
    EPISODES_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    ACTION_SPACE_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    POLICY_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    MEDIA_FIELD_NUMBER: _ClassVar[int]
    PICTURES_FIELD_NUMBER: _ClassVar[int]
    METRIC_FIELD_NUMBER: _ClassVar[int]
    BLIND_FIELD_NUMBER: _ClassVar[int]
    STOP_WHEN_KNOWN_FIELD_NUMBER: _ClassVar[int]
    WALL_BUDGET_S_FIELD_NUMBER: _ClassVar[int]
    STOP_AFTER_FAULTS_FIELD_NUMBER: _ClassVar[int]
    MAX_CALLS_USD_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    PARALLEL_EPISODES_FIELD_NUMBER: _ClassVar[int]
    MEDIA_EPISODES_FIELD_NUMBER: _ClassVar[int]
    SUITE_FIELD_NUMBER: _ClassVar[int]
    policies: _containers.RepeatedCompositeFieldContainer[PolicyToCompare]
    scenario: str
    episodes: int
    seed: int
    action_space: str
    mode: _evaluation_pb2.EvaluationMode
    policy_timeout_ms: int
    media: _evaluation_pb2.EvaluationMedia
    pictures: bool
    metric: _evaluation_pb2.ComparisonMetric
    blind: bool
    stop_when_known: bool
    wall_budget_s: int
    stop_after_faults: int
    max_calls_usd: float
    metadata: _struct_pb2.Struct
    idempotency_key: str
    dry_run: bool
    parallel_episodes: int
    media_episodes: _evaluation_pb2.EvaluationMediaEpisodes
    suite: str
    def __init__(self, policies: _Optional[_Iterable[_Union[PolicyToCompare, _Mapping]]] = ..., scenario: _Optional[str] = ..., episodes: _Optional[int] = ..., seed: _Optional[int] = ..., action_space: _Optional[str] = ..., mode: _Optional[_Union[_evaluation_pb2.EvaluationMode, str]] = ..., policy_timeout_ms: _Optional[int] = ..., media: _Optional[_Union[_evaluation_pb2.EvaluationMedia, str]] = ..., pictures: _Optional[bool] = ..., metric: _Optional[_Union[_evaluation_pb2.ComparisonMetric, str]] = ..., blind: _Optional[bool] = ..., stop_when_known: _Optional[bool] = ..., wall_budget_s: _Optional[int] = ..., stop_after_faults: _Optional[int] = ..., max_calls_usd: _Optional[float] = ..., metadata: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., idempotency_key: _Optional[str] = ..., dry_run: _Optional[bool] = ..., parallel_episodes: _Optional[int] = ..., media_episodes: _Optional[_Union[_evaluation_pb2.EvaluationMediaEpisodes, str]] = ..., suite: _Optional[str] = ...) -> None: ...

class PolicyToCompare(_message.Message):
    __slots__ = ("policy_endpoint", "horizon", "replan_steps", "runtime", "profile", "auth", "camera_map", "state_map")
    class CameraMapEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    POLICY_ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    HORIZON_FIELD_NUMBER: _ClassVar[int]
    REPLAN_STEPS_FIELD_NUMBER: _ClassVar[int]
    RUNTIME_FIELD_NUMBER: _ClassVar[int]
    PROFILE_FIELD_NUMBER: _ClassVar[int]
    AUTH_FIELD_NUMBER: _ClassVar[int]
    CAMERA_MAP_FIELD_NUMBER: _ClassVar[int]
    STATE_MAP_FIELD_NUMBER: _ClassVar[int]
    policy_endpoint: str
    horizon: int
    replan_steps: int
    runtime: str
    profile: _supply_pb2.WireProfile
    auth: _supply_pb2.ProviderAuth
    camera_map: _containers.ScalarMap[str, str]
    state_map: _containers.RepeatedCompositeFieldContainer[_evaluation_pb2.StateMapping]
    def __init__(self, policy_endpoint: _Optional[str] = ..., horizon: _Optional[int] = ..., replan_steps: _Optional[int] = ..., runtime: _Optional[str] = ..., profile: _Optional[_Union[_supply_pb2.WireProfile, _Mapping]] = ..., auth: _Optional[_Union[_supply_pb2.ProviderAuth, _Mapping]] = ..., camera_map: _Optional[_Mapping[str, str]] = ..., state_map: _Optional[_Iterable[_Union[_evaluation_pb2.StateMapping, _Mapping]]] = ...) -> None: ...

class CompareEvaluationsResponse(_message.Message):
    __slots__ = ("comparison",)
    COMPARISON_FIELD_NUMBER: _ClassVar[int]
    comparison: _evaluation_pb2.Comparison
    def __init__(self, comparison: _Optional[_Union[_evaluation_pb2.Comparison, _Mapping]] = ...) -> None: ...

class GetComparisonRequest(_message.Message):
    __slots__ = ("comparison_id",)
    COMPARISON_ID_FIELD_NUMBER: _ClassVar[int]
    comparison_id: str
    def __init__(self, comparison_id: _Optional[str] = ...) -> None: ...

class GetComparisonResponse(_message.Message):
    __slots__ = ("comparison",)
    COMPARISON_FIELD_NUMBER: _ClassVar[int]
    comparison: _evaluation_pb2.Comparison
    def __init__(self, comparison: _Optional[_Union[_evaluation_pb2.Comparison, _Mapping]] = ...) -> None: ...

class CancelComparisonRequest(_message.Message):
    __slots__ = ("comparison_id",)
    COMPARISON_ID_FIELD_NUMBER: _ClassVar[int]
    comparison_id: str
    def __init__(self, comparison_id: _Optional[str] = ...) -> None: ...

class CancelComparisonResponse(_message.Message):
    __slots__ = ("comparison",)
    COMPARISON_FIELD_NUMBER: _ClassVar[int]
    comparison: _evaluation_pb2.Comparison
    def __init__(self, comparison: _Optional[_Union[_evaluation_pb2.Comparison, _Mapping]] = ...) -> None: ...

class EvaluateResponse(_message.Message):
    __slots__ = ("evaluation",)
    EVALUATION_FIELD_NUMBER: _ClassVar[int]
    evaluation: _evaluation_pb2.Evaluation
    def __init__(self, evaluation: _Optional[_Union[_evaluation_pb2.Evaluation, _Mapping]] = ...) -> None: ...

class GetEvaluationRequest(_message.Message):
    __slots__ = ("job_id",)
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    def __init__(self, job_id: _Optional[str] = ...) -> None: ...

class GetEvaluationResponse(_message.Message):
    __slots__ = ("evaluation",)
    EVALUATION_FIELD_NUMBER: _ClassVar[int]
    evaluation: _evaluation_pb2.Evaluation
    def __init__(self, evaluation: _Optional[_Union[_evaluation_pb2.Evaluation, _Mapping]] = ...) -> None: ...

class GetFilmRequest(_message.Message):
    __slots__ = ("job_id", "index")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    index: int
    def __init__(self, job_id: _Optional[str] = ..., index: _Optional[int] = ...) -> None: ...

class GetFilmResponse(_message.Message):
    __slots__ = ("film", "type", "etag")
    FILM_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    film: bytes
    type: str
    etag: str
    def __init__(self, film: _Optional[bytes] = ..., type: _Optional[str] = ..., etag: _Optional[str] = ...) -> None: ...

class GetFilmSeriesRequest(_message.Message):
    __slots__ = ("job_id", "index")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    index: int
    def __init__(self, job_id: _Optional[str] = ..., index: _Optional[int] = ...) -> None: ...

class GetFilmSeriesResponse(_message.Message):
    __slots__ = ("series",)
    SERIES_FIELD_NUMBER: _ClassVar[int]
    series: _evaluation_pb2.FilmSeries
    def __init__(self, series: _Optional[_Union[_evaluation_pb2.FilmSeries, _Mapping]] = ...) -> None: ...

class CancelEvaluationRequest(_message.Message):
    __slots__ = ("job_id",)
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    def __init__(self, job_id: _Optional[str] = ...) -> None: ...

class CancelEvaluationResponse(_message.Message):
    __slots__ = ("evaluation",)
    EVALUATION_FIELD_NUMBER: _ClassVar[int]
    evaluation: _evaluation_pb2.Evaluation
    def __init__(self, evaluation: _Optional[_Union[_evaluation_pb2.Evaluation, _Mapping]] = ...) -> None: ...

class WatchEvaluationRequest(_message.Message):
    __slots__ = ("job_id", "last_event_id")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    LAST_EVENT_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    last_event_id: str
    def __init__(self, job_id: _Optional[str] = ..., last_event_id: _Optional[str] = ...) -> None: ...

class WatchEvaluationResponse(_message.Message):
    __slots__ = ("episode", "done")
    EPISODE_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    episode: _evaluation_pb2.EpisodeRecord
    done: _evaluation_pb2.Evaluation
    def __init__(self, episode: _Optional[_Union[_evaluation_pb2.EpisodeRecord, _Mapping]] = ..., done: _Optional[_Union[_evaluation_pb2.Evaluation, _Mapping]] = ...) -> None: ...
