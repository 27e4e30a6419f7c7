from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class ActUsage(_message.Message):
    __slots__ = ("action_steps", "gpu_seconds", "cost_usd")
    ACTION_STEPS_FIELD_NUMBER: _ClassVar[int]
    GPU_SECONDS_FIELD_NUMBER: _ClassVar[int]
    COST_USD_FIELD_NUMBER: _ClassVar[int]
    action_steps: int
    gpu_seconds: float
    cost_usd: float
    def __init__(self, action_steps: _Optional[int] = ..., gpu_seconds: _Optional[float] = ..., cost_usd: _Optional[float] = ...) -> None: ...
