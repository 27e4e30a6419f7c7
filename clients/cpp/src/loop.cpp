#include "limber/loop.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

#include "connection.hpp"

namespace limber {

namespace {

using internal::Connection;
using internal::Failure;
using Call = grpc::ClientReaderWriter<v1::ActStreamRequest, v1::ActStreamResponse>;

constexpr std::size_t kHolds = static_cast<std::size_t>(Hold::kUnknown) + 1;
constexpr std::size_t kVerdicts = static_cast<std::size_t>(Verdict::kLate) + 1;
// Number of observations whose capture times are kept: more than the steps of any chunk.
constexpr std::size_t kMostSensed = 2048;
constexpr std::size_t kMostAges = 1000;
// The largest step that the schema accepts.
constexpr double kMostSteps = 4294967039;
// Delays between attempts to reopen a stream, in seconds.
constexpr double kWaits[] = {0, 0.05, 0.1, 0.2, 0.4, 0.8};
// Seconds without a message, beyond an observation's deadline, until the connection counts as dead.
constexpr double kSilenceS = 2;
// Seconds for the gateway to end a closed stream.
constexpr double kFarewellS = 1;

// Seconds of the machine's steady clock, which limits network waits whatever clock the robot uses.
double Steady() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

Hold HoldOf(v1::HoldReason reason) {
  switch (reason) {
    case v1::HOLD_REASON_LATE: return Hold::kLate;
    case v1::HOLD_REASON_UPSTREAM_FAILED: return Hold::kUpstreamFailed;
    case v1::HOLD_REASON_NO_PROVIDER: return Hold::kNoProvider;
    case v1::HOLD_REASON_OUT_OF_BOUNDS: return Hold::kOutOfBounds;
    case v1::HOLD_REASON_INVALID_OBSERVATION: return Hold::kInvalidObservation;
    case v1::HOLD_REASON_STALE_OBSERVATION: return Hold::kStaleObservation;
    case v1::HOLD_REASON_SLOW_READER: return Hold::kSlowReader;
    case v1::HOLD_REASON_NOT_RECORDED: return Hold::kNotRecorded;
    case v1::HOLD_REASON_RATE_LIMITED: return Hold::kRateLimited;
    default: return Hold::kUnknown;
  }
}

void Fill(const Bounds& bounds, v1::SafetyBounds& into) {
  for (const auto& [values, name] : {std::pair(&bounds.lowest, "bounds.lowest"), std::pair(&bounds.highest, "bounds.highest")}) {
    if (values->size() > 1024) throw BadInput(std::string(name) + " must have at most 1024 numbers");
    for (const double each : *values) {
      if (!std::isfinite(each)) throw BadInput(std::string(name) + " contains a number that is not finite");
    }
  }
  if (bounds.lowest.size() == bounds.highest.size()) {
    for (std::size_t i = 0; i < bounds.lowest.size(); ++i) {
      if (bounds.lowest[i] > bounds.highest[i]) throw BadInput("bounds.lowest[" + std::to_string(i) + "] is above bounds.highest");
    }
  }
  into.mutable_lowest()->Add(bounds.lowest.begin(), bounds.lowest.end());
  into.mutable_highest()->Add(bounds.highest.begin(), bounds.highest.end());
  const auto checked = [](double value, const char* name) {
    if (!(std::isfinite(value) && value >= 0)) throw BadInput(std::string(name) + " must be 0 or more, got " + std::to_string(value));
    return value;
  };
  if (bounds.max_change) into.set_max_change(checked(*bounds.max_change, "bounds.max_change"));
  if (bounds.max_start_jump) into.set_max_start_jump(checked(*bounds.max_start_jump, "bounds.max_start_jump"));
}

// Returns the exception for rejected observations, or for a jump of the robot's clock.
std::exception_ptr Rejection(const std::string& detail) {
  if (detail.rfind("t_ms", 0) == 0) {
    return std::make_exception_ptr(
        ClockJumped("the gateway holds because the robot's clock jumped: " + detail + "; pass the loop a monotonic clock"));
  }
  return std::make_exception_ptr(
      ObservationRejected("the gateway cannot use the observations: " + (detail.empty() ? "no cause was reported" : detail)));
}

// Returns whether another stream might succeed.
bool IsTransient(const Failure& failure, bool opened) {
  switch (failure.kind) {
    case Failure::Kind::kConnection: return true;
    case Failure::Kind::kRefused: return failure.retryable;
    // Middleboxes cut open streams in many ways, but a server whose stream never opened is not a gateway.
    case Failure::Kind::kMalformed: return opened;
  }
  return false;
}

// Counters of a loop.
struct Meter {
  std::uint64_t steps = 0;
  std::uint64_t actions = 0;
  std::array<std::uint64_t, kHolds> holds{};
  std::array<std::uint64_t, kVerdicts> refused{};
  std::uint64_t chunks = 0;
  std::uint64_t stale = 0;
  std::uint64_t replaced = 0;
  std::uint64_t streams = 0;
  double cost_usd = 0;
  std::optional<Route> route;
  std::array<double, kMostAges> ages{};
  std::size_t aged = 0;
  std::optional<double> first_at;
  double last_at = 0;
  std::int64_t second = -1;
  std::uint64_t in_second = 0;
  std::uint64_t last_second = 0;
  std::optional<std::uint64_t> worst;

