// Shared by clients and loops: channels, metadata, and the conversion of messages.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "limber/client.hpp"
#include "limber/v1/client.grpc.pb.h"

namespace limber::internal {

// A failed call: its exception, and how to proceed.
struct Failure {
  enum class Kind { kConnection, kMalformed, kRefused };

  std::exception_ptr error;
  Kind kind = Kind::kConnection;
  // True for a refusal after which the same call can succeed later.
  bool retryable = false;
  std::optional<double> retry_after_s;
};

// Converts a gRPC status. `doing` names the attempt, such as `Act at http://…`.
Failure FailureOf(const grpc::Status& status, const std::string& doing);

class Connection {
 public:
  struct Address {
    std::string url;
    std::string target;
    bool tls = false;
  };

  Connection(const std::vector<std::string>& urls, std::string key, ClientOptions options);

  // Adds the metadata of every call.
  void Prepare(grpc::ClientContext& context, const std::string& idempotency_key = "") const;
  std::size_t current() const noexcept { return current_.load(); }
  // Switches to the replica after the one that failed.
  void Next(std::size_t failed) noexcept {
    std::size_t was = failed;
    current_.compare_exchange_strong(was, (failed + 1) % addresses_.size());
  }
  const Address& address(std::size_t at) const { return addresses_[at]; }
  const std::shared_ptr<grpc::Channel>& channel(std::size_t at) const { return channels_[at]; }
  std::size_t size() const noexcept { return addresses_.size(); }
  const ClientOptions& options() const noexcept { return options_; }

 private:
  std::vector<Address> addresses_;
  std::string key_;
  ClientOptions options_;
  std::vector<std::shared_ptr<grpc::Channel>> channels_;
  std::atomic<std::size_t> current_{0};
};

// Throws BadInput for an observation that cannot be sent. Allocates only then.
void Check(const Observation& seen);
// Fills a message and reuses its memory.
void Fill(const Observation& seen, v1::Observation& into);
void Fill(const Provider& given, v1::ProviderPreferences& into);
Route RouteOf(const v1::Route& route);
// Writes the rows of a chunk into `values` in row-major order. Throws MalformedAnswer.
void Flatten(const v1::Action& action, std::vector<double>& values, std::size_t& rows, std::size_t& dimensions);
// Returns 128 random bits in hexadecimal.
std::string Unique();
// Throws BadInput if a required name is empty or too long.
void CheckName(const std::string& value, const char* name, std::size_t most);

}  // namespace limber::internal
