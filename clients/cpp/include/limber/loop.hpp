// A robot's control loop: sends observations, receives action chunks, and returns an action or a hold at each control step.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "limber/client.hpp"
#include "limber/core.hpp"

namespace limber {

// Limits for every action, in the units of the action space. The gateway sends a hold instead of a chunk that exceeds them.
struct Bounds {
  // Lowest and highest value: one for all dimensions, or one for each dimension.
  std::vector<double> lowest;
  std::vector<double> highest;
  // Largest change of any value between consecutive rows of a chunk.
  std::optional<double> max_change;
  // Largest distance between a chunk's first row and the first values of `state`.
  std::optional<double> max_start_jump;
};

struct LoopOptions {
  // Control steps per second; above 0 and at most 10,000.
  double rate_hz = 50;
  // The robot's name, for emergency stops and the log.
  std::optional<std::string> robot;
  // A requirement; by default the model's only one, or `ee_delta_6d_grip`.
  std::optional<std::string> action_space;
  std::optional<std::uint32_t> horizon;
  std::optional<Bounds> bounds;
  std::optional<std::string> instruction;
  // The session id. A restarted program that passes the same one resumes its episode. The default is a generated id.
  std::optional<std::string> session;
  std::uint32_t episode = 1;
  // Fallback models, which can take over within an episode.
  std::vector<std::string> models;
  Preference preference = Preference::kNone;
  Provider provider;
  std::optional<std::int64_t> seed;
  std::optional<double> temperature;
  std::optional<std::string> preset;
  Embodiment embodiment = Embodiment::kAny;
  // Execute the remaining valid rows of a chunk after a hold for a missing chunk and while the connection is being reopened. If false, the robot
  // stops at once.
  bool finish_chunks = false;
  // Time limit for the first connection, in seconds.
  double connect_timeout_s = 10;
  // A monotonic clock in seconds; std::chrono::steady_clock if empty. The loop's threads call it too.
  std::function<double()> clock;
};

// What the robot must do at one control step.
struct Due {
  // One number for each dimension, valid until the next Tick; nullptr if the robot must hold.
  const double* action = nullptr;
  std::size_t dimensions = 0;
  // Why the robot must hold; kNone if it must not.
  Hold hold = Hold::kNone;
  std::int64_t step = 0;
  std::uint32_t episode = 1;

  explicit operator bool() const noexcept { return action != nullptr; }
};

// The image size of one camera, as the serving offering declares it.
struct CameraHint {
  std::string camera;
  // 0 accepts any size.
  std::uint32_t width = 0;
  std::uint32_t height = 0;
  // True if other sizes are accepted and resized.
  bool any_size = false;
};

// Statistics of a loop.
struct LoopStats {
  // Number of control steps, and how many of them had an action.
  std::uint64_t steps = 0;
  std::uint64_t actions = 0;
  // Number of control steps without an action, by reason; reasons that did not occur are omitted.
  std::vector<std::pair<Hold, std::uint64_t>> holds;
  // Actions per second: in the last whole second, since the first action, and in the worst whole second.
  double rate_hz = 0;
  double average_hz = 0;
  double worst_second_hz = 0;
  // Age of observations when their chunks arrived, in milliseconds, over the last 1,000 chunks: the median and the 99th percentile.
  double age_ms = 0;
  double age_p99_ms = 0;
  // Number of chunks taken; number of received chunks that were not taken, by reason.
  std::uint64_t chunks = 0;
  std::vector<std::pair<Verdict, std::uint64_t>> refused_chunks;
  // Number of executed actions of an expired chunk. Always 0.
  std::uint64_t stale_actions = 0;
  // Number of observations that a newer one replaced before they were sent.
  std::uint64_t replaced = 0;
  // Number of opened streams; more than one if connections broke.
  std::uint64_t streams = 0;
  double cost_usd = 0;
  // The serving offering; absent until the gateway has reported it.
  std::optional<Route> route;

  std::uint64_t held(Hold why) const noexcept {
    for (const auto& [each, count] : holds) {
      if (each == why) return count;
    }
    return 0;
  }
};

// How a run ended.
enum class Ended { kMaxSeconds, kInterrupted, kDone };

struct Outcome {
  Ended ended = Ended::kMaxSeconds;
  double seconds = 0;
  LoopStats stats;
};

// A control loop of one robot.
//
//   limber::Loop loop(client, "reference/potential-nav", options);
//   while (driving) {
//     const limber::Due due = loop.Tick(seen);            // never waits for the network
//     if (due) Move(due.action, due.dimensions); else Brake();
//   }
//
// One thread calls Tick. All other methods are thread-safe, but must not be called from a signal handler. Broken connections are reopened, at the
// next of the client's addresses. After a permanent error, such as a revoked key or an emergency stop, every Tick throws it, and the robot must
// hold.
class Loop {
 public:
  // Throws BadInput for invalid options. Nothing is sent before Start or the first Tick.
  Loop(const Client& client, const std::string& model, LoopOptions options);
  // Ends the loop and cancels pending work. Takes up to 2 s if the gateway does not answer.
  ~Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  // Opens the stream. Otherwise, the first Tick opens it.
  void Start();
  // Passes what the robot senses and returns what it must do now. Call it once per control step. The observation is copied; once the largest
  // observation has been copied, Tick does not allocate. Throws BadInput for an observation that cannot be sent, which does not end the loop.
  // After the loop has ended, throws the error that ended it.
  Due Tick(const Observation& seen);

  // Writes what the robot senses into the object, which is reused; false ends the run.
  using Observe = std::function<bool(Observation&)>;
  // Moves the robot, or makes it hold if there is no action. `hold` has the reason.
  using Act = std::function<void(const Due&)>;
  // Runs the loop at its rate for `max_seconds`, which intentionally has no default. The run ends then, by Interrupt, when `observe` returns false, or
  // with an exception of a callback or of the loop. In every case `act` is told to hold before the method returns. A second run begins a new
  // episode. There is no watchdog for callbacks: a robot whose program can hang needs its own.
  Outcome Run(const Observe& observe, const Act& act, double max_seconds);

  // Makes the robot hold from its next control step, which follows at once in a run. Nothing is thrown.
  void Interrupt();
  // Begins a new episode and returns its number. The previous episode's chunk is discarded.
  std::uint32_t Reset(std::optional<std::string> instruction = std::nullopt);
  // Ends the loop, as the destructor does.
  void Close();

  LoopStats Stats() const;
  // Returns the image sizes that the serving offering declares; empty until the gateway has reported them, and if there are none.
  std::vector<CameraHint> Cameras() const;
  const std::string& session() const noexcept;

 private:
  class Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace limber
