// The decision logic of a control loop, as a state machine of events and time; the counterpart of clients/python/limber/core.py. It has no clock,
// no threads and no network, and allocates nothing. clients/conformance has the rules and the recorded traces that verify it.
//
// All times are in milliseconds of the robot's monotonic clock. Not thread-safe.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>

namespace limber {

// Why a robot must hold. The gateway's own reasons have the same words as on REST.
enum class Hold : std::uint8_t {
  kNone,
  kConnecting,
  kNoChunk,
  kExpired,
  kDisconnected,
  kLate,
  kUpstreamFailed,
  kNoProvider,
  kOutOfBounds,
  kInvalidObservation,
  kStaleObservation,
  kSlowReader,
  kNotRecorded,
  kRateLimited,
  kObservationRejected,
  kClock,
  kInterrupted,
  kClosed,
  // The gateway ended the loop with a refusal. The caller of the core knows the code.
  kRefused,
  // The loop ended by an error that is not a refusal. The exception has the details.
  kFailed,
  // A run ended: its time is up, or the robot is done.
  kOver,
  kDone,
  // A reason that this version does not know.
  kUnknown,
};

// How a chunk or a hold was handled: taken, or why it is not used.
enum class Verdict : std::uint8_t { kTaken, kOver, kOtherEpisode, kUnknown, kOlder, kStale, kLate };

// The decision for one control step.
struct Decision {
  std::int64_t step = 0;
  std::uint32_t episode = 1;
  // True if this step's observation must be sent.
  bool send = false;
  // The chunk row to execute; -1 if the robot must hold.
  std::int32_t row = -1;
  // Why the robot must hold; kNone if it must not.
  Hold hold = Hold::kNone;
};

// The facts of a chunk that decisions depend on.
struct ChunkFacts {
  std::uint32_t episode = 1;
  std::int64_t start_step = 0;
  std::int64_t valid_until_step = 0;
  double dt_ms = 0;
  std::int32_t rows = 0;
  // Capture time of its observation.
  std::optional<double> observation_time;
};

// The decision logic of one robot's control loop.
class LoopCore {
 public:
  // `finish`: execute the remaining valid rows of a chunk after a hold for a missing chunk and after a lost connection.
  explicit LoopCore(double rate_hz, bool finish = false, std::uint32_t episode = 1) noexcept
      : period_ms_(1000.0 / rate_hz), finish_(finish), episode_(episode) {}

  // Returns the decision for a control step at the time `at`.
  Decision Tick(double at) noexcept {
    if (over_ == Hold::kNone && at < last_ - kBackMs) Stop(Hold::kClock);
    if (over_ != Hold::kNone) return {std::max<std::int64_t>(step_, 0), episode_, false, -1, over_};
    last_ = std::max(last_, at);
    if (!has_begun_) {
      has_begun_ = true;
      began_ = last_;
    }
    step_ = std::max(step_, StepAt(last_));
    const bool send = step_ > sent_;
    if (send) sent_ = step_;
    if (!has_) return {step_, episode_, send, -1, why_};
    const double dt = chunk_.dt_ms > 0 ? chunk_.dt_ms : period_ms_;
    const double row = std::floor(static_cast<double>(step_ - chunk_.start_step) * period_ms_ / dt + kEpsilon);
    if (step_ >= chunk_.valid_until_step || row >= chunk_.rows) {
      Drop(Hold::kExpired);
      return {step_, episode_, send, -1, Hold::kExpired};
    }
    return {step_, episode_, send, static_cast<std::int32_t>(row), Hold::kNone};
  }

  // Handles the gateway's confirmation that the loop is open.
  void Opened(double deadline_ms) noexcept {
    if (over_ != Hold::kNone) return;
    connected_ = true;
    deadline_ms_ = deadline_ms;
    if (!has_) why_ = Hold::kNoChunk;
  }

  // Handles a chunk.
  Verdict Chunk(double at, const ChunkFacts& chunk) noexcept {
    if (over_ != Hold::kNone) return Verdict::kOver;
    if (chunk.episode != episode_) return Verdict::kOtherEpisode;
    if (chunk.start_step > sent_) return Verdict::kUnknown;
    if (has_ && chunk.start_step < chunk_.start_step) return Verdict::kOlder;
    if (chunk.valid_until_step <= std::max(step_, StepAt(at))) {
      Soft(Hold::kLate);
      return Verdict::kStale;
    }
    if (chunk.observation_time && at - *chunk.observation_time > deadline_ms_) {
      Soft(Hold::kLate);
      return Verdict::kLate;
    }
    rejected_ = 0;
    has_ = true;
    chunk_ = chunk;
    return Verdict::kTaken;
  }

  // Handles a hold.
  Verdict TakeHold(std::uint32_t episode, std::int64_t step, Hold reason) noexcept {
    if (over_ != Hold::kNone) return Verdict::kOver;
    if (episode != episode_) return Verdict::kOtherEpisode;
    if (has_ && step < chunk_.start_step) return Verdict::kOlder;
    rejected_ = reason == Hold::kInvalidObservation ? rejected_ + 1 : 0;
    if (rejected_ >= kMostRejected) {
      Stop(Hold::kObservationRejected);
    } else if (IsSoft(reason)) {
      Soft(reason);
    } else {
      Drop(reason);
    }
    return Verdict::kTaken;
  }

