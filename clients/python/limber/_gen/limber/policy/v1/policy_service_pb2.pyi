from limber._gen.limber.v1 import action_pb2 as _action_pb2
from limber._gen.limber.v1 import contract_pb2 as _contract_pb2
from limber._gen.limber.v1 import grounding_pb2 as _grounding_pb2
from limber._gen.limber.v1 import input_contract_pb2 as _input_contract_pb2
from limber._gen.limber.v1 import observation_pb2 as _observation_pb2
from limber._gen.limber.v1 import prediction_pb2 as _prediction_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CallErrorCode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CALL_ERROR_CODE_UNSPECIFIED: _ClassVar[CallErrorCode]
    CALL_ERROR_CODE_INVALID_INPUT: _ClassVar[CallErrorCode]
    CALL_ERROR_CODE_BUSY: _ClassVar[CallErrorCode]
    CALL_ERROR_CODE_INTERNAL: _ClassVar[CallErrorCode]
CALL_ERROR_CODE_UNSPECIFIED: CallErrorCode
CALL_ERROR_CODE_INVALID_INPUT: CallErrorCode
CALL_ERROR_CODE_BUSY: CallErrorCode
CALL_ERROR_CODE_INTERNAL: CallErrorCode

class DescribeRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DescribeResponse(_message.Message):
    __slots__ = ("models",)
    MODELS_FIELD_NUMBER: _ClassVar[int]
    models: _containers.RepeatedCompositeFieldContainer[ServedModel]
    def __init__(self, models: _Optional[_Iterable[_Union[ServedModel, _Mapping]]] = ...) -> None: ...

class ServedModel(_message.Message):
    __slots__ = ("slug", "name", "summary", "limits", "contracts", "action_spaces", "action_dim", "embodiments", "family", "dt_ms", "max_horizon", "proprio_names", "cameras", "parameters", "runtime", "endpoint", "samples", "input", "actions")
    SLUG_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    CONTRACTS_FIELD_NUMBER: _ClassVar[int]
    ACTION_SPACES_FIELD_NUMBER: _ClassVar[int]
    ACTION_DIM_FIELD_NUMBER: _ClassVar[int]
    EMBODIMENTS_FIELD_NUMBER: _ClassVar[int]
    FAMILY_FIELD_NUMBER: _ClassVar[int]
    DT_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_HORIZON_FIELD_NUMBER: _ClassVar[int]
    PROPRIO_NAMES_FIELD_NUMBER: _ClassVar[int]
    CAMERAS_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    RUNTIME_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    ACTIONS_FIELD_NUMBER: _ClassVar[int]
    slug: str
    name: str
    summary: str
    limits: str
    contracts: _containers.RepeatedScalarFieldContainer[_contract_pb2.Contract]
    action_spaces: _containers.RepeatedScalarFieldContainer[str]
    action_dim: int
    embodiments: _containers.RepeatedScalarFieldContainer[str]
    family: str
    dt_ms: int
    max_horizon: int
    proprio_names: _containers.RepeatedScalarFieldContainer[str]
    cameras: _containers.RepeatedScalarFieldContainer[str]
    parameters: _containers.RepeatedScalarFieldContainer[str]
    runtime: str
    endpoint: str
    samples: _containers.RepeatedCompositeFieldContainer[_observation_pb2.Observation]
    input: _input_contract_pb2.InputContract
    actions: _containers.RepeatedCompositeFieldContainer[_input_contract_pb2.ActionMeaning]
    def __init__(self, slug: _Optional[str] = ..., name: _Optional[str] = ..., summary: _Optional[str] = ..., limits: _Optional[str] = ..., contracts: _Optional[_Iterable[_Union[_contract_pb2.Contract, str]]] = ..., action_spaces: _Optional[_Iterable[str]] = ..., action_dim: _Optional[int] = ..., embodiments: _Optional[_Iterable[str]] = ..., family: _Optional[str] = ..., dt_ms: _Optional[int] = ..., max_horizon: _Optional[int] = ..., proprio_names: _Optional[_Iterable[str]] = ..., cameras: _Optional[_Iterable[str]] = ..., parameters: _Optional[_Iterable[str]] = ..., runtime: _Optional[str] = ..., endpoint: _Optional[str] = ..., samples: _Optional[_Iterable[_Union[_observation_pb2.Observation, _Mapping]]] = ..., input: _Optional[_Union[_input_contract_pb2.InputContract, _Mapping]] = ..., actions: _Optional[_Iterable[_Union[_input_contract_pb2.ActionMeaning, _Mapping]]] = ...) -> None: ...

