from google.protobuf import struct_pb2 as _struct_pb2
from limber._gen.limber.v1 import job_pb2 as _job_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ComparisonMetric(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    COMPARISON_METRIC_UNSPECIFIED: _ClassVar[ComparisonMetric]
    COMPARISON_METRIC_SUCCESS: _ClassVar[ComparisonMetric]
    COMPARISON_METRIC_PROGRESS: _ClassVar[ComparisonMetric]

class EvaluationRunner(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EVALUATION_RUNNER_UNSPECIFIED: _ClassVar[EvaluationRunner]
    EVALUATION_RUNNER_EMBEDDED: _ClassVar[EvaluationRunner]
    EVALUATION_RUNNER_EXTERNAL: _ClassVar[EvaluationRunner]

class EvaluationMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EVALUATION_MODE_UNSPECIFIED: _ClassVar[EvaluationMode]
    EVALUATION_MODE_SYNC: _ClassVar[EvaluationMode]
    EVALUATION_MODE_REALTIME: _ClassVar[EvaluationMode]

class EvaluationMedia(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EVALUATION_MEDIA_UNSPECIFIED: _ClassVar[EvaluationMedia]
    EVALUATION_MEDIA_NONE: _ClassVar[EvaluationMedia]
    EVALUATION_MEDIA_GIF: _ClassVar[EvaluationMedia]
    EVALUATION_MEDIA_STRIP: _ClassVar[EvaluationMedia]
    EVALUATION_MEDIA_FILM: _ClassVar[EvaluationMedia]

class EvaluationMediaEpisodes(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EVALUATION_MEDIA_EPISODES_UNSPECIFIED: _ClassVar[EvaluationMediaEpisodes]
    EVALUATION_MEDIA_EPISODES_FIRST_AND_WORST: _ClassVar[EvaluationMediaEpisodes]
    EVALUATION_MEDIA_EPISODES_FAILED: _ClassVar[EvaluationMediaEpisodes]
    EVALUATION_MEDIA_EPISODES_ALL: _ClassVar[EvaluationMediaEpisodes]
COMPARISON_METRIC_UNSPECIFIED: ComparisonMetric
COMPARISON_METRIC_SUCCESS: ComparisonMetric
COMPARISON_METRIC_PROGRESS: ComparisonMetric
EVALUATION_RUNNER_UNSPECIFIED: EvaluationRunner
EVALUATION_RUNNER_EMBEDDED: EvaluationRunner
EVALUATION_RUNNER_EXTERNAL: EvaluationRunner
EVALUATION_MODE_UNSPECIFIED: EvaluationMode
EVALUATION_MODE_SYNC: EvaluationMode
EVALUATION_MODE_REALTIME: EvaluationMode
EVALUATION_MEDIA_UNSPECIFIED: EvaluationMedia
EVALUATION_MEDIA_NONE: EvaluationMedia
EVALUATION_MEDIA_GIF: EvaluationMedia
EVALUATION_MEDIA_STRIP: EvaluationMedia
EVALUATION_MEDIA_FILM: EvaluationMedia
EVALUATION_MEDIA_EPISODES_UNSPECIFIED: EvaluationMediaEpisodes
EVALUATION_MEDIA_EPISODES_FIRST_AND_WORST: EvaluationMediaEpisodes
EVALUATION_MEDIA_EPISODES_FAILED: EvaluationMediaEpisodes
EVALUATION_MEDIA_EPISODES_ALL: EvaluationMediaEpisodes

class Evaluation(_message.Message):
    __slots__ = ("id", "object", "kind", "status", "created_at", "started_at", "finished_at", "policy", "scenario", "progress", "episodes", "scores", "per_episode", "reproducibility", "usage", "route", "error", "metadata", "runner", "harness", "wall_budget_s", "estimate", "comparison_id", "films")
    ID_FIELD_NUMBER: _ClassVar[int]
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    FINISHED_AT_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    SCENARIO_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    EPISODES_FIELD_NUMBER: _ClassVar[int]
    SCORES_FIELD_NUMBER: _ClassVar[int]
    PER_EPISODE_FIELD_NUMBER: _ClassVar[int]
    REPRODUCIBILITY_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    RUNNER_FIELD_NUMBER: _ClassVar[int]
    HARNESS_FIELD_NUMBER: _ClassVar[int]
    WALL_BUDGET_S_FIELD_NUMBER: _ClassVar[int]
    ESTIMATE_FIELD_NUMBER: _ClassVar[int]
    COMPARISON_ID_FIELD_NUMBER: _ClassVar[int]
    FILMS_FIELD_NUMBER: _ClassVar[int]
    id: str
    object: str
    kind: str
    status: _job_pb2.JobStatus
    created_at: int
    started_at: int
    finished_at: int
    policy: EvaluatedPolicy
    scenario: EvaluatedScenario
    progress: EvaluationProgress
    episodes: EpisodeCounts
    scores: EvaluationScores
    per_episode: _containers.RepeatedCompositeFieldContainer[EpisodeRecord]
    reproducibility: Reproducibility
    usage: EvaluationUsage
    route: EvaluationRoute
    error: EvaluationError
    metadata: _struct_pb2.Struct
    runner: EvaluationRunner
    harness: str
    wall_budget_s: int
    estimate: EvaluationEstimate
    comparison_id: str
    films: EvaluationFilms
    def __init__(self, id: _Optional[str] = ..., object: _Optional[str] = ..., kind: _Optional[str] = ..., status: _Optional[_Union[_job_pb2.JobStatus, str]] = ..., created_at: _Optional[int] = ..., started_at: _Optional[int] = ..., finished_at: _Optional[int] = ..., policy: _Optional[_Union[EvaluatedPolicy, _Mapping]] = ..., scenario: _Optional[_Union[EvaluatedScenario, _Mapping]] = ..., progress: _Optional[_Union[EvaluationProgress, _Mapping]] = ..., episodes: _Optional[_Union[EpisodeCounts, _Mapping]] = ..., scores: _Optional[_Union[EvaluationScores, _Mapping]] = ..., per_episode: _Optional[_Iterable[_Union[EpisodeRecord, _Mapping]]] = ..., reproducibility: _Optional[_Union[Reproducibility, _Mapping]] = ..., usage: _Optional[_Union[EvaluationUsage, _Mapping]] = ..., route: _Optional[_Union[EvaluationRoute, _Mapping]] = ..., error: _Optional[_Union[EvaluationError, _Mapping]] = ..., metadata: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., runner: _Optional[_Union[EvaluationRunner, str]] = ..., harness: _Optional[str] = ..., wall_budget_s: _Optional[int] = ..., estimate: _Optional[_Union[EvaluationEstimate, _Mapping]] = ..., comparison_id: _Optional[str] = ..., films: _Optional[_Union[EvaluationFilms, _Mapping]] = ...) -> None: ...

class EvaluationEstimate(_message.Message):
    __slots__ = ("episodes", "episodes_usd", "policy_calls", "policy_calls_usd", "total_usd")
    EPISODES_FIELD_NUMBER: _ClassVar[int]
    EPISODES_USD_FIELD_NUMBER: _ClassVar[int]
    POLICY_CALLS_FIELD_NUMBER: _ClassVar[int]
    POLICY_CALLS_USD_FIELD_NUMBER: _ClassVar[int]
    TOTAL_USD_FIELD_NUMBER: _ClassVar[int]
    episodes: int
    episodes_usd: float
    policy_calls: int
    policy_calls_usd: float
    total_usd: float
    def __init__(self, episodes: _Optional[int] = ..., episodes_usd: _Optional[float] = ..., policy_calls: _Optional[int] = ..., policy_calls_usd: _Optional[float] = ..., total_usd: _Optional[float] = ...) -> None: ...

class Comparison(_message.Message):
    __slots__ = ("id", "object", "status", "created_at", "scenario", "seed", "episodes", "metric", "blind", "stop_when_known", "policies", "pairs", "seeds", "verdict", "estimate", "usage", "metadata", "suite", "tasks")
    ID_FIELD_NUMBER: _ClassVar[int]
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    SCENARIO_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    EPISODES_FIELD_NUMBER: _ClassVar[int]
    METRIC_FIELD_NUMBER: _ClassVar[int]
    BLIND_FIELD_NUMBER: _ClassVar[int]
    STOP_WHEN_KNOWN_FIELD_NUMBER: _ClassVar[int]
    POLICIES_FIELD_NUMBER: _ClassVar[int]
    PAIRS_FIELD_NUMBER: _ClassVar[int]
    SEEDS_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    ESTIMATE_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    SUITE_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    id: str
    object: str
    status: _job_pb2.JobStatus
    created_at: int
    scenario: EvaluatedScenario
    seed: int
    episodes: int
    metric: ComparisonMetric
    blind: bool
    stop_when_known: bool
    policies: _containers.RepeatedCompositeFieldContainer[ComparedPolicy]
    pairs: _containers.RepeatedCompositeFieldContainer[ComparedPair]
    seeds: _containers.RepeatedCompositeFieldContainer[ComparedSeed]
    verdict: ComparisonVerdict
    estimate: EvaluationEstimate
    usage: EvaluationUsage
    metadata: _struct_pb2.Struct
    suite: ComparedSuite
    tasks: _containers.RepeatedCompositeFieldContainer[ComparedTask]
    def __init__(self, id: _Optional[str] = ..., object: _Optional[str] = ..., status: _Optional[_Union[_job_pb2.JobStatus, str]] = ..., created_at: _Optional[int] = ..., scenario: _Optional[_Union[EvaluatedScenario, _Mapping]] = ..., seed: _Optional[int] = ..., episodes: _Optional[int] = ..., metric: _Optional[_Union[ComparisonMetric, str]] = ..., blind: _Optional[bool] = ..., stop_when_known: _Optional[bool] = ..., policies: _Optional[_Iterable[_Union[ComparedPolicy, _Mapping]]] = ..., pairs: _Optional[_Iterable[_Union[ComparedPair, _Mapping]]] = ..., seeds: _Optional[_Iterable[_Union[ComparedSeed, _Mapping]]] = ..., verdict: _Optional[_Union[ComparisonVerdict, _Mapping]] = ..., estimate: _Optional[_Union[EvaluationEstimate, _Mapping]] = ..., usage: _Optional[_Union[EvaluationUsage, _Mapping]] = ..., metadata: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., suite: _Optional[_Union[ComparedSuite, _Mapping]] = ..., tasks: _Optional[_Iterable[_Union[ComparedTask, _Mapping]]] = ...) -> None: ...

class ComparedSuite(_message.Message):
    __slots__ = ("id", "title", "digest")
    ID_FIELD_NUMBER: _ClassVar[int]
    TITLE_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    id: str
    title: str
    digest: str
    def __init__(self, id: _Optional[str] = ..., title: _Optional[str] = ..., digest: _Optional[str] = ...) -> None: ...

class ComparedTask(_message.Message):
    __slots__ = ("index", "scenario", "instruction", "seed", "episodes", "weight", "policies", "pairs", "seeds")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    SCENARIO_FIELD_NUMBER: _ClassVar[int]
    INSTRUCTION_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    EPISODES_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    POLICIES_FIELD_NUMBER: _ClassVar[int]
    PAIRS_FIELD_NUMBER: _ClassVar[int]
    SEEDS_FIELD_NUMBER: _ClassVar[int]
    index: int
    scenario: EvaluatedScenario
    instruction: str
    seed: int
    episodes: int
    weight: float
    policies: _containers.RepeatedCompositeFieldContainer[ComparedTaskPolicy]
    pairs: _containers.RepeatedCompositeFieldContainer[ComparedPair]
    seeds: _containers.RepeatedCompositeFieldContainer[ComparedSeed]
    def __init__(self, index: _Optional[int] = ..., scenario: _Optional[_Union[EvaluatedScenario, _Mapping]] = ..., instruction: _Optional[str] = ..., seed: _Optional[int] = ..., episodes: _Optional[int] = ..., weight: _Optional[float] = ..., policies: _Optional[_Iterable[_Union[ComparedTaskPolicy, _Mapping]]] = ..., pairs: _Optional[_Iterable[_Union[ComparedPair, _Mapping]]] = ..., seeds: _Optional[_Iterable[_Union[ComparedSeed, _Mapping]]] = ...) -> None: ...

class ComparedTaskPolicy(_message.Message):
    __slots__ = ("label", "evaluation_id", "status", "scores", "error")
    LABEL_FIELD_NUMBER: _ClassVar[int]
    EVALUATION_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    SCORES_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    label: str
    evaluation_id: str
    status: _job_pb2.JobStatus
    scores: EvaluationScores
    error: EvaluationError
    def __init__(self, label: _Optional[str] = ..., evaluation_id: _Optional[str] = ..., status: _Optional[_Union[_job_pb2.JobStatus, str]] = ..., scores: _Optional[_Union[EvaluationScores, _Mapping]] = ..., error: _Optional[_Union[EvaluationError, _Mapping]] = ...) -> None: ...

class OverallScore(_message.Message):
    __slots__ = ("success", "progress")
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    success: WeightedScore
    progress: WeightedScore
    def __init__(self, success: _Optional[_Union[WeightedScore, _Mapping]] = ..., progress: _Optional[_Union[WeightedScore, _Mapping]] = ...) -> None: ...

class WeightedScore(_message.Message):
    __slots__ = ("mean", "ci95")
    MEAN_FIELD_NUMBER: _ClassVar[int]
    CI95_FIELD_NUMBER: _ClassVar[int]
    mean: float
    ci95: Interval
    def __init__(self, mean: _Optional[float] = ..., ci95: _Optional[_Union[Interval, _Mapping]] = ...) -> None: ...

class ComparedPolicy(_message.Message):
    __slots__ = ("label", "policy", "evaluation_id", "status", "rank", "scores", "error", "overall", "strength")
    LABEL_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    EVALUATION_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    SCORES_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    OVERALL_FIELD_NUMBER: _ClassVar[int]
    STRENGTH_FIELD_NUMBER: _ClassVar[int]
    label: str
    policy: EvaluatedPolicy
    evaluation_id: str
    status: _job_pb2.JobStatus
    rank: int
    scores: EvaluationScores
    error: EvaluationError
    overall: OverallScore
    strength: PolicyStrength
    def __init__(self, label: _Optional[str] = ..., policy: _Optional[_Union[EvaluatedPolicy, _Mapping]] = ..., evaluation_id: _Optional[str] = ..., status: _Optional[_Union[_job_pb2.JobStatus, str]] = ..., rank: _Optional[int] = ..., scores: _Optional[_Union[EvaluationScores, _Mapping]] = ..., error: _Optional[_Union[EvaluationError, _Mapping]] = ..., overall: _Optional[_Union[OverallScore, _Mapping]] = ..., strength: _Optional[_Union[PolicyStrength, _Mapping]] = ...) -> None: ...

class PolicyStrength(_message.Message):
    __slots__ = ("value", "ci95")
    VALUE_FIELD_NUMBER: _ClassVar[int]
    CI95_FIELD_NUMBER: _ClassVar[int]
    value: float
    ci95: Interval
    def __init__(self, value: _Optional[float] = ..., ci95: _Optional[_Union[Interval, _Mapping]] = ...) -> None: ...

class ComparedPair(_message.Message):
    __slots__ = ("a", "b", "n", "success", "progress", "mcnemar", "anytime", "better", "sign_flip")
    A_FIELD_NUMBER: _ClassVar[int]
    B_FIELD_NUMBER: _ClassVar[int]
    N_FIELD_NUMBER: _ClassVar[int]
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    RETURN_FIELD_NUMBER: _ClassVar[int]
    MCNEMAR_FIELD_NUMBER: _ClassVar[int]
    ANYTIME_FIELD_NUMBER: _ClassVar[int]
    BETTER_FIELD_NUMBER: _ClassVar[int]
    SIGN_FLIP_FIELD_NUMBER: _ClassVar[int]
    a: str
    b: str
    n: int
    success: PairedDifference
    progress: PairedDifference
    mcnemar: McNemarTest
    anytime: AnytimeDifference
    better: str
    sign_flip: SignFlipTest
    def __init__(self, a: _Optional[str] = ..., b: _Optional[str] = ..., n: _Optional[int] = ..., success: _Optional[_Union[PairedDifference, _Mapping]] = ..., progress: _Optional[_Union[PairedDifference, _Mapping]] = ..., mcnemar: _Optional[_Union[McNemarTest, _Mapping]] = ..., anytime: _Optional[_Union[AnytimeDifference, _Mapping]] = ..., better: _Optional[str] = ..., sign_flip: _Optional[_Union[SignFlipTest, _Mapping]] = ..., **kwargs) -> None: ...

class SignFlipTest(_message.Message):
    __slots__ = ("p",)
    P_FIELD_NUMBER: _ClassVar[int]
    p: float
    def __init__(self, p: _Optional[float] = ...) -> None: ...

class PairedDifference(_message.Message):
    __slots__ = ("mean", "ci95")
    MEAN_FIELD_NUMBER: _ClassVar[int]
    CI95_FIELD_NUMBER: _ClassVar[int]
    mean: float
    ci95: Interval
    def __init__(self, mean: _Optional[float] = ..., ci95: _Optional[_Union[Interval, _Mapping]] = ...) -> None: ...

class McNemarTest(_message.Message):
    __slots__ = ("only_a", "only_b", "p")
    ONLY_A_FIELD_NUMBER: _ClassVar[int]
    ONLY_B_FIELD_NUMBER: _ClassVar[int]
    P_FIELD_NUMBER: _ClassVar[int]
    only_a: int
    only_b: int
    p: float
    def __init__(self, only_a: _Optional[int] = ..., only_b: _Optional[int] = ..., p: _Optional[float] = ...) -> None: ...

class AnytimeDifference(_message.Message):
    __slots__ = ("interval", "known_after")
    INTERVAL_FIELD_NUMBER: _ClassVar[int]
    KNOWN_AFTER_FIELD_NUMBER: _ClassVar[int]
    interval: Interval
    known_after: int
    def __init__(self, interval: _Optional[_Union[Interval, _Mapping]] = ..., known_after: _Optional[int] = ...) -> None: ...

class ComparedSeed(_message.Message):
    __slots__ = ("seed", "outcomes")
    SEED_FIELD_NUMBER: _ClassVar[int]
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    seed: int
    outcomes: _containers.RepeatedCompositeFieldContainer[ComparedOutcome]
    def __init__(self, seed: _Optional[int] = ..., outcomes: _Optional[_Iterable[_Union[ComparedOutcome, _Mapping]]] = ...) -> None: ...

class ComparedOutcome(_message.Message):
    __slots__ = ("label", "success", "progress", "termination")
    LABEL_FIELD_NUMBER: _ClassVar[int]
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    RETURN_FIELD_NUMBER: _ClassVar[int]
    TERMINATION_FIELD_NUMBER: _ClassVar[int]
    label: str
    success: bool
    progress: float
    termination: str
    def __init__(self, label: _Optional[str] = ..., success: _Optional[bool] = ..., progress: _Optional[float] = ..., termination: _Optional[str] = ..., **kwargs) -> None: ...

class ComparisonVerdict(_message.Message):
    __slots__ = ("best", "known", "text")
    BEST_FIELD_NUMBER: _ClassVar[int]
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    best: _containers.RepeatedScalarFieldContainer[str]
    known: bool
    text: str
    def __init__(self, best: _Optional[_Iterable[str]] = ..., known: _Optional[bool] = ..., text: _Optional[str] = ...) -> None: ...

class EvaluatedPolicy(_message.Message):
    __slots__ = ("endpoint", "protocol", "model", "action_space", "offering_id", "provider", "horizon", "replan_steps", "pictures", "camera_map", "state_map")
    class CameraMapEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    ACTION_SPACE_FIELD_NUMBER: _ClassVar[int]
    OFFERING_ID_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    HORIZON_FIELD_NUMBER: _ClassVar[int]
    REPLAN_STEPS_FIELD_NUMBER: _ClassVar[int]
    PICTURES_FIELD_NUMBER: _ClassVar[int]
    CAMERA_MAP_FIELD_NUMBER: _ClassVar[int]
    STATE_MAP_FIELD_NUMBER: _ClassVar[int]
    endpoint: str
    protocol: str
    model: str
    action_space: str
    offering_id: str
    provider: str
    horizon: int
    replan_steps: int
    pictures: bool
    camera_map: _containers.ScalarMap[str, str]
    state_map: _containers.RepeatedCompositeFieldContainer[StateMapping]
    def __init__(self, endpoint: _Optional[str] = ..., protocol: _Optional[str] = ..., model: _Optional[str] = ..., action_space: _Optional[str] = ..., offering_id: _Optional[str] = ..., provider: _Optional[str] = ..., horizon: _Optional[int] = ..., replan_steps: _Optional[int] = ..., pictures: _Optional[bool] = ..., camera_map: _Optional[_Mapping[str, str]] = ..., state_map: _Optional[_Iterable[_Union[StateMapping, _Mapping]]] = ...) -> None: ...

class StateMapping(_message.Message):
    __slots__ = ("name",)
    FROM_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ..., **kwargs) -> None: ...

class EvaluatedScenario(_message.Message):
    __slots__ = ("id", "version", "digest", "engine", "engine_version", "action_space", "action_dim", "dt_ms", "max_steps", "mode")
    ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    ENGINE_VERSION_FIELD_NUMBER: _ClassVar[int]
    ACTION_SPACE_FIELD_NUMBER: _ClassVar[int]
    ACTION_DIM_FIELD_NUMBER: _ClassVar[int]
    DT_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_STEPS_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    id: str
    version: str
    digest: str
    engine: str
    engine_version: str
    action_space: str
    action_dim: int
    dt_ms: float
    max_steps: int
    mode: EvaluationMode
    def __init__(self, id: _Optional[str] = ..., version: _Optional[str] = ..., digest: _Optional[str] = ..., engine: _Optional[str] = ..., engine_version: _Optional[str] = ..., action_space: _Optional[str] = ..., action_dim: _Optional[int] = ..., dt_ms: _Optional[float] = ..., max_steps: _Optional[int] = ..., mode: _Optional[_Union[EvaluationMode, str]] = ...) -> None: ...

class EvaluationFilms(_message.Message):
    __slots__ = ("total", "ready", "failed")
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    total: int
    ready: int
    failed: int
    def __init__(self, total: _Optional[int] = ..., ready: _Optional[int] = ..., failed: _Optional[int] = ...) -> None: ...

class FilmSeries(_message.Message):
    __slots__ = ("width", "height", "frame_ms", "action_names", "points")
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    HEIGHT_FIELD_NUMBER: _ClassVar[int]
    FRAME_MS_FIELD_NUMBER: _ClassVar[int]
    ACTION_NAMES_FIELD_NUMBER: _ClassVar[int]
    POINTS_FIELD_NUMBER: _ClassVar[int]
    width: int
    height: int
    frame_ms: float
    action_names: _containers.RepeatedScalarFieldContainer[str]
    points: _containers.RepeatedCompositeFieldContainer[FilmPoint]
    def __init__(self, width: _Optional[int] = ..., height: _Optional[int] = ..., frame_ms: _Optional[float] = ..., action_names: _Optional[_Iterable[str]] = ..., points: _Optional[_Iterable[_Union[FilmPoint, _Mapping]]] = ...) -> None: ...

class FilmPoint(_message.Message):
    __slots__ = ("step", "action")
    STEP_FIELD_NUMBER: _ClassVar[int]
    RETURN_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    step: int
    action: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, step: _Optional[int] = ..., action: _Optional[_Iterable[float]] = ..., **kwargs) -> None: ...

class EvaluationProgress(_message.Message):
    __slots__ = ("completed", "total", "running_success_rate")
    COMPLETED_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    RUNNING_SUCCESS_RATE_FIELD_NUMBER: _ClassVar[int]
    completed: int
    total: int
    running_success_rate: float
    def __init__(self, completed: _Optional[int] = ..., total: _Optional[int] = ..., running_success_rate: _Optional[float] = ...) -> None: ...

class EpisodeCounts(_message.Message):
    __slots__ = ("requested", "completed", "errored")
    REQUESTED_FIELD_NUMBER: _ClassVar[int]
    COMPLETED_FIELD_NUMBER: _ClassVar[int]
    ERRORED_FIELD_NUMBER: _ClassVar[int]
    requested: int
    completed: int
    errored: int
    def __init__(self, requested: _Optional[int] = ..., completed: _Optional[int] = ..., errored: _Optional[int] = ...) -> None: ...

class EvaluationScores(_message.Message):
    __slots__ = ("success_rate", "progress_score", "episode_steps", "time_to_success_s", "terminations", "safety", "smoothness", "policy_latency_ms", "policy_calls", "realtime", "metrics")
    class TerminationsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class MetricsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    SUCCESS_RATE_FIELD_NUMBER: _ClassVar[int]
    RETURN_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_SCORE_FIELD_NUMBER: _ClassVar[int]
    EPISODE_STEPS_FIELD_NUMBER: _ClassVar[int]
    TIME_TO_SUCCESS_S_FIELD_NUMBER: _ClassVar[int]
    TERMINATIONS_FIELD_NUMBER: _ClassVar[int]
    SAFETY_FIELD_NUMBER: _ClassVar[int]
    SMOOTHNESS_FIELD_NUMBER: _ClassVar[int]
    POLICY_LATENCY_MS_FIELD_NUMBER: _ClassVar[int]
    POLICY_CALLS_FIELD_NUMBER: _ClassVar[int]
    REALTIME_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    success_rate: SuccessRate
    progress_score: MeanScore
    episode_steps: Spread
    time_to_success_s: MedianScore
    terminations: _containers.ScalarMap[str, int]
    safety: SafetyScore
    smoothness: SmoothnessScore
    policy_latency_ms: LatencyScore
    policy_calls: int
    realtime: RealtimeScore
    metrics: _containers.ScalarMap[str, float]
    def __init__(self, success_rate: _Optional[_Union[SuccessRate, _Mapping]] = ..., progress_score: _Optional[_Union[MeanScore, _Mapping]] = ..., episode_steps: _Optional[_Union[Spread, _Mapping]] = ..., time_to_success_s: _Optional[_Union[MedianScore, _Mapping]] = ..., terminations: _Optional[_Mapping[str, int]] = ..., safety: _Optional[_Union[SafetyScore, _Mapping]] = ..., smoothness: _Optional[_Union[SmoothnessScore, _Mapping]] = ..., policy_latency_ms: _Optional[_Union[LatencyScore, _Mapping]] = ..., policy_calls: _Optional[int] = ..., realtime: _Optional[_Union[RealtimeScore, _Mapping]] = ..., metrics: _Optional[_Mapping[str, float]] = ..., **kwargs) -> None: ...

class SuccessRate(_message.Message):
    __slots__ = ("value", "successes", "n", "ci95", "ci95_exact")
    VALUE_FIELD_NUMBER: _ClassVar[int]
    SUCCESSES_FIELD_NUMBER: _ClassVar[int]
    N_FIELD_NUMBER: _ClassVar[int]
    CI95_FIELD_NUMBER: _ClassVar[int]
    CI95_EXACT_FIELD_NUMBER: _ClassVar[int]
    value: float
    successes: int
    n: int
    ci95: Interval
    ci95_exact: Interval
    def __init__(self, value: _Optional[float] = ..., successes: _Optional[int] = ..., n: _Optional[int] = ..., ci95: _Optional[_Union[Interval, _Mapping]] = ..., ci95_exact: _Optional[_Union[Interval, _Mapping]] = ...) -> None: ...

class Interval(_message.Message):
    __slots__ = ("method", "low", "high")
    METHOD_FIELD_NUMBER: _ClassVar[int]
    LOW_FIELD_NUMBER: _ClassVar[int]
    HIGH_FIELD_NUMBER: _ClassVar[int]
    method: str
    low: float
    high: float
    def __init__(self, method: _Optional[str] = ..., low: _Optional[float] = ..., high: _Optional[float] = ...) -> None: ...

class ReturnScore(_message.Message):
    __slots__ = ("mean", "std", "median", "min", "max", "ci95")
    MEAN_FIELD_NUMBER: _ClassVar[int]
    STD_FIELD_NUMBER: _ClassVar[int]
    MEDIAN_FIELD_NUMBER: _ClassVar[int]
    MIN_FIELD_NUMBER: _ClassVar[int]
    MAX_FIELD_NUMBER: _ClassVar[int]
    CI95_FIELD_NUMBER: _ClassVar[int]
    mean: float
    std: float
    median: float
    min: float
    max: float
    ci95: Interval
    def __init__(self, mean: _Optional[float] = ..., std: _Optional[float] = ..., median: _Optional[float] = ..., min: _Optional[float] = ..., max: _Optional[float] = ..., ci95: _Optional[_Union[Interval, _Mapping]] = ...) -> None: ...

class Spread(_message.Message):
    __slots__ = ("mean", "median")
    MEAN_FIELD_NUMBER: _ClassVar[int]
    MEDIAN_FIELD_NUMBER: _ClassVar[int]
    mean: float
    median: float
    def __init__(self, mean: _Optional[float] = ..., median: _Optional[float] = ...) -> None: ...

class MeanScore(_message.Message):
    __slots__ = ("mean",)
    MEAN_FIELD_NUMBER: _ClassVar[int]
    mean: float
    def __init__(self, mean: _Optional[float] = ...) -> None: ...

class MedianScore(_message.Message):
    __slots__ = ("median",)
    MEDIAN_FIELD_NUMBER: _ClassVar[int]
    median: float
    def __init__(self, median: _Optional[float] = ...) -> None: ...

class SafetyScore(_message.Message):
    __slots__ = ("collisions", "clipped_action_fraction")
    COLLISIONS_FIELD_NUMBER: _ClassVar[int]
    CLIPPED_ACTION_FRACTION_FIELD_NUMBER: _ClassVar[int]
    collisions: int
    clipped_action_fraction: float
    def __init__(self, collisions: _Optional[int] = ..., clipped_action_fraction: _Optional[float] = ...) -> None: ...

class SmoothnessScore(_message.Message):
    __slots__ = ("mean_abs_action_delta",)
    MEAN_ABS_ACTION_DELTA_FIELD_NUMBER: _ClassVar[int]
    mean_abs_action_delta: float
    def __init__(self, mean_abs_action_delta: _Optional[float] = ...) -> None: ...

class LatencyScore(_message.Message):
    __slots__ = ("p50", "p95", "max")
    P50_FIELD_NUMBER: _ClassVar[int]
    P95_FIELD_NUMBER: _ClassVar[int]
    MAX_FIELD_NUMBER: _ClassVar[int]
    p50: float
    p95: float
    max: float
    def __init__(self, p50: _Optional[float] = ..., p95: _Optional[float] = ..., max: _Optional[float] = ...) -> None: ...

class RealtimeScore(_message.Message):
    __slots__ = ("stale_action_ratio", "effective_hz")
    STALE_ACTION_RATIO_FIELD_NUMBER: _ClassVar[int]
    EFFECTIVE_HZ_FIELD_NUMBER: _ClassVar[int]
    stale_action_ratio: float
    effective_hz: float
    def __init__(self, stale_action_ratio: _Optional[float] = ..., effective_hz: _Optional[float] = ...) -> None: ...

class EpisodeRecord(_message.Message):
    __slots__ = ("index", "seed", "status", "success", "termination", "error", "progress", "steps", "sim_time_s", "policy_calls", "mean_latency_ms", "metrics", "initial_state_sha256", "trajectory_sha256", "picture_url", "wall_ms", "film_url", "film_type", "film_error")
    class MetricsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    INDEX_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    TERMINATION_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    RETURN_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    SIM_TIME_S_FIELD_NUMBER: _ClassVar[int]
    POLICY_CALLS_FIELD_NUMBER: _ClassVar[int]
    MEAN_LATENCY_MS_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    INITIAL_STATE_SHA256_FIELD_NUMBER: _ClassVar[int]
    TRAJECTORY_SHA256_FIELD_NUMBER: _ClassVar[int]
    PICTURE_URL_FIELD_NUMBER: _ClassVar[int]
    WALL_MS_FIELD_NUMBER: _ClassVar[int]
    FILM_URL_FIELD_NUMBER: _ClassVar[int]
    FILM_TYPE_FIELD_NUMBER: _ClassVar[int]
    FILM_ERROR_FIELD_NUMBER: _ClassVar[int]
    index: int
    seed: int
    status: str
    success: bool
    termination: str
    error: str
    progress: float
    steps: int
    sim_time_s: float
    policy_calls: int
    mean_latency_ms: float
    metrics: _containers.ScalarMap[str, float]
    initial_state_sha256: str
    trajectory_sha256: str
    picture_url: str
    wall_ms: int
    film_url: str
    film_type: str
    film_error: str
    def __init__(self, index: _Optional[int] = ..., seed: _Optional[int] = ..., status: _Optional[str] = ..., success: _Optional[bool] = ..., termination: _Optional[str] = ..., error: _Optional[str] = ..., progress: _Optional[float] = ..., steps: _Optional[int] = ..., sim_time_s: _Optional[float] = ..., policy_calls: _Optional[int] = ..., mean_latency_ms: _Optional[float] = ..., metrics: _Optional[_Mapping[str, float]] = ..., initial_state_sha256: _Optional[str] = ..., trajectory_sha256: _Optional[str] = ..., picture_url: _Optional[str] = ..., wall_ms: _Optional[int] = ..., film_url: _Optional[str] = ..., film_type: _Optional[str] = ..., film_error: _Optional[str] = ..., **kwargs) -> None: ...

class Reproducibility(_message.Message):
    __slots__ = ("hash", "runtime", "replay_verified")
    HASH_FIELD_NUMBER: _ClassVar[int]
    RUNTIME_FIELD_NUMBER: _ClassVar[int]
    REPLAY_VERIFIED_FIELD_NUMBER: _ClassVar[int]
    hash: str
    runtime: str
    replay_verified: bool
    def __init__(self, hash: _Optional[str] = ..., runtime: _Optional[str] = ..., replay_verified: _Optional[bool] = ...) -> None: ...

class EvaluationUsage(_message.Message):
    __slots__ = ("episodes", "cost_usd", "policy_calls", "policy_cost_usd", "total_cost_usd")
    EPISODES_FIELD_NUMBER: _ClassVar[int]
    COST_USD_FIELD_NUMBER: _ClassVar[int]
    POLICY_CALLS_FIELD_NUMBER: _ClassVar[int]
    POLICY_COST_USD_FIELD_NUMBER: _ClassVar[int]
    TOTAL_COST_USD_FIELD_NUMBER: _ClassVar[int]
    episodes: int
    cost_usd: float
    policy_calls: int
    policy_cost_usd: float
    total_cost_usd: float
    def __init__(self, episodes: _Optional[int] = ..., cost_usd: _Optional[float] = ..., policy_calls: _Optional[int] = ..., policy_cost_usd: _Optional[float] = ..., total_cost_usd: _Optional[float] = ...) -> None: ...

class EvaluationRoute(_message.Message):
    __slots__ = ("simulated",)
    SIMULATED_FIELD_NUMBER: _ClassVar[int]
    simulated: bool
    def __init__(self, simulated: _Optional[bool] = ...) -> None: ...

class EvaluationError(_message.Message):
    __slots__ = ("code", "message")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    code: str
    message: str
    def __init__(self, code: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...
