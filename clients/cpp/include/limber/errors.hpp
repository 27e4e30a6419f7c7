// The exceptions of this library. `Refused` and its subclasses are the gateway's refusals: one class for each family of reasons, with the reason's
// word in `code`. The other exceptions are client-side errors.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace limber {

// Base class of all exceptions. `what()` is one sentence that states the problem and the remedy.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// An argument cannot be sent, such as a number that is not finite, an invalid image, or too many entries. Nothing was sent.
class BadInput : public Error {
 public:
  using Error::Error;
};

// The gateway is unreachable, or the connection broke before the answer arrived.
class ConnectionFailed : public Error {
 public:
  using Error::Error;
};

// The server is not a gateway, or its answer is invalid. The answer is not executed.
class MalformedAnswer : public Error {
 public:
  using Error::Error;
};

// The loop's clock went back or returned no valid time. Observation ages are unknown, so the robot holds.
class ClockJumped : public Error {
 public:
  using Error::Error;
};

// The gateway could not use several consecutive observations of the robot.
class ObservationRejected : public Error {
 public:
  using Error::Error;
};

// A relaxation of the request that would admit offerings. The gateway never applies it by itself.
struct Suggestion {
  // Path of the field to relax, such as `provider.max_latency_ms`.
  std::string field;
  // The value that would admit offerings; absent if the field must be removed.
  std::optional<double> value;
  // How many offerings it would admit.
  std::uint32_t admits = 0;
  // What to change, if a field and a number cannot express it, such as `add the picture of agentview`; else empty.
  std::string change;
};

// An offering that was excluded from a plan, and why.
struct Dropped {
  std::string offering_id;
  std::string model;
  std::string provider;
  // The measured value and the limit, such as `p95 412 ms > 200 ms`.
  std::string detail;
};

// An invalid field.
struct Violation {
  // Its path, such as `observations.0.proprio.2`.
  std::string path;
  std::string message;
  // The violated rule.
  std::string type;
};

// Structured details of a refusal. Only the fields that apply to its reason are set.
struct Details {
  std::vector<Suggestion> suggestions;
  std::vector<Dropped> dropped;
  std::vector<Violation> violations;
  // Names similar to the one that was not found.
  std::vector<std::string> near;
  // What the request lacked, such as an action space that the model emits.
  std::vector<std::string> needed;
  // The required and the available amount, in US dollars; absent if the refusal is not about money.
  std::optional<double> required_usd;
  std::optional<double> available_usd;
};

// The gateway's refusal.
struct Refusal {
  // The word of the reason, such as `no_route_available`; the gateway's docs/errors lists all of them.
  std::string code;
  // The gateway's message.
  std::string message;
  // The HTTP status of the same refusal over REST.
  int status = 500;
  // True if the same call can succeed later without a change.
  bool retryable = false;
  // Seconds to wait before a retry; absent if the gateway gave no value.
  std::optional<double> retry_after_s;
  // The request id, which the gateway's log also contains.
  std::string request_id;
  Details details;
};

// The gateway refused the call.
class Refused : public Error {
 public:
  explicit Refused(Refusal refusal);

  const Refusal& refusal() const noexcept { return refusal_; }
  const std::string& code() const noexcept { return refusal_.code; }
  // Relaxations that would admit an offering. Set for `no_route_available`.
  const std::vector<Suggestion>& suggestions() const noexcept { return refusal_.details.suggestions; }

 private:
  Refusal refusal_;
};

// The request does not match the schema.
class ValidationError : public Refused {
 public:
  using Refused::Refused;
};

// The key is missing or invalid.
class AuthenticationError : public Refused {
 public:
  using Refused::Refused;
};

// The key does not permit this operation.
class PermissionRefused : public Refused {
 public:
  using Refused::Refused;
};

// The call cannot be paid for.
class BillingError : public Refused {
 public:
  using Refused::Refused;
};

// The resource does not exist.
class NotFoundError : public Refused {
 public:
  using Refused::Refused;
};

// No offering satisfies the request's constraints.
class RoutingError : public Refused {
 public:
  using Refused::Refused;
};

// The request conflicts with the current state.
class ConflictError : public Refused {
 public:
  using Refused::Refused;
};

// The key exceeded its rate limit.
class RateLimitError : public Refused {
 public:
  using Refused::Refused;
};

// The providers failed.
class UpstreamError : public Refused {
 public:
  using Refused::Refused;
};

// The deadline passed.
class OutOfTime : public Refused {
 public:
  using Refused::Refused;
};

// The gateway is currently unable to serve the call.
class ServerError : public Refused {
 public:
  using Refused::Refused;
};

}  // namespace limber
