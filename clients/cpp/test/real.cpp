// Tests the client against a real gateway with the reference provider: `real`, with LIMBER_URL and LIMBER_KEY. Exits with 1 if an expectation fails.
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <future>
#include <limits>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "limber/limber.hpp"
#include "relay.hpp"
#include "wheeled_base.hpp"

namespace {
// Counts only this thread's allocations, not those of gRPC's threads.
thread_local long allocations = 0;
}  // namespace

void* operator new(std::size_t size) {
  ++allocations;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
void* operator new(std::size_t size, std::align_val_t alignment) {
  ++allocations;
  const auto to = static_cast<std::size_t>(alignment);
  if (void* memory = std::aligned_alloc(to, (size + to - 1) / to * to)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace {

const std::string kNav = "reference/potential-nav";
const std::vector<double> kState = {0, 0, 0, 2, 0, 0};
// Upper limit for every wait.
constexpr double kPatienceS = 60;

int failed = 0;

#define EXPECT(condition)                                                  \
  do {                                                                     \
    if (!(condition)) {                                                    \
      std::fprintf(stderr, "  line %d fails: %s\n", __LINE__, #condition); \
      throw std::runtime_error("an expectation failed");                   \
    }                                                                      \
  } while (false)

using Clock = std::chrono::steady_clock;

void Pause(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

// Repeats an action at a robot's rate until the condition is met.
void Until(const std::function<bool()>& holds) {
  const auto began = Clock::now();
  while (!holds()) {
    EXPECT(std::chrono::duration<double>(Clock::now() - began).count() < kPatienceS);
    Pause(0.005);
  }
}

// Returns the message of the exception that an action throws.
template <typename Thrown>
std::string Throws(const std::function<void()>& action) {
  try {
    action();
  } catch (const Thrown& error) {
    return error.what();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "  unexpected exception: %s\n", error.what());
    throw;
  }
  std::fprintf(stderr, "  nothing was thrown\n");
  throw std::runtime_error("nothing was thrown");
}

bool Has(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return true;
  std::fprintf(stderr, "  message: %s\n", text.c_str());
  return false;
}

std::string url;
std::string key;

limber::Client Real() { return limber::Client(url, key); }

limber::Observation Seen() {
  limber::Observation seen;
  seen.state = kState;
  return seen;
}

limber::LoopOptions At50() {
  limber::LoopOptions options;
  options.rate_hz = 50;
  options.action_space = "base_twist_2d";
  return options;
}

limber::ActOptions Twist() {
  limber::ActOptions options;
  options.action_space = "base_twist_2d";
  return options;
}

void ActReturnsAChunk() {
  limber::ActOptions options = Twist();
  options.horizon = 4;
  const limber::Chunk chunk = Real().Act(kNav, Seen(), options);
  EXPECT(chunk.rows == 4 && chunk.dimensions == 2 && chunk.values.size() == 8);
  EXPECT(!chunk.route.simulated && chunk.cost_usd > 0 && chunk.dt_s > 0 && !chunk.id.empty());
  EXPECT(std::abs(chunk.row(3)[0]) <= 1);
}

void TheSameIdempotencyKeyReturnsTheSameAnswer() {
  limber::ActOptions options = Twist();
  options.idempotency_key = "cpp-" + std::to_string(Clock::now().time_since_epoch().count());
  const limber::Client client = Real();
  EXPECT(client.Act(kNav, Seen(), options).id == client.Act(kNav, Seen(), options).id);
  limber::Observation other = Seen();
  other.state[0] = 1;
  Throws<limber::ConflictError>([&] { client.Act(kNav, other, options); });
}

void RefusalsAreExceptionsOfTheirFamily() {
  const limber::Client client = Real();
  limber::ActOptions options = Twist();
  options.provider.max_latency_ms = 1;
  try {
    client.Act(kNav, Seen(), options);
    EXPECT(false);
  } catch (const limber::RoutingError& refused) {
    EXPECT(refused.code() == "no_route_available" && refused.refusal().status == 409);
    EXPECT(!refused.refusal().details.dropped.empty() && !refused.refusal().request_id.empty());
    EXPECT(refused.suggestions().at(0).field == "provider.max_latency_ms");
    EXPECT(Has(refused.what(), "to admit"));
  }
  EXPECT(Has(Throws<limber::NotFoundError>([&] { client.Act("reference/potentialnav", Seen(), Twist()); }), "reference/potential-nav"));
  EXPECT(Has(Throws<limber::AuthenticationError>([] { limber::Client(url, "lmb_sk_wrong").Act(kNav, Seen(), Twist()); }), "invalid_api_key"));
  options = Twist();
  options.horizon = 9999;
  Throws<limber::ValidationError>([&] { client.Act(kNav, Seen(), options); });
}

void ModelsAreListed() {
  limber::ModelsOptions options;
  options.query = "potential";
  options.contract = limber::Contract::kAct;
  bool found = false;
  for (const limber::Model& each : Real().Models(options)) found = found || (each.id == kNav && !each.providers.empty());
  EXPECT(found);
}

// A PNG of 128 x 128 pixels with a red square of 32 x 32 on gray.
std::string RedSquare();

void GroundLocatesAnInstruction() {
  limber::Observation seen;
  seen.images.push_back({"front", RedSquare()});
  const limber::Grounding found = Real().Ground(seen, "point at the red square");
  EXPECT(found.points.size() == 1 && found.boxes.size() == 1 && found.cost_usd > 0);
  EXPECT(std::abs(found.points[0].x - 0.375) < 0.06 && std::abs(found.points[0].y - 0.625) < 0.06);
  EXPECT(found.points[0].camera == "front");
}

void InvalidInputThrowsBadInput() {
  const limber::Client client = Real();
  limber::Observation seen = Seen();
  seen.state[2] = std::numeric_limits<double>::quiet_NaN();
  EXPECT(Has(Throws<limber::BadInput>([&] { client.Act(kNav, seen, Twist()); }), "state[2] must be finite, got nan"));
  limber::Loop loop(client, kNav, At50());
  EXPECT(Has(Throws<limber::BadInput>([&] { loop.Tick(seen); }), "state[2] must be finite, got nan"));
  seen = Seen();
  seen.images.push_back({"front", "not a picture"});
  EXPECT(Has(Throws<limber::BadInput>([&] { loop.Tick(seen); }), "images['front'] must be an encoded JPEG"));
  seen = Seen();
  seen.state.resize(5000);
  Throws<limber::BadInput>([&] { loop.Tick(seen); });
  // None of these errors ended the loop.
  Until([&] { return static_cast<bool>(loop.Tick(Seen())); });
  limber::LoopOptions options = At50();
  options.rate_hz = 0;
  Throws<limber::BadInput>([&] { limber::Loop(client, kNav, options); });
  options = At50();
  options.bounds = limber::Bounds{{1}, {-1}, {}, {}};
  EXPECT(Has(Throws<limber::BadInput>([&] { limber::Loop(client, kNav, options); }), "bounds.lowest[0]"));
  for (const char* wrong : {"", "127.0.0.1:8080", "http://", "http://a:b", "http://a:70000", "http://a/v1", "http://u@a:1", "ftp://a"}) {
    Throws<limber::BadInput>([&] { limber::Client(wrong, key); });
  }
  Throws<limber::BadInput>([] { limber::Client(url, "lmb_sk_x\n"); });
}

void ALoopDrivesARobotAroundASquare() {
  WheeledBase base;
  limber::LoopOptions options = At50();
  options.robot = "cpp-driver";
  options.bounds = limber::Bounds{{-WheeledBase::kMostSpeed, -WheeledBase::kMostTurn}, {WheeledBase::kMostSpeed, WheeledBase::kMostTurn}, {}, {}};
  const limber::Client client = Real();
  limber::Loop loop(client, kNav, options);
  const limber::Outcome outcome = loop.Run(
      [&](limber::Observation& seen) {
        base.Sense(seen.state);
        return base.corners() < 1;
      },
      [&](const limber::Due& due) { due ? base.Drive(due.action) : base.Brake(); }, kPatienceS);
  EXPECT(outcome.ended == limber::Ended::kDone && base.stands() && base.beyond() <= 1e-9);
  EXPECT(outcome.stats.stale_actions == 0 && outcome.stats.cost_usd > 0 && outcome.stats.chunks > 0);
  EXPECT(outcome.stats.route && outcome.stats.route->model == kNav);
}

void ATickAllocatesNothing() {
  const limber::Client client = Real();
  limber::Loop loop(client, kNav, At50());
  limber::Observation seen = Seen();
  // By then, both reused observations have held one of this size.
  Until([&] { return loop.Tick(seen) && loop.Stats().chunks > 10; });
  long most = 0;
  int acted = 0;
  for (int i = 0; i < 250; ++i) {
    seen.state[0] = i * 0.001;
    const long before = allocations;
    const limber::Due due = loop.Tick(seen);
    most = std::max(most, allocations - before);
    acted += due ? 1 : 0;
    Pause(0.02);
  }
  EXPECT(most == 0);
  EXPECT(acted > 0);
}

// Waits for another stream after a broken one. The hold in between lasts too short to be seen on a busy machine.
void UntilReopened(limber::Loop& loop, const limber::Observation& seen, std::uint64_t streams) {
  Until([&] {
    loop.Tick(seen);
    return loop.Stats().streams > streams;
  });
}

void BrokenConnectionsAreReopened() {
  Relay relay(std::atoi(url.substr(url.rfind(':') + 1).c_str()));
  const limber::Client client(relay.url(), key);
  limber::Loop loop(client, kNav, At50());
  const limber::Observation seen = Seen();
  for (int cut = 1; cut <= 3; ++cut) {
    Until([&] { return static_cast<bool>(loop.Tick(seen)); });
    const std::uint64_t streams = loop.Stats().streams;
    relay.Cut();
    UntilReopened(loop, seen, streams);
  }
  Until([&] { return static_cast<bool>(loop.Tick(seen)); });
  const limber::LoopStats stats = loop.Stats();
  EXPECT(stats.streams >= 4 && stats.stale_actions == 0);
}

void TheNextReplicaReplacesADeadOne() {
  auto relay = std::make_unique<Relay>(std::atoi(url.substr(url.rfind(':') + 1).c_str()));
  const limber::Client client({relay->url(), url}, key);
  limber::Loop loop(client, kNav, At50());
  const limber::Observation seen = Seen();
  Until([&] { return static_cast<bool>(loop.Tick(seen)); });
  const std::uint64_t streams = loop.Stats().streams;
  relay.reset();
  UntilReopened(loop, seen, streams);
  Until([&] { return static_cast<bool>(loop.Tick(seen)); });
  EXPECT(loop.Tick(seen).episode == 1);
  // A unary call uses the same address.
  EXPECT(client.Act(kNav, seen, Twist()).rows > 0);
}

void ALoopLeavesASilentGateway() {
  Relay relay(std::atoi(url.substr(url.rfind(':') + 1).c_str()));
  const limber::Client client(relay.url(), key);
  limber::LoopOptions options = At50();
  options.provider.deadline_ms = 300;
  limber::Loop loop(client, kNav, options);
  const limber::Observation seen = Seen();
  Until([&] { return static_cast<bool>(loop.Tick(seen)); });
  relay.Silence(true);
  // The dead connection is silent, and no row is left.
  Until([&] { return loop.Tick(seen).hold == limber::Hold::kDisconnected; });
  relay.Silence(false);
  relay.Cut();
  Until([&] { return static_cast<bool>(loop.Tick(seen)); });
}

void AnInterruptHoldsTheRobot() {
  const limber::Client client = Real();
  limber::Loop loop(client, kNav, At50());
  std::vector<limber::Hold> holds;
  const std::future<void> other = std::async(std::launch::async, [&] {
    Until([&] { return loop.Stats().actions > 3; });
    loop.Interrupt();
  });
  const limber::Outcome outcome = loop.Run(
      [&](limber::Observation& seen) {
        seen.state = kState;
        return true;
      },
      [&](const limber::Due& due) { holds.push_back(due.hold); }, kPatienceS);
  EXPECT(outcome.ended == limber::Ended::kInterrupted && holds.back() == limber::Hold::kInterrupted);
  EXPECT(!loop.Tick(Seen()));
}

void ACallbackExceptionEndsTheRunWithAHold() {
  const limber::Client client = Real();
  limber::Loop loop(client, kNav, At50());
  limber::Hold last = limber::Hold::kNone;
  EXPECT(Throws<std::runtime_error>([&] {
          loop.Run([](limber::Observation&) -> bool { throw std::runtime_error("the camera is gone"); },
                   [&](const limber::Due& due) { last = due.hold; }, kPatienceS);
        }) == "the camera is gone");
  EXPECT(last == limber::Hold::kFailed);
}

void AStopEndsTheLoop() {
  const limber::Client client = Real();
  const std::string name = "cpp-" + std::to_string(Clock::now().time_since_epoch().count());
  limber::LoopOptions options = At50();
  options.robot = name;
  limber::Loop loop(client, kNav, options);
  const limber::Observation seen = Seen();
  Until([&] { return static_cast<bool>(loop.Tick(seen)); });
  EXPECT(client.StopRobot(name, "a hand").subject == name);
  const std::string text = Throws<limber::Refused>([&] {
    Until([&] {
      loop.Tick(seen);
      return false;
    });
  });
  EXPECT(Has(text, "robot_stopped"));
  // Every tick throws.
  Throws<limber::Refused>([&] { loop.Tick(seen); });
  // A stop is active before it is persisted.
  Until([&] {
    try {
      return client.ReleaseRobot(name).released;
    } catch (const limber::NotFoundError&) {
      return false;
    }
  });
}

void AChangedStateShapeEndsTheLoop() {
  const limber::Client client = Real();
  limber::Loop loop(client, kNav, At50());
  limber::Observation seen = Seen();
  Until([&] { return static_cast<bool>(loop.Tick(seen)); });
  seen.state = {1, 2};
  EXPECT(Has(Throws<limber::ObservationRejected>([&] {
              Until([&] {
                loop.Tick(seen);
                return false;
              });
            }),
            "observations"));
}

void AClockJumpEndsTheLoop() {
  const double inf = std::numeric_limits<double>::infinity();
  for (const double jump : {-1.0, 1e18, inf, std::nan("")}) {
    std::atomic<double> now{1000};
    limber::LoopOptions options = At50();
    options.clock = [&now] { return now.load(); };
    const limber::Client client = Real();
    limber::Loop loop(client, kNav, options);
    loop.Tick(Seen());
    now = 1000 + jump;
    EXPECT(Has(Throws<limber::ClockJumped>([&] { loop.Tick(Seen()); }), "clock"));
    Throws<limber::ClockJumped>([&] { loop.Tick(Seen()); });
  }
}

void AResetBeginsAnEpisode() {
  const limber::Client client = Real();
  limber::Loop loop(client, kNav, At50());
  const limber::Observation seen = Seen();
  Until([&] { return static_cast<bool>(loop.Tick(seen)); });
  EXPECT(loop.Reset("go on") == 2);
  EXPECT(!loop.Tick(seen));
  Until([&] { return static_cast<bool>(loop.Tick(seen)); });
  EXPECT(loop.Tick(seen).episode == 2);
}

void BoundsHoldTheRobot() {
  limber::LoopOptions options = At50();
  options.bounds = limber::Bounds{{-1e-6}, {1e-6}, {}, {}};
  const limber::Client client = Real();
  limber::Loop loop(client, kNav, options);
  Until([&] { return loop.Tick(Seen()).hold == limber::Hold::kOutOfBounds; });
  EXPECT(loop.Stats().actions == 0);
}

void AServerThatIsNotAGatewayIsReported() {
  limber::ClientOptions options;
  options.retries = 0;
  options.timeout_s = 5;
  Throws<limber::ConnectionFailed>([&] { limber::Client("http://127.0.0.1:1", key, options).Act(kNav, Seen(), Twist()); });
  Relay garbage(0, "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello");
  Throws<limber::Error>([&] { limber::Client(garbage.url(), key, options).Act(kNav, Seen(), Twist()); });
  limber::LoopOptions looped = At50();
  looped.connect_timeout_s = 1;
  const limber::Client client(garbage.url(), key, options);
  limber::Loop loop(client, kNav, looped);
  Throws<limber::Error>([&] {
    Until([&] {
      loop.Tick(Seen());
      return false;
    });
  });
}

void ALoopEndsIfTheGatewayIsSilent() {
  Relay relay(std::atoi(url.substr(url.rfind(':') + 1).c_str()));
  relay.Silence(true);
  const limber::Client client(relay.url(), key);
  limber::Loop loop(client, kNav, At50());
  EXPECT(loop.Tick(Seen()).hold == limber::Hold::kConnecting);
  loop.Close();
  EXPECT(loop.Tick(Seen()).hold == limber::Hold::kClosed);
  Throws<limber::BadInput>([&] { loop.Start(); });
}

// A PNG without compression: stored zlib blocks.
std::string RedSquare() {
  constexpr int kSide = 128;
  const auto big = [](std::uint32_t value) {
    return std::string{static_cast<char>(value >> 24), static_cast<char>(value >> 16), static_cast<char>(value >> 8), static_cast<char>(value)};
  };
  const auto chunk = [&big](const std::string& kind, const std::string& data) {
    std::uint32_t sum = 0xffffffffU;
    for (const char each : kind + data) {
      sum ^= static_cast<unsigned char>(each);
      for (int bit = 0; bit < 8; ++bit) sum = sum >> 1 ^ ((sum & 1U) != 0 ? 0xedb88320U : 0U);
    }
    return big(static_cast<std::uint32_t>(data.size())) + kind + data + big(~sum);
  };
  std::string rows;
  for (int y = 0; y < kSide; ++y) {
    rows += '\0';
    for (int x = 0; x < kSide; ++x) {
      const bool red = x >= 32 && x < 64 && y >= 64 && y < 96;
      rows += static_cast<char>(red ? 220 : 200);
      rows += static_cast<char>(red ? 20 : 200);
      rows += static_cast<char>(red ? 20 : 200);
    }
  }
  std::string packed = "\x78\x01";
  std::uint32_t a = 1, b = 0;
  for (const char each : rows) {
    a = (a + static_cast<unsigned char>(each)) % 65521;
    b = (b + a) % 65521;
  }
  for (std::size_t at = 0; at < rows.size(); at += 65535) {
    const std::size_t size = std::min<std::size_t>(65535, rows.size() - at);
    packed += at + size == rows.size() ? '\1' : '\0';
    packed += static_cast<char>(size & 255U);
    packed += static_cast<char>(size >> 8);
    packed += static_cast<char>(~size & 255U);
    packed += static_cast<char>(~size >> 8 & 255U);
    packed += rows.substr(at, size);
  }
  packed += big(b << 16 | a);
  return "\x89PNG\r\n\x1a\n" + chunk("IHDR", big(kSide) + big(kSide) + std::string("\x08\x02\x00\x00\x00", 5)) + chunk("IDAT", packed) +
         chunk("IEND", "");
}

}  // namespace

int main(int count, char** arguments) {
  const char* where = std::getenv("LIMBER_URL");
  const char* secret = std::getenv("LIMBER_KEY");
  if (where == nullptr || secret == nullptr) {
    std::fprintf(stderr, "LIMBER_URL and LIMBER_KEY must be set; check.sh starts a gateway\n");
    return 2;
  }
  url = where;
  key = secret;
  const std::pair<const char*, void (*)()> tests[] = {
#define TEST(name) {#name, name}
      TEST(ActReturnsAChunk),
      TEST(TheSameIdempotencyKeyReturnsTheSameAnswer),
      TEST(RefusalsAreExceptionsOfTheirFamily),
      TEST(ModelsAreListed),
      TEST(GroundLocatesAnInstruction),
      TEST(InvalidInputThrowsBadInput),
      TEST(ALoopDrivesARobotAroundASquare),
      TEST(ATickAllocatesNothing),
      TEST(BrokenConnectionsAreReopened),
      TEST(TheNextReplicaReplacesADeadOne),
      TEST(ALoopLeavesASilentGateway),
      TEST(AnInterruptHoldsTheRobot),
      TEST(ACallbackExceptionEndsTheRunWithAHold),
      TEST(AStopEndsTheLoop),
      TEST(AChangedStateShapeEndsTheLoop),
      TEST(AClockJumpEndsTheLoop),
      TEST(AResetBeginsAnEpisode),
      TEST(BoundsHoldTheRobot),
      TEST(AServerThatIsNotAGatewayIsReported),
      TEST(ALoopEndsIfTheGatewayIsSilent),
  };
  for (const auto& [name, test] : tests) {
    // An argument selects the tests whose names contain it.
    if (count > 1 && std::string(name).find(arguments[1]) == std::string::npos) continue;
    const auto began = Clock::now();
    bool passed = false;
    try {
      test();
      passed = true;
    } catch (const std::exception& error) {
      std::fprintf(stderr, "  %s\n", error.what());
    }
    failed += passed ? 0 : 1;
    std::printf("%s %s (%.1f s)\n", passed ? "passed" : "FAILED", name, std::chrono::duration<double>(Clock::now() - began).count());
    std::fflush(stdout);
  }
  return failed == 0 ? 0 : 1;
}
