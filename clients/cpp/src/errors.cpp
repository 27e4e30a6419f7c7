#include "limber/errors.hpp"

#include <cmath>
#include <sstream>

#include "connection.hpp"
#include "reasons.hpp"

namespace limber {

namespace {

std::string Sentence(const Refusal& refusal) {
  std::ostringstream out;
  out << refusal.code << ": " << refusal.message;
  for (const Suggestion& each : refusal.details.suggestions) {
    out << "; ";
    if (!each.change.empty()) {
      out << each.change;
    } else if (each.value) {
      out << "set " << each.field << " to " << *each.value;
    } else {
      out << "remove " << each.field;
    }
    out << " to admit " << each.admits << (each.admits == 1 ? " offering" : " offerings");
  }
  const char* before = "; did you mean ";
  for (const std::string& each : refusal.details.near) {
    out << before << each;
    before = ", ";
  }
  if (!refusal.details.near.empty()) out << "?";
  return out.str();
}

}  // namespace

Refused::Refused(Refusal refusal) : Error(Sentence(refusal)), refusal_(std::move(refusal)) {}

namespace internal {

namespace {

std::exception_ptr Exception(Family family, Refusal refusal) {
  switch (family) {
    case Family::kAuthentication: return std::make_exception_ptr(AuthenticationError(std::move(refusal)));
    case Family::kPermission: return std::make_exception_ptr(PermissionRefused(std::move(refusal)));
    case Family::kBilling: return std::make_exception_ptr(BillingError(std::move(refusal)));
    case Family::kRateLimit: return std::make_exception_ptr(RateLimitError(std::move(refusal)));
    case Family::kValidation: return std::make_exception_ptr(ValidationError(std::move(refusal)));
    case Family::kNotFound: return std::make_exception_ptr(NotFoundError(std::move(refusal)));
    case Family::kConflict: return std::make_exception_ptr(ConflictError(std::move(refusal)));
    case Family::kRouting: return std::make_exception_ptr(RoutingError(std::move(refusal)));
    case Family::kUpstream: return std::make_exception_ptr(UpstreamError(std::move(refusal)));
    case Family::kTimeout: return std::make_exception_ptr(OutOfTime(std::move(refusal)));
    case Family::kServer: return std::make_exception_ptr(ServerError(std::move(refusal)));
    case Family::kUnspecified: break;
  }
  // A reason that this version does not know.
  return std::make_exception_ptr(Refused(std::move(refusal)));
}

Details DetailsOf(const v1::ErrorDetails& message) {
  Details details;
  for (const auto& each : message.suggestions()) {
    details.suggestions.push_back({each.field(), each.has_value() ? std::optional(each.value()) : std::nullopt, each.admits(), each.change()});
  }
  for (const auto& each : message.dropped()) details.dropped.push_back({each.offering_id(), each.model(), each.provider(), each.detail()});
  for (const auto& each : message.violations()) details.violations.push_back({each.path(), each.message(), each.type()});
  details.near.assign(message.near().begin(), message.near().end());
  details.needed.assign(message.needed().begin(), message.needed().end());
  if (message.has_required_usd()) details.required_usd = message.required_usd();
  if (message.has_available_usd()) details.available_usd = message.available_usd();
  return details;
}

std::optional<Failure> RefusedBy(const grpc::Status& status) {
  v1::RpcStatus parsed;
  if (status.error_details().empty() || !parsed.ParseFromString(status.error_details())) return std::nullopt;
  Refusal refusal;
  for (const auto& each : parsed.details()) {
    const std::string kind = each.type_url().substr(each.type_url().rfind('/') + 1);
    if (kind == "google.rpc.ErrorInfo") {
      v1::RpcErrorInfo info;
      if (!info.ParseFromString(each.value())) return std::nullopt;
      refusal.code = info.reason();
      const auto id = info.metadata().find("request_id");
      if (id != info.metadata().end()) refusal.request_id = id->second;
    } else if (kind == "google.rpc.RetryInfo") {
      v1::RpcRetryInfo retry;
      if (!retry.ParseFromString(each.value())) return std::nullopt;
      refusal.retry_after_s = static_cast<double>(retry.retry_delay().seconds()) + retry.retry_delay().nanos() / 1e9;
    } else if (kind == "limber.v1.ErrorDetails") {
      v1::ErrorDetails details;
      if (!details.ParseFromString(each.value())) return std::nullopt;
      refusal.details = DetailsOf(details);
    }
  }
  if (refusal.code.empty()) return std::nullopt;
  refusal.message = parsed.message().empty() ? status.error_message() : parsed.message();
  Family family = Family::kUnspecified;
  for (const ReasonFacts& each : kReasons) {
    if (each.code != refusal.code) continue;
    family = each.family;
    refusal.status = each.status;
    refusal.retryable = each.retryable;
  }
  Failure failure;
  failure.kind = Failure::Kind::kRefused;
  failure.retryable = refusal.retryable;
  failure.retry_after_s = refusal.retry_after_s;
  failure.error = Exception(family, std::move(refusal));
  return failure;
}

const char* WordOf(grpc::StatusCode code) {
  switch (code) {
    case grpc::StatusCode::UNIMPLEMENTED: return "unimplemented";
    case grpc::StatusCode::INTERNAL: return "internal";
    case grpc::StatusCode::UNKNOWN: return "unknown";
    case grpc::StatusCode::UNAUTHENTICATED: return "unauthenticated";
    case grpc::StatusCode::PERMISSION_DENIED: return "permission denied";
    case grpc::StatusCode::RESOURCE_EXHAUSTED: return "resource exhausted";
    default: return "error";
  }
}

}  // namespace

Failure FailureOf(const grpc::Status& status, const std::string& doing) {
  if (std::optional<Failure> refused = RefusedBy(status)) return *std::move(refused);
  Failure failure;
  switch (status.error_code()) {
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      failure.error = std::make_exception_ptr(
          ConnectionFailed(doing + ": no answer arrived in time; raise timeout_s or choose an offering nearby"));
      return failure;
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::CANCELLED:
      failure.error = std::make_exception_ptr(ConnectionFailed(doing + ": the gateway is unreachable (" + status.error_message() + ")"));
      return failure;
    default:
      failure.kind = Failure::Kind::kMalformed;
      failure.error = std::make_exception_ptr(MalformedAnswer(doing + ": the server is not a Limber gateway, or has an incompatible version (" +
                                                              WordOf(status.error_code()) + ": " + status.error_message() + ")"));
      return failure;
  }
}

}  // namespace internal
}  // namespace limber