  // Counts a control step at `at`, in seconds.
  void Tick(double at, Hold hold) {
    steps += 1;
    const bool acted = hold == Hold::kNone;
    if (acted) {
      actions += 1;
      if (!first_at) first_at = at;
      last_at = at;
    } else {
      holds[static_cast<std::size_t>(hold)] += 1;
    }
    if (!first_at) return;
    const auto now = static_cast<std::int64_t>(at - *first_at);
    if (now != second) {
      if (second >= 0) {
        // Whole seconds without a control step had no action either.
        last_second = now == second + 1 ? in_second : 0;
        worst = std::min(worst.value_or(last_second), last_second);
      }
      second = now;
      in_second = 0;
    }
    in_second += acted ? 1 : 0;
  }

  void Age(double ms) {
    ages[aged % kMostAges] = ms;
    aged += 1;
  }

  LoopStats Stats() const {
    LoopStats stats;
    stats.steps = steps;
    stats.actions = actions;
    for (std::size_t i = 0; i < kHolds; ++i) {
      if (holds[i] > 0) stats.holds.emplace_back(static_cast<Hold>(i), holds[i]);
    }
    for (std::size_t i = 0; i < kVerdicts; ++i) {
      if (refused[i] > 0) stats.refused_chunks.emplace_back(static_cast<Verdict>(i), refused[i]);
    }
    const double lasted = first_at ? last_at - *first_at : 0;
    stats.average_hz = lasted > 0 ? static_cast<double>(actions - 1) / lasted : 0;
    stats.rate_hz = worst ? static_cast<double>(last_second) : stats.average_hz;
    stats.worst_second_hz = worst ? static_cast<double>(*worst) : stats.average_hz;
    std::vector<double> ordered(ages.begin(), ages.begin() + static_cast<std::ptrdiff_t>(std::min(aged, kMostAges)));
    std::sort(ordered.begin(), ordered.end());
    const auto percentile = [&ordered](double share) {
      if (ordered.empty()) return 0.0;
      return ordered[static_cast<std::size_t>(std::ceil(share * static_cast<double>(ordered.size()))) - 1];
    };
    stats.age_ms = percentile(0.5);
    stats.age_p99_ms = percentile(0.99);
    stats.chunks = chunks;
    stats.stale_actions = stale;
    stats.replaced = replaced;
    stats.streams = streams;
    stats.cost_usd = cost_usd;
    stats.route = route;
    return stats;
  }
};

// A stream of the loop. The loop's lock guards everything except the context.
struct Stream {
  grpc::ClientContext context;
  // The episode in which the stream was opened, and its current episode.
  std::uint32_t first = 1;
  std::uint32_t episode = 1;
  double began = 0;
  bool opened = false;
  // The gateway has sent its last message; nothing is pending.
  bool over = false;
  bool done = false;
  // True if the stream was ended because no message arrived for too long.
  bool silent = false;
  // Send time of the first observation since the last received message.
  std::optional<double> sent_at;
  // The version of the instruction that was last sent.
  std::uint64_t sent_instruction = 0;
};

struct Sensed {
  std::int64_t step = -1;
  // In milliseconds of the loop's clock and not of the robot's.
  double at = 0;
};

}  // namespace

class Loop::Parts {
 public:
  Parts(std::shared_ptr<Connection> connection, const std::string& model, LoopOptions options)
      : connection_(std::move(connection)),
        options_(std::move(options)),
        core_(Rate(options_.rate_hz), options_.finish_chunks, options_.episode),
        session_(options_.session ? *options_.session : "cpp-" + internal::Unique()) {
    internal::CheckName(model, "model", 256);
    internal::CheckName(session_, "session", 256);
    if (options_.robot) internal::CheckName(*options_.robot, "robot", 128);
    if (options_.episode < 1 || options_.episode > 2147483647) throw BadInput("episode must be between 1 and 2147483647");
    if (!(options_.connect_timeout_s > 0)) throw BadInput("connect_timeout_s must be above 0");
    open_.set_model(model);
    for (const std::string& each : options_.models) open_.add_models(each);
    if (options_.preference != Preference::kNone) open_.set_preference(static_cast<v1::Preference>(options_.preference));
    internal::Fill(options_.provider, *open_.mutable_provider());
    if (!open_.provider().has_session_id()) open_.mutable_provider()->set_session_id(session_);
    if (options_.seed) open_.set_seed(static_cast<double>(*options_.seed));
    if (options_.preset) open_.set_preset(*options_.preset);
    if (options_.action_space) open_.set_action_space(*options_.action_space);
    if (options_.horizon) open_.set_horizon(*options_.horizon);
    if (options_.temperature) open_.set_temperature(*options_.temperature);
    if (options_.bounds) Fill(*options_.bounds, *open_.mutable_bounds());
    if (options_.robot) open_.set_robot_id(*options_.robot);
    if (options_.embodiment != Embodiment::kAny) open_.set_embodiment(static_cast<v1::Embodiment>(options_.embodiment));
    if (options_.instruction) {
      instruction_ = *options_.instruction;
      instructed_ = 1;
    }
  }