class ActRequest(_message.Message):
    __slots__ = ("call_id", "call", "cancel")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    CALL_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    call_id: int
    call: ActCall
    cancel: CancelCall
    def __init__(self, call_id: _Optional[int] = ..., call: _Optional[_Union[ActCall, _Mapping]] = ..., cancel: _Optional[_Union[CancelCall, _Mapping]] = ...) -> None: ...

class ActCall(_message.Message):
    __slots__ = ("model", "observations", "instruction", "goal_image", "action_space", "horizon", "seed", "temperature", "return_prediction", "session_id", "request_id", "budget_ms", "prev_chunk_left_over", "inference_delay")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    OBSERVATIONS_FIELD_NUMBER: _ClassVar[int]
    INSTRUCTION_FIELD_NUMBER: _ClassVar[int]
    GOAL_IMAGE_FIELD_NUMBER: _ClassVar[int]
    ACTION_SPACE_FIELD_NUMBER: _ClassVar[int]
    HORIZON_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    RETURN_PREDICTION_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    BUDGET_MS_FIELD_NUMBER: _ClassVar[int]
    PREV_CHUNK_LEFT_OVER_FIELD_NUMBER: _ClassVar[int]
    INFERENCE_DELAY_FIELD_NUMBER: _ClassVar[int]
    model: str
    observations: _containers.RepeatedCompositeFieldContainer[_observation_pb2.Observation]
    instruction: str
    goal_image: _observation_pb2.Frame
    action_space: str
    horizon: int
    seed: int
    temperature: float
    return_prediction: bool
    session_id: str
    request_id: str
    budget_ms: int
    prev_chunk_left_over: _containers.RepeatedCompositeFieldContainer[_action_pb2.ActionStep]
    inference_delay: int
    def __init__(self, model: _Optional[str] = ..., observations: _Optional[_Iterable[_Union[_observation_pb2.Observation, _Mapping]]] = ..., instruction: _Optional[str] = ..., goal_image: _Optional[_Union[_observation_pb2.Frame, _Mapping]] = ..., action_space: _Optional[str] = ..., horizon: _Optional[int] = ..., seed: _Optional[int] = ..., temperature: _Optional[float] = ..., return_prediction: _Optional[bool] = ..., session_id: _Optional[str] = ..., request_id: _Optional[str] = ..., budget_ms: _Optional[int] = ..., prev_chunk_left_over: _Optional[_Iterable[_Union[_action_pb2.ActionStep, _Mapping]]] = ..., inference_delay: _Optional[int] = ...) -> None: ...

