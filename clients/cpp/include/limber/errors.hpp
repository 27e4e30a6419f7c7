// Every exception of this library. `Refused` and the classes below it are what a gateway says: one class for each family of reasons, with the word
// of the reason in `code`. The others are what goes wrong on this side.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace limber {

// What goes wrong in this library. `what()` is one sentence that says what to do.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// An argument cannot be sent: a number that is not finite, a picture that is none, too much of something. Nothing was sent.
class BadInput : public Error {
 public:
  using Error::Error;
};

// The gateway cannot be reached, or the connection broke before the answer was there.
class ConnectionFailed : public Error {
 public:
  using Error::Error;
};

// What answered is no gateway, or sent what no gateway sends. Nothing of it is executed.
class MalformedAnswer : public Error {
 public:
  using Error::Error;
};

// The clock that the loop reads went back, or is none: ages cannot be told any more, so the robot holds.
class ClockJumped : public Error {
 public:
  using Error::Error;
};

// The gateway cannot use the robot's observations, several times in a row.
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

// An offering that is not in a plan, and why.
struct Dropped {
  std::string offering_id;
  std::string model;
  std::string provider;
  // The figures of it, such as `p95 412 ms > 200 ms`.
  std::string detail;
};

// One field at fault.
struct Violation {
  // Its path, such as `observations.0.proprio.2`.
  std::string path;
  std::string message;
  // The rule that it breaks.
  std::string type;
};

// What a program can act on in a refusal; each refusal has what is of its kind.
struct Details {
  std::vector<Suggestion> suggestions;
  std::vector<Dropped> dropped;
  std::vector<Violation> violations;
  // Names near the one that was not found.
  std::vector<std::string> near;
  // What had been needed, such as an action space that the model emits.
  std::vector<std::string> needed;
  // What would be needed and what is there, in US dollars; absent where it is not about money.
  std::optional<double> required_usd;
  std::optional<double> available_usd;
};

// What the gateway said of a refusal.
struct Refusal {
  // The word of the reason, such as `no_route_available`; docs/errors of the gateway has all of them.
  std::string code;
  // The gateway's own sentence.
  std::string message;
  // The HTTP status of the same refusal over REST.
  int status = 500;
  // The same call may succeed later without a change.
  bool retryable = false;
  // Seconds to wait before the same call is tried again; absent where the gateway did not say.
  std::optional<double> retry_after_s;
  // Finds the call in the gateway's log.
  std::string request_id;
  Details details;
};

// The gateway said no.
class Refused : public Error {
 public:
  explicit Refused(Refusal refusal);

  const Refusal& refusal() const noexcept { return refusal_; }
  const std::string& code() const noexcept { return refusal_.code; }
  // Relaxations that would admit an offering; with `no_route_available`.
  const std::vector<Suggestion>& suggestions() const noexcept { return refusal_.details.suggestions; }

 private:
  Refusal refusal_;
};

// The request is not what the schema takes.
class ValidationError : public Refused {
 public:
  using Refused::Refused;
};

// There is no key, or it is not good.
class AuthenticationError : public Refused {
 public:
  using Refused::Refused;
};

// The key may not do this.
class PermissionRefused : public Refused {
 public:
  using Refused::Refused;
};

// It cannot be paid for.
class BillingError : public Refused {
 public:
  using Refused::Refused;
};

// What is named does not exist here.
class NotFoundError : public Refused {
 public:
  using Refused::Refused;
};

// Nothing can serve the request as it is constrained.
class RoutingError : public Refused {
 public:
  using Refused::Refused;
};

// It does not go together with what stands.
class ConflictError : public Refused {
 public:
  using Refused::Refused;
};

// More than the key may do in a while.
class RateLimitError : public Refused {
 public:
  using Refused::Refused;
};

// Providers failed.
class UpstreamError : public Refused {
 public:
  using Refused::Refused;
};

// Time ran out.
class OutOfTime : public Refused {
 public:
  using Refused::Refused;
};

// The gateway cannot at the moment.
class ServerError : public Refused {
 public:
  using Refused::Refused;
};

}  // namespace limber