  void Start() {
    const std::lock_guard<std::mutex> hold(lock_);
    if (closing_) throw BadInput("the loop is closed; create a new one");
    if (keeper_.joinable()) return;
    keeper_ = std::thread([this] {
      try {
        Keep();
      } catch (...) {
        // If the thread died silently, the robot would wait forever.
        const std::lock_guard<std::mutex> again(lock_);
        Fail(std::current_exception());
      }
    });
    started_ = true;
  }

  void Close() {
    std::thread keeper;
    {
      const std::lock_guard<std::mutex> hold(lock_);
      closing_ = true;
      core_.Stop(Hold::kClosed);
      keeper.swap(keeper_);
    }
    Notify();
    if (keeper.joinable()) keeper.join();
  }

  void Interrupt() {
    {
      const std::lock_guard<std::mutex> hold(lock_);
      interrupted_ = true;
      core_.Stop(Hold::kInterrupted);
    }
    wake_.notify_all();
  }

  std::uint32_t Reset(std::optional<std::string> instruction) {
    std::uint32_t episode = 0;
    {
      const std::lock_guard<std::mutex> hold(lock_);
      episode = core_.Reset();
      waits_ = false;
      sensed_.fill({});
      began_.reset();
      if (instruction) Instruct(*instruction);
    }
    up_.notify_all();
    return episode;
  }

  Due Tick(const Observation& seen) {
    internal::Check(seen);
    if (!started_) Start();
    const std::unique_lock<std::mutex> hold(lock_);
    const double reading = Now();
    CheckClock(reading);
    const double now = std::isfinite(reading) ? reading : last_;
    const Decision decision = core_.Tick(now * 1000);
    if (decision.hold == Hold::kClock && !fatal_) {
      Fail(std::make_exception_ptr(ClockJumped("the clock went back; pass the loop a monotonic clock, such as steady_clock")), Hold::kClock);
    }
    if (fatal_) {
      meter_.Tick(now, decision.hold == Hold::kNone ? Hold::kFailed : decision.hold);
      std::rethrow_exception(fatal_);
    }
    last_ = now;
    if (seen.instruction && *seen.instruction != instruction_) Instruct(*seen.instruction);
    if (decision.send) {
      sensed_[static_cast<std::size_t>(decision.step) % kMostSensed] = {decision.step, now * 1000};
      meter_.replaced += waits_ ? 1 : 0;
      waiting_ = seen;
      if (!waiting_.t_ms) waiting_.t_ms = now * 1000;
      waiting_step_ = decision.step;
      waiting_episode_ = decision.episode;
      waits_ = true;
      up_.notify_one();
    }
    meter_.Tick(now, decision.hold);
    if (decision.row < 0) return {nullptr, 0, decision.hold, decision.step, decision.episode};
    // LoopCore rules this out. The counter proves it.
    meter_.stale += decision.step >= until_ ? 1 : 0;
    const auto from = rows_.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(decision.row) * dimensions_);
    action_.assign(from, from + static_cast<std::ptrdiff_t>(dimensions_));
    return {action_.data(), dimensions_, Hold::kNone, decision.step, decision.episode};
  }