class CancelCall(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ActResponse(_message.Message):
    __slots__ = ("call_id", "chunk", "error")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    call_id: int
    chunk: ActChunk
    error: CallError
    def __init__(self, call_id: _Optional[int] = ..., chunk: _Optional[_Union[ActChunk, _Mapping]] = ..., error: _Optional[_Union[CallError, _Mapping]] = ...) -> None: ...

class ActChunk(_message.Message):
    __slots__ = ("steps", "dt_ms", "note", "prediction", "gpu_seconds")
    STEPS_FIELD_NUMBER: _ClassVar[int]
    DT_MS_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    PREDICTION_FIELD_NUMBER: _ClassVar[int]
    GPU_SECONDS_FIELD_NUMBER: _ClassVar[int]
    steps: _containers.RepeatedCompositeFieldContainer[_action_pb2.ActionStep]
    dt_ms: int
    note: str
    prediction: _containers.RepeatedCompositeFieldContainer[_prediction_pb2.PredictedFrame]
    gpu_seconds: float
    def __init__(self, steps: _Optional[_Iterable[_Union[_action_pb2.ActionStep, _Mapping]]] = ..., dt_ms: _Optional[int] = ..., note: _Optional[str] = ..., prediction: _Optional[_Iterable[_Union[_prediction_pb2.PredictedFrame, _Mapping]]] = ..., gpu_seconds: _Optional[float] = ...) -> None: ...

class CallError(_message.Message):
    __slots__ = ("code", "message")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    code: CallErrorCode
    message: str
    def __init__(self, code: _Optional[_Union[CallErrorCode, str]] = ..., message: _Optional[str] = ...) -> None: ...

class PredictRequest(_message.Message):
    __slots__ = ("model", "observations", "instruction", "horizon", "actions", "action_space", "seed", "fps", "resolution")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    OBSERVATIONS_FIELD_NUMBER: _ClassVar[int]
    INSTRUCTION_FIELD_NUMBER: _ClassVar[int]
    HORIZON_FIELD_NUMBER: _ClassVar[int]
    ACTIONS_FIELD_NUMBER: _ClassVar[int]
    ACTION_SPACE_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    FPS_FIELD_NUMBER: _ClassVar[int]
    RESOLUTION_FIELD_NUMBER: _ClassVar[int]
    model: str
    observations: _containers.RepeatedCompositeFieldContainer[_observation_pb2.Observation]
    instruction: str
    horizon: int
    actions: _containers.RepeatedCompositeFieldContainer[_action_pb2.ActionStep]
    action_space: str
    seed: int
    fps: float
    resolution: str
    def __init__(self, model: _Optional[str] = ..., observations: _Optional[_Iterable[_Union[_observation_pb2.Observation, _Mapping]]] = ..., instruction: _Optional[str] = ..., horizon: _Optional[int] = ..., actions: _Optional[_Iterable[_Union[_action_pb2.ActionStep, _Mapping]]] = ..., action_space: _Optional[str] = ..., seed: _Optional[int] = ..., fps: _Optional[float] = ..., resolution: _Optional[str] = ...) -> None: ...

class PredictResponse(_message.Message):
    __slots__ = ("frame", "summary")
    FRAME_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    frame: _prediction_pb2.PredictedFrame
    summary: PredictSummary
    def __init__(self, frame: _Optional[_Union[_prediction_pb2.PredictedFrame, _Mapping]] = ..., summary: _Optional[_Union[PredictSummary, _Mapping]] = ...) -> None: ...

class PredictSummary(_message.Message):
    __slots__ = ("gpu_seconds", "note")
    GPU_SECONDS_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    gpu_seconds: float
    note: str
    def __init__(self, gpu_seconds: _Optional[float] = ..., note: _Optional[str] = ...) -> None: ...

class GroundRequest(_message.Message):
    __slots__ = ("model", "observation", "instruction")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    OBSERVATION_FIELD_NUMBER: _ClassVar[int]
    INSTRUCTION_FIELD_NUMBER: _ClassVar[int]
    model: str
    observation: _observation_pb2.Observation
    instruction: str
    def __init__(self, model: _Optional[str] = ..., observation: _Optional[_Union[_observation_pb2.Observation, _Mapping]] = ..., instruction: _Optional[str] = ...) -> None: ...

class GroundResponse(_message.Message):
    __slots__ = ("points", "boxes", "note", "input_tokens", "output_tokens")
    POINTS_FIELD_NUMBER: _ClassVar[int]
    BOXES_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    INPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    points: _containers.RepeatedCompositeFieldContainer[_grounding_pb2.GroundedPoint]
    boxes: _containers.RepeatedCompositeFieldContainer[_grounding_pb2.GroundedBox]
    note: str
    input_tokens: int
    output_tokens: int
    def __init__(self, points: _Optional[_Iterable[_Union[_grounding_pb2.GroundedPoint, _Mapping]]] = ..., boxes: _Optional[_Iterable[_Union[_grounding_pb2.GroundedBox, _Mapping]]] = ..., note: _Optional[str] = ..., input_tokens: _Optional[int] = ..., output_tokens: _Optional[int] = ...) -> None: ...
