"""The exceptions of this package.

`Refused` and its subclasses are the gateway's refusals. Each reason has its own class, such as `NoRouteAvailable`, and belongs to a family,
such as `RoutingError`. The other exceptions are client-side errors.
"""

from __future__ import annotations

import grpc

from limber import _reasons
from limber._gen.google.rpc import error_details_pb2, status_pb2
from limber._gen.limber.v1 import error_pb2, plan_pb2
from limber._reasons import *  # noqa: F403
from limber._reasons import BY_CODE
from limber._refusal import (
    AuthenticationError,
    BillingError,
    ConflictError,
    Details,
    Dropped,
    LimberError,
    NotFoundError,
    OutOfTime,
    PermissionRefused,
    RateLimitError,
    Refused,
    RoutingError,
    ServerError,
    Suggestion,
    UpstreamError,
    ValidationError,
    Violation,
)

__all__ = [
    "AuthenticationError",
    "BadInput",
    "BillingError",
    "CallbackHung",
    "ClockJumped",
    "ConflictError",
    "ConnectionFailed",
    "Details",
    "Dropped",
    "EvaluationFailed",
    "LimberError",
    "MalformedAnswer",
    "MissingPackage",
    "NotFoundError",
    "ObservationRejected",
    "OutOfTime",
    "PermissionRefused",
    "RateLimitError",
    "Refused",
    "RoutingError",
    "ServerError",
    "Suggestion",
    "UpstreamError",
    "ValidationError",
    "Violation",
    "of_rpc",
    *_reasons.__all__,
]


class BadInput(LimberError, ValueError):
    """An argument cannot be sent, such as an array of the wrong type, shape or axis order. Nothing was sent."""


class MissingPackage(LimberError, ImportError):
    """A feature needs a package that is not installed."""


class ConnectionFailed(LimberError, ConnectionError):
    """The gateway is unreachable, or the connection broke before the answer arrived."""


class MalformedAnswer(LimberError):
    """The server is not a gateway, or its answer is invalid. The answer is not executed."""


class CallbackHung(LimberError):
    """A loop callback did not return in time. Another thread has already told the robot to hold."""


class ClockJumped(LimberError):
    """The loop's clock went back or jumped. Observation ages are unknown, so the robot holds."""


class ObservationRejected(LimberError):
    """The gateway could not use several consecutive observations of the robot."""


class EvaluationFailed(LimberError):
    """An evaluation ended without a score."""


#: gRPC codes that mean a network error, not a gateway error.
_NETWORK = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)


def _plain(message: error_pb2.ErrorDetails) -> Details:
    reasons = plan_pb2.DropReason.DESCRIPTOR.values_by_number
    known = ("suggestions", "dropped", "violations", "near", "needed", "required_usd", "available_usd")
    return Details(
        suggestions=tuple(
            Suggestion(each.field, each.value if each.HasField("value") else None, each.admits, each.change)
            for each in message.suggestions
        ),
        dropped=tuple(
            Dropped(
                each.offering_id,
                each.model,
                each.provider,
                reasons[each.reason].name.removeprefix("DROP_REASON_").lower() if each.reason in reasons else "",
                each.detail,
            )
            for each in message.dropped
        ),
        violations=tuple(Violation(each.path, each.message, each.type) for each in message.violations),
        near=tuple(message.near),
        needed=tuple(message.needed),
        required_usd=message.required_usd if message.HasField("required_usd") else None,
        available_usd=message.available_usd if message.HasField("available_usd") else None,
        more={field.name: value for field, value in message.ListFields() if field.name not in known},
    )


def _details_of(error: grpc.RpcError) -> bytes | None:
    trailing = getattr(error, "trailing_metadata", None)
    for key, value in (trailing() if callable(trailing) else None) or ():
        if key == "grpc-status-details-bin" and isinstance(value, bytes):
            return value
    return None


def of_rpc(error: grpc.RpcError, doing: str) -> LimberError:
    """Converts a gRPC error to an exception. `doing` names the attempt, such as `act at http://…`."""
    code = error.code() if callable(getattr(error, "code", None)) else grpc.StatusCode.UNKNOWN
    text = (error.details() if callable(getattr(error, "details", None)) else "") or ""
    # A key of one gateway may have been sent to another.
    refused = _refused(_details_of(error), text, sent_to=doing if code == grpc.StatusCode.UNAUTHENTICATED else "")
    if refused is not None:
        return refused
    if code == grpc.StatusCode.DEADLINE_EXCEEDED:
        return ConnectionFailed(f"{doing}: no answer arrived in time; raise timeout_s or choose an offering nearby")
    if code in _NETWORK:
        return ConnectionFailed(f"{doing}: the gateway is unreachable ({text or code.name.lower()})")
    detail = f"{code.name.lower()}: {text}" if text else code.name.lower()
    return MalformedAnswer(f"{doing}: the server is not a Limber gateway, or has an incompatible version ({detail})")


def _refused(details: bytes | None, text: str, *, sent_to: str) -> Refused | None:
    if details is None:
        return None
    reason, request_id, retry_after = "", "", None
    more = Details()
    try:
        status = status_pb2.Status.FromString(details)
        for each in status.details:
            kind = each.type_url.rpartition("/")[2]
            if kind == "google.rpc.ErrorInfo":
                info = error_details_pb2.ErrorInfo.FromString(each.value)
                reason, request_id = info.reason, info.metadata.get("request_id", "")
            elif kind == "google.rpc.RetryInfo":
                delay = error_details_pb2.RetryInfo.FromString(each.value).retry_delay
                retry_after = delay.seconds + delay.nanos / 1e9
            elif kind == "limber.v1.ErrorDetails":
                more = _plain(error_pb2.ErrorDetails.FromString(each.value))
    except Exception:  # noqa: BLE001 - protobuf raises several types; unreadable details are ignored
        return None
    if reason == "":
        return None
    found = BY_CODE.get(reason, Refused)
    return found(
        status.message or text,
        details=more,
        retry_after_s=retry_after,
        request_id=request_id,
        unknown_code="" if reason in BY_CODE else reason,
        sent_to=sent_to,
    )