  Outcome Run(const Observe& observe, const Act& act, double max_seconds) {
    if (!(std::isfinite(max_seconds) && max_seconds > 0)) {
      throw BadInput("max_seconds must be how long the robot may move by itself, in seconds, got " + std::to_string(max_seconds));
    }
    Start();
    if (runs_++ > 0) Reset(std::nullopt);
    Outcome outcome;
    const auto holds = [&](Hold why) {
      std::uint32_t episode = 0;
      {
        const std::lock_guard<std::mutex> hold(lock_);
        episode = core_.episode();
      }
      act({nullptr, 0, why, 0, episode});
    };
    const double began = Now();
    try {
      outcome.ended = Drive(observe, act, began, max_seconds);
    } catch (...) {
      try {
        holds(Hold::kFailed);
      } catch (...) {
        // The first exception is more informative.
      }
      throw;
    }
    holds(outcome.ended == Ended::kDone ? Hold::kDone : outcome.ended == Ended::kInterrupted ? Hold::kInterrupted : Hold::kOver);
    outcome.seconds = Now() - began;
    outcome.stats = Stats();
    return outcome;
  }

  LoopStats Stats() const {
    const std::lock_guard<std::mutex> hold(lock_);
    return meter_.Stats();
  }

  std::vector<CameraHint> Cameras() const {
    const std::lock_guard<std::mutex> hold(lock_);
    return cameras_;
  }

  const std::string& session() const noexcept { return session_; }

 private:
  static double Rate(double rate_hz) {
    if (!(rate_hz > 0 && rate_hz <= 10000)) throw BadInput("rate_hz must be above 0 and at most 10,000, got " + std::to_string(rate_hz));
    return rate_hz;
  }

  double Now() const { return options_.clock ? options_.clock() : Steady(); }

  void Notify() {
    up_.notify_all();
    ended_.notify_all();
    wake_.notify_all();
  }

  // Ends the loop with an error. The caller holds the lock.
  void Fail(std::exception_ptr error, Hold why = Hold::kFailed) {
    if (!fatal_) fatal_ = std::move(error);
    core_.Stop(why);
    Notify();
  }

  // The caller holds the lock.
  void Instruct(const std::string& instruction) {
    instruction_ = instruction;
    instructed_ += 1;
  }

  // Ends the loop if the time is invalid. The caller holds the lock.
  void CheckClock(double now) {
    if (fatal_ || core_.over() != Hold::kNone) return;
    if (!std::isfinite(now)) {
      Fail(std::make_exception_ptr(ClockJumped("the clock returned " + std::to_string(now) + "; pass the loop a clock that counts seconds, such as steady_clock")),
           Hold::kClock);
      return;
    }
    if (!began_) began_ = now;
    if ((now - *began_) * options_.rate_hz > kMostSteps) {
      Fail(std::make_exception_ptr(ClockJumped("the clock jumped farther than an episode can last; pass the loop a clock that counts seconds, such as steady_clock")),
           Hold::kClock);
    }
  }

  Ended Drive(const Observe& observe, const Act& act, double began, double max_seconds) {
    const double period = 1 / options_.rate_hz;
    double due = began;
    Observation seen;
    for (;;) {
      {
        const std::lock_guard<std::mutex> hold(lock_);
        if (interrupted_) return Ended::kInterrupted;
      }
      if (Now() - began >= max_seconds) return Ended::kMaxSeconds;
      if (!observe(seen)) return Ended::kDone;
      const Due next = Tick(seen);
      {
        const std::lock_guard<std::mutex> hold(lock_);
        // Skip the action if the run was interrupted meanwhile.
        if (interrupted_) return Ended::kInterrupted;
      }
      act(next);
      due += period;
      const double late = Now() - due;
      // After a pause, the next step is due now; missed steps are not made up.
      if (late > period) due += late;
      std::unique_lock<std::mutex> hold(lock_);
      // If the clock went back, the next step could be far in the future.
      wake_.wait_for(hold, std::chrono::duration<double>(std::min(std::max(0.0, -late), period)), [this] { return interrupted_ || fatal_; });
    }
  }

