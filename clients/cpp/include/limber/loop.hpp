// A robot's control loop: observations go up when there is one, chunks come down, and at each control step there is an action or a hold.
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

// What no action may exceed, in the units of the action space. The gateway sends a hold in place of a chunk that does.
struct Bounds {
  // Lowest and highest value: one for all dimensions, or one for each.
  std::vector<double> lowest;
  std::vector<double> highest;
  // Largest change of any value from one row of a chunk to the next.
  std::optional<double> max_change;
  // Largest distance of a chunk's first row from the first values of `state`.
  std::optional<double> max_start_jump;
};

struct LoopOptions {
  // Control steps a second; above 0, 10,000 at most.
  double rate_hz = 50;
  // The robot's name, for the emergency stop and the log.
  std::optional<std::string> robot;
  // A contract, not a hint: `ee_delta_6d_grip` when absent.
  std::optional<std::string> action_space;
  std::optional<std::uint32_t> horizon;
  std::optional<Bounds> bounds;
  std::optional<std::string> instruction;
  // Lets a program that is started again go on in its episode; one of its own is made when absent.
  std::optional<std::string> session;
  std::uint32_t episode = 1;
  // Further models that may take over inside an episode.
  std::vector<std::string> models;
  Preference preference = Preference::kNone;
  Provider provider;
  std::optional<std::int64_t> seed;
  std::optional<double> temperature;
  std::optional<std::string> preset;
  Embodiment embodiment = Embodiment::kAny;
  // The valid rest of a chunk is executed after a hold for want of the next one, and while the connection is opened again. Without it the robot
  // stops at once.
  bool finish_chunks = false;
  // For so long a first connection is sought.
  double connect_timeout_s = 10;
  // Seconds of a clock that only goes forward; std::chrono::steady_clock where it is empty. It is called on the loop's threads too.
  std::function<double()> clock;
};

// What is due at one control step.
struct Due {
  // One number for each dimension, valid until the next Tick; nullptr where the robot is to hold.
  const double* action = nullptr;
  std::size_t dimensions = 0;
  // Why it is to hold; kNone where it is not.
  Hold hold = Hold::kNone;
  std::int64_t step = 0;
  std::uint32_t episode = 1;

  explicit operator bool() const noexcept { return action != nullptr; }
};

// Size and encodings of one camera's pictures, as the offering that will serve declares them.
struct CameraHint {
  std::string camera;
  // 0 stands for any.
  std::uint32_t width = 0;
  std::uint32_t height = 0;
  // Other sizes are taken too, and made to fit.
  bool any_size = false;
};

// How a loop does.
struct LoopStats {
  // Control steps, and those among them with an action.
  std::uint64_t steps = 0;
  std::uint64_t actions = 0;
  // Control steps without one, by reason; those that did not occur are left out.
  std::vector<std::pair<Hold, std::uint64_t>> holds;
  // Actions per second: in the last whole second, since the first action, and in the worst whole second.
  double rate_hz = 0;
  double average_hz = 0;
  double worst_second_hz = 0;
  // How old observations were when their chunks came, in milliseconds, over the last thousand.
  double age_ms = 0;
  double age_p99_ms = 0;
  // Chunks that were taken; chunks that came and were not, by reason.
  std::uint64_t chunks = 0;
  std::vector<std::pair<Verdict, std::uint64_t>> refused_chunks;
  // Actions of a chunk whose time was over. Stays 0.
  std::uint64_t stale_actions = 0;
  // Observations that a newer one replaced before they were sent.
  std::uint64_t replaced = 0;
  // Streams that were opened; more than one where connections broke.
  std::uint64_t streams = 0;
  double cost_usd = 0;
  // Who serves; absent before the gateway has said it.
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
// One thread ticks; every other method may be called from any thread, but not from a signal handler. Connections that break are opened again,
// on the next of the client's addresses. What cannot be mended, such as a key that was revoked or an emergency stop, is thrown by Tick, once
// and again, and the robot is to hold.
class Loop {
 public:
  // Throws BadInput for options that cannot be. Nothing is sent before Start or the first Tick.
  Loop(const Client& client, const std::string& model, LoopOptions options);
  // Ends the loop: what is under way is called off. Takes up to two seconds where nobody answers.
  ~Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  // Opens the stream; done by the first Tick otherwise.
  void Start();
  // Takes what the robot senses now and gives what it is to do now. Call it once in each control step. What is sensed is copied; after the
  // largest observation has been seen, nothing is allocated. Throws BadInput for an observation that cannot be sent, which ends nothing, and
  // what ended the loop once it has ended.
  Due Tick(const Observation& seen);

  // What the robot senses, into the same object each time; false ends the run.
  using Observe = std::function<bool(Observation&)>;
  // Moves the robot, or has it hold, for the reason in `hold`, where there is no action.
  using Act = std::function<void(const Due&)>;
  // Runs the loop at its rate for `max_seconds`, which has no default on purpose. It ends then, by Interrupt, when `observe` gives false, or with
  // an exception: a callback's, or what ended the loop. In every case `act` is told to hold before the method ends. A second run begins a new
  // episode. Nobody watches the callbacks: a robot whose program hangs needs a watchdog of its own.
  Outcome Run(const Observe& observe, const Act& act, double max_seconds);

  // The robot holds from its next control step on, which comes at once in a run. Nothing is thrown.
  void Interrupt();
  // Begins a new episode: nothing of the one before is executed. Its number.
  std::uint32_t Reset(std::optional<std::string> instruction = std::nullopt);
  // Ends the loop, as the destructor does.
  void Close();

  LoopStats Stats() const;
  // What the offering declares of its cameras; empty before the gateway has said it, and where nothing is declared.
  std::vector<CameraHint> Cameras() const;
  const std::string& session() const noexcept;

 private:
  class Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace limber
