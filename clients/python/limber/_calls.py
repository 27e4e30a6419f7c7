"""The gateway calls that this package uses, and their retry rules."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from urllib.parse import urlsplit

import grpc

from limber._gen.limber.v1 import (
    account_service_pb2 as account,
)
from limber._gen.limber.v1 import (
    evaluation_service_pb2 as evaluation,
)
from limber._gen.limber.v1 import (
    inference_service_pb2 as inference,
)
from limber._gen.limber.v1 import (
    publication_service_pb2 as publication,
)
from limber._gen.limber.v1 import (
    registry_service_pb2 as registry,
)
from limber._gen.limber.v1 import (
    robot_service_pb2 as robot,
)
from limber._gen.limber.v1 import (
    runner_service_pb2 as runner,
)
from limber._version import VERSION
from limber.errors import BadInput, ConnectionFailed, LimberError, Refused

Q = TypeVar("Q")
A = TypeVar("A")

#: Maximum message size in bytes, in both directions. An observation can contain 16 images.
MOST_BYTES = 64 * 1024 * 1024
#: Delays between attempts, in seconds. Each actual delay is a random value between half of it and all of it.
_WAITS = (0.05, 0.2, 0.8, 2.0)


@dataclass(frozen=True)
class Call(Generic[Q, A]):
    """One RPC."""

    service: str
    name: str
    request: type[Q]
    answer: type[A]
    #: True if a retry is safe: the call changes nothing, or an idempotency key deduplicates it.
    repeatable: bool = False
    #: True if the call accepts an idempotency key.
    idempotent: bool = False

    @property
    def path(self) -> str:
        return f"/limber.v1.{self.service}/{self.name}"


ACT = Call("InferenceService", "Act", inference.ActRequest, inference.ActResponse, repeatable=True, idempotent=True)
ACT_STREAM = Call("InferenceService", "ActStream", inference.ActStreamRequest, inference.ActStreamResponse)
PREDICT = Call(
    "InferenceService", "Predict", inference.PredictRequest, inference.PredictResponse, repeatable=True, idempotent=True
)
PREDICT_STREAM = Call(
    "InferenceService", "PredictStream", inference.PredictStreamRequest, inference.PredictStreamResponse
)
GROUND = Call(
    "InferenceService", "Ground", inference.GroundRequest, inference.GroundResponse, repeatable=True, idempotent=True
)
PREVIEW = Call(
    "InferenceService", "PreviewRoutes", inference.PreviewRoutesRequest, inference.PreviewRoutesResponse, repeatable=True
)
EVALUATE = Call(
    "EvaluationService", "Evaluate", evaluation.EvaluateRequest, evaluation.EvaluateResponse, repeatable=True
)
GET_EVALUATION = Call(
    "EvaluationService", "GetEvaluation", evaluation.GetEvaluationRequest, evaluation.GetEvaluationResponse, repeatable=True
)
CANCEL_EVALUATION = Call(
    "EvaluationService", "CancelEvaluation", evaluation.CancelEvaluationRequest, evaluation.CancelEvaluationResponse, repeatable=True
)
WATCH_EVALUATION = Call(
    "EvaluationService", "WatchEvaluation", evaluation.WatchEvaluationRequest, evaluation.WatchEvaluationResponse
)
# Publishing or withdrawing again returns the same publication.
CREATE_PUBLICATION = Call(
    "PublicationService", "CreatePublication", publication.CreatePublicationRequest, publication.CreatePublicationResponse, repeatable=True
)
LIST_PUBLICATIONS = Call(
    "PublicationService", "ListPublications", publication.ListPublicationsRequest, publication.ListPublicationsResponse, repeatable=True
)
GET_PUBLICATION = Call(
    "PublicationService", "GetPublication", publication.GetPublicationRequest, publication.GetPublicationResponse, repeatable=True
)
WITHDRAW_PUBLICATION = Call(
    "PublicationService", "WithdrawPublication", publication.WithdrawPublicationRequest, publication.WithdrawPublicationResponse, repeatable=True
)
GET_LEADERBOARD = Call(
    "PublicationService", "GetLeaderboard", publication.GetLeaderboardRequest, publication.GetLeaderboardResponse, repeatable=True
)
LIST_MODELS = Call("RegistryService", "ListModels", registry.ListModelsRequest, registry.ListModelsResponse, repeatable=True)
GET_MODEL = Call("RegistryService", "GetModel", registry.GetModelRequest, registry.GetModelResponse, repeatable=True)
# Repeating a stop returns the active stop, so an emergency stop is retried until it arrives.
STOP_ROBOTS = Call("RobotService", "StopRobots", robot.StopRobotsRequest, robot.StopRobotsResponse, repeatable=True)
RELEASE_ROBOTS = Call("RobotService", "ReleaseRobots", robot.ReleaseRobotsRequest, robot.ReleaseRobotsResponse)
LIST_STOPS = Call("RobotService", "ListRobotStops", robot.ListRobotStopsRequest, robot.ListRobotStopsResponse, repeatable=True)
LIST_USAGE = Call("AccountService", "ListUsage", account.ListUsageRequest, account.ListUsageResponse, repeatable=True)
GET_KEY = Call("AccountService", "GetKey", account.GetKeyRequest, account.GetKeyResponse, repeatable=True)
CLAIM_EVALUATION = Call("RunnerService", "ClaimEvaluation", runner.ClaimEvaluationRequest, runner.ClaimEvaluationResponse)
RENEW_CLAIM = Call("RunnerService", "RenewClaim", runner.RenewClaimRequest, runner.RenewClaimResponse, repeatable=True)
# An episode that is reported twice is billed once.
REPORT_EPISODE = Call(
    "RunnerService", "ReportEpisode", runner.ReportEpisodeRequest, runner.ReportEpisodeResponse, repeatable=True
)
FINISH_EVALUATION = Call("RunnerService", "FinishEvaluation", runner.FinishEvaluationRequest, runner.FinishEvaluationResponse)


@dataclass(frozen=True)
class Address:
    """The address of a gateway."""

    url: str
    target: str
    tls: bool


def addresses(url: str | Sequence[str]) -> tuple[Address, ...]:
    """Parses the addresses of a gateway's replicas, in the order of attempts. Raises `BadInput` for an invalid address."""
    urls = [url] if isinstance(url, str) else list(url)
    if not urls:
        raise BadInput("url is empty; pass a gateway address such as http://127.0.0.1:8080")
    found = []
    for each in urls:
        if not isinstance(each, str):
            raise BadInput(f"url must be a string such as http://127.0.0.1:8080, got {type(each).__name__}")
        try:
            parts = urlsplit(each)
            port = parts.port
        except ValueError as error:
            raise BadInput(f"url {each!r} is invalid: {error}") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadInput(f"url {each!r} is not a gateway address; pass one such as http://127.0.0.1:8080")
        if parts.path not in ("", "/") or parts.query:
            raise BadInput(f"url {each!r} has a path; remove it, gRPC accepts only the host and port")
        tls = parts.scheme == "https"
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        found.append(Address(each, f"{host}:{port or (443 if tls else 80)}", tls))
    return tuple(found)