  // Keeps a stream open until the loop ends.
  void Keep() {
    const double began = Steady();
    bool opened_once = false;
    std::size_t failed = 0;
    for (;;) {
      const std::size_t at = connection_->current();
      Stream stream;
      stream.began = Steady();
      {
        const std::lock_guard<std::mutex> hold(lock_);
        if (closing_ || fatal_) return;
        stream.first = stream.episode = core_.episode();
        meter_.streams += 1;
      }
      std::optional<Failure> failure;
      std::thread talker([&] {
        std::exception_ptr broken;
        try {
          failure = RunStream(stream, at);
        } catch (...) {
          broken = std::current_exception();
        }
        const std::lock_guard<std::mutex> hold(lock_);
        if (broken) Fail(broken);
        stream.done = true;
        ended_.notify_all();
      });
      Watch(stream);
      talker.join();
      std::unique_lock<std::mutex> hold(lock_);
      core_.Lost();
      if (closing_ || fatal_) return;
      opened_once = opened_once || stream.opened;
      if (failure && !IsTransient(*failure, stream.opened)) {
        Fail(failure->error, failure->kind == Failure::Kind::kRefused ? Hold::kRefused : Hold::kFailed);
        return;
      }
      if (!opened_once && Steady() - began > options_.connect_timeout_s) {
        Fail(failure ? failure->error : std::make_exception_ptr(ConnectionFailed("the gateway did not open the loop")));
        return;
      }
      // A stream that breaks right after it opened counts as a failed attempt.
      failed = stream.opened && Steady() - stream.began > 1 ? 0 : failed + 1;
      connection_->Next(at);
      // Try every address without a delay; pause only after all of them have failed.
      const std::size_t round = failure && failure->kind == Failure::Kind::kRefused ? 1 : connection_->size();
      double wait = failed % round != 0 ? 0 : kWaits[std::min(failed / round, std::size(kWaits) - 1)];
      if (failure && failure->retry_after_s) wait = std::max(wait, std::min(*failure->retry_after_s, 5.0));
      ended_.wait_for(hold, std::chrono::duration<double>(wait), [this] { return closing_ || fatal_; });
    }
  }

  // Cancels a stream on which the gateway is silent. Returns when the stream is done.
  void Watch(Stream& stream) {
    std::unique_lock<std::mutex> hold(lock_);
    std::optional<double> leaving;
    while (!stream.done) {
      ended_.wait_for(hold, std::chrono::milliseconds(100));
      const double now = Steady();
      bool cancel = false;
      if (closing_ || fatal_) {
        if (!leaving) leaving = now;
        // Only an open stream gets time for a graceful close.
        cancel = !stream.opened || now - *leaving > kFarewellS;
      } else if (!stream.opened) {
        cancel = stream.silent = now - stream.began > options_.connect_timeout_s;
      } else if (stream.sent_at) {
        // The gateway answers each observation by its deadline, with a chunk or a hold.
        cancel = stream.silent = now - *stream.sent_at > kSilenceS + deadline_s_;
      }
      if (cancel) stream.context.TryCancel();
    }
  }

  // Runs one stream from start to end. Returns why it ended.
  std::optional<Failure> RunStream(Stream& stream, std::size_t at) {
    const std::string doing = "loop at " + connection_->address(at).url;
    const auto stub = v1::InferenceService::NewStub(connection_->channel(at));
    connection_->Prepare(stream.context);
    const std::unique_ptr<Call> call = stub->ActStream(&stream.context);
    std::thread writer([&] { WriteMessages(stream, *call); });
    v1::ActStreamResponse answer;
    while (call->Read(&answer)) {
      try {
        Hear(stream, answer);
      } catch (const MalformedAnswer& error) {
        const std::lock_guard<std::mutex> hold(lock_);
        Fail(std::make_exception_ptr(MalformedAnswer(doing + ": " + error.what())));
        stream.context.TryCancel();
      } catch (...) {
        const std::lock_guard<std::mutex> hold(lock_);
        Fail(std::current_exception());
        stream.context.TryCancel();
      }
    }
    {
      const std::lock_guard<std::mutex> hold(lock_);
      stream.over = true;
    }
    up_.notify_all();
    writer.join();
    const grpc::Status status = call->Finish();
    const std::lock_guard<std::mutex> hold(lock_);
    if (stream.silent) {
      Failure failure;
      failure.error = std::make_exception_ptr(ConnectionFailed(doing + ": the gateway accepted the connection but sends no messages"));
      return failure;
    }
    if (status.ok()) return std::nullopt;
    return internal::FailureOf(status, doing);
  }

