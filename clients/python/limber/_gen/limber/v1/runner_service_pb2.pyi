from limber._gen.limber.v1 import evaluation_pb2 as _evaluation_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ClaimEvaluationRequest(_message.Message):
    __slots__ = ("harness", "scenarios", "lease_s")
    HARNESS_FIELD_NUMBER: _ClassVar[int]
    SCENARIOS_FIELD_NUMBER: _ClassVar[int]
    LEASE_S_FIELD_NUMBER: _ClassVar[int]
    harness: str
    scenarios: _containers.RepeatedScalarFieldContainer[str]
    lease_s: int
    def __init__(self, harness: _Optional[str] = ..., scenarios: _Optional[_Iterable[str]] = ..., lease_s: _Optional[int] = ...) -> None: ...

class ClaimEvaluationResponse(_message.Message):
    __slots__ = ("claim",)
    CLAIM_FIELD_NUMBER: _ClassVar[int]
    claim: EvaluationClaim
    def __init__(self, claim: _Optional[_Union[EvaluationClaim, _Mapping]] = ...) -> None: ...

class EvaluationClaim(_message.Message):
    __slots__ = ("epoch", "lease_until", "lease_s", "evaluation", "open_episodes", "seed", "horizon", "replan_steps", "policy_timeout_ms")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LEASE_UNTIL_FIELD_NUMBER: _ClassVar[int]
    LEASE_S_FIELD_NUMBER: _ClassVar[int]
    EVALUATION_FIELD_NUMBER: _ClassVar[int]
    OPEN_EPISODES_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    HORIZON_FIELD_NUMBER: _ClassVar[int]
    REPLAN_STEPS_FIELD_NUMBER: _ClassVar[int]
    POLICY_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    lease_until: int
    lease_s: int
    evaluation: _evaluation_pb2.Evaluation
    open_episodes: _containers.RepeatedScalarFieldContainer[int]
    seed: int
    horizon: int
    replan_steps: int
    policy_timeout_ms: int
    def __init__(self, epoch: _Optional[int] = ..., lease_until: _Optional[int] = ..., lease_s: _Optional[int] = ..., evaluation: _Optional[_Union[_evaluation_pb2.Evaluation, _Mapping]] = ..., open_episodes: _Optional[_Iterable[int]] = ..., seed: _Optional[int] = ..., horizon: _Optional[int] = ..., replan_steps: _Optional[int] = ..., policy_timeout_ms: _Optional[int] = ...) -> None: ...

class RenewClaimRequest(_message.Message):
    __slots__ = ("job_id", "epoch")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    epoch: int
    def __init__(self, job_id: _Optional[str] = ..., epoch: _Optional[int] = ...) -> None: ...

class RenewClaimResponse(_message.Message):
    __slots__ = ("lease_until", "stop")
    LEASE_UNTIL_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    lease_until: int
    stop: bool
    def __init__(self, lease_until: _Optional[int] = ..., stop: _Optional[bool] = ...) -> None: ...

class ReportEpisodeRequest(_message.Message):
    __slots__ = ("job_id", "epoch", "index", "termination", "error", "progress", "steps", "sim_time_s", "latencies_ms", "metrics", "initial_state_sha256", "trajectory_sha256")
    class MetricsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    TERMINATION_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    RETURN_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    SIM_TIME_S_FIELD_NUMBER: _ClassVar[int]
    LATENCIES_MS_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    INITIAL_STATE_SHA256_FIELD_NUMBER: _ClassVar[int]
    TRAJECTORY_SHA256_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    epoch: int
    index: int
    termination: str
    error: str
    progress: float
    steps: int
    sim_time_s: float
    latencies_ms: _containers.RepeatedScalarFieldContainer[float]
    metrics: _containers.ScalarMap[str, float]
    initial_state_sha256: str
    trajectory_sha256: str
    def __init__(self, job_id: _Optional[str] = ..., epoch: _Optional[int] = ..., index: _Optional[int] = ..., termination: _Optional[str] = ..., error: _Optional[str] = ..., progress: _Optional[float] = ..., steps: _Optional[int] = ..., sim_time_s: _Optional[float] = ..., latencies_ms: _Optional[_Iterable[float]] = ..., metrics: _Optional[_Mapping[str, float]] = ..., initial_state_sha256: _Optional[str] = ..., trajectory_sha256: _Optional[str] = ..., **kwargs) -> None: ...

class ReportEpisodeResponse(_message.Message):
    __slots__ = ("progress", "lease_until", "stop")
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    LEASE_UNTIL_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    progress: _evaluation_pb2.EvaluationProgress
    lease_until: int
    stop: bool
    def __init__(self, progress: _Optional[_Union[_evaluation_pb2.EvaluationProgress, _Mapping]] = ..., lease_until: _Optional[int] = ..., stop: _Optional[bool] = ...) -> None: ...

class FinishEvaluationRequest(_message.Message):
    __slots__ = ("job_id", "epoch", "error")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    epoch: int
    error: _evaluation_pb2.EvaluationError
    def __init__(self, job_id: _Optional[str] = ..., epoch: _Optional[int] = ..., error: _Optional[_Union[_evaluation_pb2.EvaluationError, _Mapping]] = ...) -> None: ...

class FinishEvaluationResponse(_message.Message):
    __slots__ = ("evaluation",)
    EVALUATION_FIELD_NUMBER: _ClassVar[int]
    evaluation: _evaluation_pb2.Evaluation
    def __init__(self, evaluation: _Optional[_Union[_evaluation_pb2.Evaluation, _Mapping]] = ...) -> None: ...
