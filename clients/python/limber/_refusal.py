"""The base class of this package's exceptions, and the families of the gateway's refusals."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


class LimberError(Exception):
    """Base class of all exceptions of this package. The message is one sentence that states the problem and the remedy."""


@dataclass(frozen=True)
class Suggestion:
    """A relaxation of the request that would admit offerings. The gateway never applies it by itself."""

    #: Path of the field to relax, such as `provider.max_latency_ms`.
    field: str
    #: The value that would admit offerings; None if the field must be removed.
    value: float | None
    #: How many offerings it would admit.
    admits: int
    #: What to change, if a field and a number cannot express it, such as `add the picture of agentview`.
    change: str = ""

    def __str__(self) -> str:
        change = self.change or (f"remove {self.field}" if self.value is None else f"set {self.field} to {self.value:g}")
        return f"{change} to admit {self.admits} offering{'' if self.admits == 1 else 's'}"


@dataclass(frozen=True)
class Dropped:
    """An offering that was excluded from a plan, and why."""

    offering_id: str
    model: str
    provider: str
    #: The constraint that dropped it, such as `max_latency_ms`.
    reason: str
    #: The measured value and the limit, such as `p95 412 ms > 200 ms`.
    detail: str


@dataclass(frozen=True)
class Violation:
    """An invalid field."""

    #: Its path, such as `observations.0.proprio.2`.
    path: str
    message: str
    #: The violated rule.
    type: str


@dataclass(frozen=True)
class Details:
    """Structured details of a refusal. Only the fields that apply to its reason are set."""

    suggestions: tuple[Suggestion, ...] = ()
    dropped: tuple[Dropped, ...] = ()
    violations: tuple[Violation, ...] = ()
    #: Names similar to the one that was not found.
    near: tuple[str, ...] = ()
    #: What the request lacked, such as an action space that the model emits.
    needed: tuple[str, ...] = ()
    #: The required and the available amount, in US dollars; None if the refusal is not about money.
    required_usd: float | None = None
    available_usd: float | None = None
    #: Other details by their names in `error.proto`.
    more: dict[str, object] = field(default_factory=dict)


class Refused(LimberError):
    """The gateway refused the call. Each reason has its own class; `code` is the reason's word."""

    code: ClassVar[str] = ""
    #: The HTTP status of the same refusal over REST.
    status: ClassVar[int] = 500
    #: True if the same call can succeed later without a change.
    retryable: ClassVar[bool] = False

    def __init__(
        self,
        message: str,
        *,
        details: Details | None = None,
        retry_after_s: float | None = None,
        request_id: str = "",
        unknown_code: str = "",
        sent_to: str = "",
    ) -> None:
        self.message = message
        self.details = details or Details()
        #: Seconds to wait before a retry; None if the gateway gave no value.
        self.retry_after_s = retry_after_s
        #: The request id, which the gateway's log also contains.
        self.request_id = request_id
        #: The word of a reason that this package version does not know.
        self.unknown_code = unknown_code
        #: The call and the address that refused a key, such as `act at http://…`; empty for other refusals.
        self.sent_to = sent_to
        super().__init__(message)

    @property
    def suggestions(self) -> tuple[Suggestion, ...]:
        """Relaxations that would admit an offering. Set for 409 `no_route_available`."""
        return self.details.suggestions

    def __str__(self) -> str:
        note = f" ({self.sent_to})" if self.sent_to else ""
        parts = [f"{self.code or self.unknown_code}: {self.message}{note}"]
        parts += map(str, self.details.suggestions)
        if self.details.near:
            parts.append(f"did you mean {', '.join(self.details.near)}?")
        return "; ".join(parts)


class ValidationError(Refused):
    """The request does not match the schema."""


class AuthenticationError(Refused):
    """The key is missing or invalid."""


class PermissionRefused(Refused):
    """The key does not permit this operation."""


class BillingError(Refused):
    """The call cannot be paid for."""


class NotFoundError(Refused):
    """The resource does not exist."""


class RoutingError(Refused):
    """No offering satisfies the request's constraints."""


class ConflictError(Refused):
    """The request conflicts with the current state."""


class RateLimitError(Refused):
    """The key exceeded its rate limit."""


class UpstreamError(Refused):
    """The providers failed."""


class OutOfTime(Refused):
    """The deadline passed."""


class ServerError(Refused):
    """The gateway is currently unable to serve the call."""


class Unspecified(Refused):
    """The refusal belongs to a family that this package version does not know."""
