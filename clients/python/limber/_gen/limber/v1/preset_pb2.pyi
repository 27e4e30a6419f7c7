from google.protobuf import struct_pb2 as _struct_pb2
from limber._gen.limber.v1 import preferences_pb2 as _preferences_pb2
from limber._gen.limber.v1 import registry_pb2 as _registry_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Preset(_message.Message):
    __slots__ = ("name", "version", "config", "updated_at")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    UPDATED_AT_FIELD_NUMBER: _ClassVar[int]
    name: str
    version: int
    config: PresetConfig
    updated_at: int
    def __init__(self, name: _Optional[str] = ..., version: _Optional[int] = ..., config: _Optional[_Union[PresetConfig, _Mapping]] = ..., updated_at: _Optional[int] = ...) -> None: ...

class PresetConfig(_message.Message):
    __slots__ = ("models", "preference", "provider", "seed", "metadata", "instruction", "action_space", "horizon", "temperature", "return_prediction", "fps", "resolution", "num_samples", "embodiment")
    MODELS_FIELD_NUMBER: _ClassVar[int]
    PREFERENCE_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    INSTRUCTION_FIELD_NUMBER: _ClassVar[int]
    ACTION_SPACE_FIELD_NUMBER: _ClassVar[int]
    HORIZON_FIELD_NUMBER: _ClassVar[int]
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    RETURN_PREDICTION_FIELD_NUMBER: _ClassVar[int]
    FPS_FIELD_NUMBER: _ClassVar[int]
    RESOLUTION_FIELD_NUMBER: _ClassVar[int]
    NUM_SAMPLES_FIELD_NUMBER: _ClassVar[int]
    EMBODIMENT_FIELD_NUMBER: _ClassVar[int]
    models: _containers.RepeatedScalarFieldContainer[str]
    preference: _preferences_pb2.Preference
    provider: _preferences_pb2.ProviderPreferences
    seed: float
    metadata: _struct_pb2.Struct
    instruction: str
    action_space: str
    horizon: int
    temperature: float
    return_prediction: bool
    fps: float
    resolution: str
    num_samples: int
    embodiment: _registry_pb2.Embodiment
    def __init__(self, models: _Optional[_Iterable[str]] = ..., preference: _Optional[_Union[_preferences_pb2.Preference, str]] = ..., provider: _Optional[_Union[_preferences_pb2.ProviderPreferences, _Mapping]] = ..., seed: _Optional[float] = ..., metadata: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., instruction: _Optional[str] = ..., action_space: _Optional[str] = ..., horizon: _Optional[int] = ..., temperature: _Optional[float] = ..., return_prediction: _Optional[bool] = ..., fps: _Optional[float] = ..., resolution: _Optional[str] = ..., num_samples: _Optional[int] = ..., embodiment: _Optional[_Union[_registry_pb2.Embodiment, str]] = ...) -> None: ...