  // Writes the messages of one stream.
  void WriteMessages(Stream& stream, Call& call) {
    v1::ActStreamRequest opening, reset, message;
    {
      const std::lock_guard<std::mutex> hold(lock_);
      *opening.mutable_open() = open_;
      opening.mutable_open()->set_episode(stream.first);
      if (instructed_ > 0) opening.mutable_open()->set_instruction(instruction_);
      stream.sent_instruction = instructed_;
    }
    if (!call.Write(opening)) return;
    v1::LoopObservation& up = *message.mutable_observation();
    up.add_observations();
    for (;;) {
      bool resets = false;
      bool observes = false;
      {
        std::unique_lock<std::mutex> hold(lock_);
        up_.wait(hold, [&] {
          return stream.over || closing_ || fatal_ || core_.episode() > stream.episode ||
                 // Before `opened` arrives, observations wait, and then the newest goes first.
                 (waits_ && stream.opened);
        });
        if (stream.over) return;
        if (closing_ || fatal_) break;
        resets = core_.episode() > stream.episode;
        if (resets) {
          stream.episode = core_.episode();
          reset.mutable_reset()->set_episode(stream.episode);
        }
        if (waits_ && stream.opened) {
          waits_ = false;
          // Swapping keeps the memory of both.
          std::swap(waiting_, leaving_);
          observes = waiting_episode_ == stream.episode;
          up.set_step(static_cast<std::uint32_t>(waiting_step_));
        }
        up.clear_instruction();
        reset.mutable_reset()->clear_instruction();
        // An observation that a newer one replaced might have carried the instruction.
        if ((resets || observes) && stream.sent_instruction != instructed_) {
          stream.sent_instruction = instructed_;
          if (resets) {
            reset.mutable_reset()->set_instruction(instruction_);
          } else {
            up.set_instruction(instruction_);
          }
        }
        if (observes && !stream.sent_at) stream.sent_at = Steady();
      }
      if (resets && !call.Write(reset)) return;
      if (!observes) continue;
      internal::Fill(leaving_, *up.mutable_observations(0));
      if (!call.Write(message)) return;
    }
    v1::ActStreamRequest close;
    close.mutable_close();
    if (call.Write(close)) call.WritesDone();
  }

  void Hear(Stream& stream, const v1::ActStreamResponse& answer) {
    std::size_t rows = 0;
    std::size_t dimensions = 0;
    if (answer.event_case() == v1::ActStreamResponse::kChunk) internal::Flatten(answer.chunk().action(), coming_, rows, dimensions);
    const std::lock_guard<std::mutex> hold(lock_);
    stream.sent_at.reset();
    switch (answer.event_case()) {
      case v1::ActStreamResponse::kOpened: {
        const v1::LoopOpened& opened = answer.opened();
        if (opened.episode() != 0 && opened.episode() != stream.first) {
          throw MalformedAnswer("the loop was opened in episode " + std::to_string(opened.episode()) + ", expected " + std::to_string(stream.first));
        }
        stream.opened = true;
        deadline_s_ = opened.deadline_ms() > 0 ? opened.deadline_ms() / 1000.0 : 10;
        core_.Opened(opened.deadline_ms() > 0 ? opened.deadline_ms() : std::numeric_limits<double>::infinity());
        meter_.route = internal::RouteOf(opened.route());
        cameras_.clear();
        for (const v1::CameraSpec& each : opened.input().cameras().cameras()) {
          cameras_.push_back({each.name(), each.width(), each.height(), each.any_size()});
        }
        up_.notify_all();
        break;
      }
      case v1::ActStreamResponse::kChunk: Take(answer.chunk(), rows, dimensions); break;
      case v1::ActStreamResponse::kHold: {
        const Hold why = HoldOf(answer.hold().reason());
        const bool over = core_.over() != Hold::kNone;
        core_.TakeHold(answer.hold().episode(), answer.hold().step(), why);
        if (!over && core_.over() == Hold::kObservationRejected) Fail(Rejection(answer.hold().detail()), Hold::kObservationRejected);
        break;
      }
      case v1::ActStreamResponse::kEnded: core_.Ended(answer.ended().code().empty() ? Hold::kClosed : Hold::kRefused); break;
      default: break;
    }
  }

