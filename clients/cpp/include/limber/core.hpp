// What a robot does at each control step, as a machine of events and time: the twin of clients/python/limber/core.py. It has no clock, no threads
// and no network, and allocates nothing. clients/conformance holds it to recorded traces, and has the rules.
//
// All times are milliseconds of one steady clock, the robot's. An object is used by one thread at a time.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>

namespace limber {

// Why a robot is to hold. The gateway's own reasons have the words of REST.
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
  // The gateway ended the loop with a refusal; who carries the loop knows its code.
  kRefused,
  // The loop is over by a fault that is no refusal: its exception says which.
  kFailed,
  // A run is over: its time is, or the robot has nothing more to do.
  kOver,
  kDone,
  // A reason that this version does not know.
  kUnknown,
};

// Whether a chunk or a hold was taken, or why it was not.
enum class Verdict : std::uint8_t { kTaken, kOver, kOtherEpisode, kUnknown, kOlder, kStale, kLate };

// What to do at one control step.
struct Decision {
  std::int64_t step = 0;
  std::uint32_t episode = 1;
  // The observation of this step is to be sent.
  bool send = false;
  // The row of the chunk that is due; -1 where the robot is to hold.
  std::int32_t row = -1;
  // Why it is to hold; kNone where it is not.
  Hold hold = Hold::kNone;
};

// What the loop has to know of a chunk.
struct ChunkFacts {
  std::uint32_t episode = 1;
  std::int64_t start_step = 0;
  std::int64_t valid_until_step = 0;
  double dt_ms = 0;
  std::int32_t rows = 0;
  // When its observation was sensed.
  std::optional<double> observation_time;
};

// One robot's loop.
class LoopCore {
 public:
  // `finish`: a hold for want of a chunk, and a lost connection, leave the chunk before its valid rest.
  explicit LoopCore(double rate_hz, bool finish = false, std::uint32_t episode = 1) noexcept
      : period_ms_(1000.0 / rate_hz), finish_(finish), episode_(episode) {}

  // A control step is due.
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

  // The gateway has opened the loop.
  void Opened(double deadline_ms) noexcept {
    if (over_ != Hold::kNone) return;
    connected_ = true;
    deadline_ms_ = deadline_ms;
    if (!has_) why_ = Hold::kNoChunk;
  }

  // A chunk came.
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

  // A hold came.
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

  // The connection broke.
  void Lost() noexcept {
    if (over_ != Hold::kNone) return;
    connected_ = false;
    Soft(Hold::kDisconnected);
  }

  // The gateway ended the loop: kClosed where the robot asked for it, kRefused otherwise.
  void Ended(Hold why) noexcept {
    if (over_ != Hold::kNone) return;
    connected_ = false;
    Drop(why);
  }

  // A new episode begins; its number.
  std::uint32_t Reset() noexcept {
    episode_ += 1;
    step_ = sent_ = -1;
    has_begun_ = false;
    rejected_ = 0;
    Drop(connected_ ? Hold::kNoChunk : Hold::kConnecting);
    return episode_;
  }

  // The loop is over: the robot holds from now on.
  void Stop(Hold why) noexcept {
    if (over_ != Hold::kNone) return;
    over_ = why;
    Drop(why);
  }

  std::uint32_t episode() const noexcept { return episode_; }
  Hold over() const noexcept { return over_; }

 private:
  // A clock that goes back by more than this is not read any longer.
  static constexpr double kBackMs = 1;
  // Observations in a row that the gateway cannot use, until the loop gives up.
  static constexpr int kMostRejected = 3;
  // So much is added to a quotient before its whole part is taken.
  static constexpr double kEpsilon = 1e-9;

  // Holds for want of a chunk; the others say that what the robot would do is wrong.
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
  // Of the episode's first control step.
  bool has_begun_ = false;
  double began_ = 0;
  double last_ = -std::numeric_limits<double>::infinity();
  Hold why_ = Hold::kConnecting;
  bool has_ = false;
  ChunkFacts chunk_;
};

// The word of a reason, as in the traces and on REST.
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

// The reason of a word.
constexpr Hold HoldOf(std::string_view word) noexcept {
  for (int each = 0; each <= static_cast<int>(Hold::kUnknown); ++each) {
    if (WordOf(static_cast<Hold>(each)) == word) return static_cast<Hold>(each);
  }
  return Hold::kUnknown;
}

// The word of a verdict, as in the traces.
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
