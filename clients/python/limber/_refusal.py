"""What every exception of this package is, and the families of what a gateway refuses."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


class LimberError(Exception):
    """Whatever goes wrong in this package. Its text is one sentence that says what to do."""


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
    """An offering that is not in a plan, and why."""

    offering_id: str
    model: str
    provider: str
    #: The constraint that dropped it, such as `max_latency_ms`.
    reason: str
    #: The figures of it, such as `p95 412 ms > 200 ms`.
    detail: str


@dataclass(frozen=True)
class Violation:
    """One field at fault."""

    #: Its path, such as `observations.0.proprio.2`.
    path: str
    message: str
    #: The rule that it breaks.
    type: str


@dataclass(frozen=True)
class Details:
    """What a program can act on in a refusal; each refusal has what is of its kind."""

    suggestions: tuple[Suggestion, ...] = ()
    dropped: tuple[Dropped, ...] = ()
    violations: tuple[Violation, ...] = ()
    #: Names near the one that was not found.
    near: tuple[str, ...] = ()
    #: What had been needed, such as an action space that the model emits.
    needed: tuple[str, ...] = ()
    #: What would be needed and what is there, in US dollars; None where it is not about money.
    required_usd: float | None = None
    available_usd: float | None = None
    #: Further details by their names in `error.proto`.
    more: dict[str, object] = field(default_factory=dict)


class Refused(LimberError):
    """The gateway said no. There is a class for each reason; `code` is its word."""

    code: ClassVar[str] = ""
    #: The HTTP status of the same refusal over REST.
    status: ClassVar[int] = 500
    #: The same call may succeed later without a change.
    retryable: ClassVar[bool] = False

    def __init__(
        self,
        message: str,
        *,
        details: Details | None = None,
        retry_after_s: float | None = None,
        request_id: str = "",
        unknown_code: str = "",
    ) -> None:
        self.message = message
        self.details = details or Details()
        #: Seconds to wait before the same call is tried again; None where the gateway did not say.
        self.retry_after_s = retry_after_s
        #: Finds the call in the gateway's log.
        self.request_id = request_id
        #: The word of a reason that this version of the package does not know.
        self.unknown_code = unknown_code
        super().__init__(message)

    @property
    def suggestions(self) -> tuple[Suggestion, ...]:
        """Relaxations that would admit an offering; with 409 `no_route_available`."""
        return self.details.suggestions

    def __str__(self) -> str:
        parts = [f"{self.code or self.unknown_code}: {self.message}"]
        parts += map(str, self.details.suggestions)
        if self.details.near:
            parts.append(f"did you mean {', '.join(self.details.near)}?")
        return "; ".join(parts)


class ValidationError(Refused):
    """The request is not what the schema takes."""


class AuthenticationError(Refused):
    """There is no key, or it is not good."""


class PermissionRefused(Refused):
    """The key may not do this."""


class BillingError(Refused):
    """It cannot be paid for."""


class NotFoundError(Refused):
    """What is named does not exist here."""


class RoutingError(Refused):
    """Nothing can serve the request as it is constrained."""


class ConflictError(Refused):
    """It does not go together with what stands."""


class RateLimitError(Refused):
    """More than the key may do in a while."""


class UpstreamError(Refused):
    """Providers failed."""


class OutOfTime(Refused):
    """Time ran out."""


class ServerError(Refused):
    """The gateway cannot at the moment."""


class Unspecified(Refused):
    """A family that this version of the package does not know."""