  // Handles a broken connection.
  void Lost() noexcept {
    if (over_ != Hold::kNone) return;
    connected_ = false;
    Soft(Hold::kDisconnected);
  }

  // Handles the end of the loop by the gateway: kClosed if the robot requested it, kRefused otherwise.
  void Ended(Hold why) noexcept {
    if (over_ != Hold::kNone) return;
    connected_ = false;
    Drop(why);
  }

  // Begins a new episode and returns its number.
  std::uint32_t Reset() noexcept {
    episode_ += 1;
    step_ = sent_ = -1;
    has_begun_ = false;
    rejected_ = 0;
    Drop(connected_ ? Hold::kNoChunk : Hold::kConnecting);
    return episode_;
  }

  // Ends the loop: every decision from now on is a hold.
  void Stop(Hold why) noexcept {
    if (over_ != Hold::kNone) return;
    over_ = why;
    Drop(why);
  }

  std::uint32_t episode() const noexcept { return episode_; }
  Hold over() const noexcept { return over_; }

 private:
  // The loop ends if the clock goes back by more than this.
  static constexpr double kBackMs = 1;
  // Consecutive observations that the gateway cannot use before the loop ends.
  static constexpr int kMostRejected = 3;
  // Added to a quotient before rounding down.
  static constexpr double kEpsilon = 1e-9;

  // Holds because a chunk is missing. All other holds mean that executing the current chunk would be wrong.
  static constexpr bool IsSoft(Hold why) noexcept {
    switch (why) {
      case Hold::kLate:
      case Hold::kUpstreamFailed:
      case Hold::kNoProvider:
      case Hold::kSlowReader:
      case Hold::kNotRecorded:
      case Hold::kRateLimited:
      case Hold::kStaleObservation:
        return true;
      default:
        return false;
    }
  }

  std::int64_t StepAt(double at) const noexcept {
    if (!has_begun_) return step_;
    return static_cast<std::int64_t>(std::floor((at - began_) / period_ms_ + 0.5));
  }

  void Drop(Hold why) noexcept {
    has_ = false;
    why_ = why;
  }

  void Soft(Hold why) noexcept {
    if (!finish_ || !has_) Drop(why);
  }

  const double period_ms_;
  const bool finish_;
  std::uint32_t episode_;
  double deadline_ms_ = std::numeric_limits<double>::infinity();
  std::int64_t step_ = -1;
  std::int64_t sent_ = -1;
  Hold over_ = Hold::kNone;
  bool connected_ = false;
  int rejected_ = 0;
  // Refers to the episode's first control step.
  bool has_begun_ = false;
  double began_ = 0;
  double last_ = -std::numeric_limits<double>::infinity();
  Hold why_ = Hold::kConnecting;
  bool has_ = false;
  ChunkFacts chunk_;
};

// Returns the word of a reason, as in the traces and on REST.
constexpr std::string_view WordOf(Hold hold) noexcept {
  switch (hold) {
    case Hold::kNone: return "";
    case Hold::kConnecting: return "connecting";
    case Hold::kNoChunk: return "no_chunk";
    case Hold::kExpired: return "expired";
    case Hold::kDisconnected: return "disconnected";
    case Hold::kLate: return "late";
    case Hold::kUpstreamFailed: return "upstream_failed";
    case Hold::kNoProvider: return "no_provider";
    case Hold::kOutOfBounds: return "out_of_bounds";
    case Hold::kInvalidObservation: return "invalid_observation";
    case Hold::kStaleObservation: return "stale_observation";
    case Hold::kSlowReader: return "slow_reader";
    case Hold::kNotRecorded: return "not_recorded";
    case Hold::kRateLimited: return "rate_limited";
    case Hold::kObservationRejected: return "observation_rejected";
    case Hold::kClock: return "clock";
    case Hold::kInterrupted: return "interrupted";
    case Hold::kClosed: return "closed";
    case Hold::kRefused: return "refused";
    case Hold::kFailed: return "failed";
    case Hold::kOver: return "over";
    case Hold::kDone: return "done";
    case Hold::kUnknown: return "unknown";
  }
  return "unknown";
}

// Returns the reason of a word.
constexpr Hold HoldOf(std::string_view word) noexcept {
  for (int each = 0; each <= static_cast<int>(Hold::kUnknown); ++each) {
    if (WordOf(static_cast<Hold>(each)) == word) return static_cast<Hold>(each);
  }
  return Hold::kUnknown;
}

// Returns the word of a verdict, as in the traces.
constexpr std::string_view WordOf(Verdict verdict) noexcept {
  switch (verdict) {
    case Verdict::kTaken: return "taken";
    case Verdict::kOver: return "over";
    case Verdict::kOtherEpisode: return "other_episode";
    case Verdict::kUnknown: return "unknown";
    case Verdict::kOlder: return "older";
    case Verdict::kStale: return "stale";
    case Verdict::kLate: return "late";
  }
  return "";
}

}  // namespace limber