def check_key(key: str) -> str:
    """Returns the key. Raises `BadInput` if it is empty or contains an invalid character."""
    if not isinstance(key, str) or key == "":
        raise BadInput("key is empty; pass the gateway's key (lmb_sk_…) or set LIMBER_KEY")
    if not key.isascii() or not key.isprintable() or " " in key:
        raise BadInput("key contains an invalid character; check for a space or a line break at its end")
    return key


def channel_options() -> list[tuple[str, Any]]:
    """Channel options: keep-alive detects a dead connection within seconds, and channels do not share connections."""
    return [
        ("grpc.max_send_message_length", MOST_BYTES),
        ("grpc.max_receive_message_length", MOST_BYTES),
        ("grpc.keepalive_time_ms", 20_000),
        ("grpc.keepalive_timeout_ms", 5_000),
        ("grpc.primary_user_agent", f"limber-python/{VERSION}"),
        # Retries are made here, because gRPC does not know which calls are safe to repeat.
        ("grpc.enable_retries", 0),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 1_000),
    ]


def credentials() -> grpc.ChannelCredentials:
    return grpc.ssl_channel_credentials()


def wait_before(attempts: int, error: LimberError, call: Call[Any, Any], retries: int) -> float | None:
    """Returns the seconds to wait before the next attempt, after `attempts` attempts. Returns None if the call must not be retried."""
    if attempts > retries or not call.repeatable:
        return None
    if isinstance(error, Refused):
        if not error.retryable:
            return None
        if error.retry_after_s is not None:
            return error.retry_after_s
    elif not isinstance(error, ConnectionFailed):
        return None
    return _WAITS[min(attempts - 1, len(_WAITS) - 1)] * random.uniform(0.5, 1)


_ENUMS = {
    "sort": ("SortAxis", "SORT_AXIS_"),
    "data_collection": ("DataCollection", "DATA_COLLECTION_"),
    "trust": ("SupplyTrust", "SUPPLY_TRUST_"),
}


def enum_word(enum: Any, prefix: str, word: str, name: str) -> int:
    """Returns the number of an enum value by its word. Raises `BadInput` with the valid words otherwise."""
    try:
        return int(enum.Value(prefix + word.upper().replace("-", "_")))
    except (ValueError, AttributeError):
        words = [each.removeprefix(prefix).lower() for each in enum.keys() if not each.endswith("_UNSPECIFIED")]
        raise BadInput(f"{name} must be one of {', '.join(words)}, got {word!r}") from None


def preferences(provider: Mapping[str, Any] | None) -> Any:
    """Converts `provider` to a `ProviderPreferences` message. Its keys are the message's field names."""
    from limber._gen.limber.v1 import preferences_pb2

    message = preferences_pb2.ProviderPreferences()
    for name, value in (provider or {}).items():
        field = message.DESCRIPTOR.fields_by_name.get(name)
        if field is None:
            known = ", ".join(message.DESCRIPTOR.fields_by_name)
            raise BadInput(f"provider has no field {name!r}; its fields are {known}")
        if name in _ENUMS:
            enum, prefix = _ENUMS[name]
            value = enum_word(getattr(preferences_pb2, enum), prefix, value, f"provider.{name}")
        if name == "hedge" and isinstance(value, (int, float)):
            value = {"after_ms": int(value)}
        try:
            message.MergeFrom(preferences_pb2.ProviderPreferences(**{name: value}))
        except (TypeError, ValueError) as error:
            raise BadInput(f"provider.{name} is invalid: {error}, got {value!r}") from None
    return message