  // The caller holds the lock.
  void Take(const v1::LoopChunk& chunk, std::size_t rows, std::size_t dimensions) {
    const double at = Now() * 1000;
    ChunkFacts facts;
    facts.episode = chunk.episode();
    facts.start_step = chunk.start_step();
    facts.valid_until_step = chunk.valid_until_step();
    facts.dt_ms = chunk.action().dt_ms();
    facts.rows = static_cast<std::int32_t>(rows);
    // Measured with the loop's clock: the robot may timestamp its observations with another one.
    const Sensed& sensed = sensed_[chunk.start_step() % kMostSensed];
    if (sensed.step == facts.start_step) facts.observation_time = sensed.at;
    const Verdict verdict = core_.Chunk(at, facts);
    // Every received chunk is charged, executed or not. A replayed chunk was charged before.
    if (!chunk.replayed()) meter_.cost_usd += chunk.usage().cost_usd();
    if (chunk.has_route()) meter_.route = internal::RouteOf(chunk.route());
    if (verdict != Verdict::kTaken) {
      meter_.refused[static_cast<std::size_t>(verdict)] += 1;
      return;
    }
    meter_.chunks += 1;
    if (facts.observation_time) meter_.Age(at - *facts.observation_time);
    rows_.swap(coming_);
    dimensions_ = dimensions;
    until_ = facts.valid_until_step;
  }

  const std::shared_ptr<Connection> connection_;
  const LoopOptions options_;

  mutable std::mutex lock_;
  // Signal new outgoing messages, the end of a stream or of the loop, and the next step of a run.
  std::condition_variable up_;
  std::condition_variable ended_;
  std::condition_variable wake_;

  LoopCore core_;
  Meter meter_;
  const std::string session_;
  v1::LoopOpen open_;
  double deadline_s_ = 10;
  std::vector<CameraHint> cameras_;

  // The latest instruction, and how often it has changed.
  std::string instruction_;
  std::uint64_t instructed_ = 0;

  // The newest observation, not yet sent; and the one being sent, which only the stream's writer reads.
  Observation waiting_;
  std::int64_t waiting_step_ = 0;
  std::uint32_t waiting_episode_ = 1;
  bool waits_ = false;
  Observation leaving_;
  std::array<Sensed, kMostSensed> sensed_{};

  // The current chunk; the arriving one, which only the stream's reader writes; and the row that was returned.
  std::vector<double> rows_;
  std::size_t dimensions_ = 0;
  std::int64_t until_ = 0;
  std::vector<double> coming_;
  std::vector<double> action_;

  std::optional<double> began_;
  double last_ = 0;
  bool closing_ = false;
  bool interrupted_ = false;
  std::exception_ptr fatal_;
  std::thread keeper_;
  std::atomic<bool> started_{false};
  // Used only by the robot's thread.
  int runs_ = 0;
};

Loop::Loop(const Client& client, const std::string& model, LoopOptions options)
    : parts_(std::make_unique<Parts>(client.connection(), model, std::move(options))) {}

Loop::~Loop() { parts_->Close(); }

void Loop::Start() { parts_->Start(); }

Due Loop::Tick(const Observation& seen) { return parts_->Tick(seen); }

Outcome Loop::Run(const Observe& observe, const Act& act, double max_seconds) { return parts_->Run(observe, act, max_seconds); }

void Loop::Interrupt() { parts_->Interrupt(); }

std::uint32_t Loop::Reset(std::optional<std::string> instruction) { return parts_->Reset(std::move(instruction)); }

void Loop::Close() { parts_->Close(); }

LoopStats Loop::Stats() const { return parts_->Stats(); }

std::vector<CameraHint> Loop::Cameras() const { return parts_->Cameras(); }

const std::string& Loop::session() const noexcept { return parts_->session(); }

}  // namespace limber
