// Tests the client against an in-process server that sends invalid messages and records what it receives: `fake`. Exits with 1 if an expectation
// fails.
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <functional>
#include <limits>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "limber/limber.hpp"
#include "limber/v1/client.grpc.pb.h"

namespace {

namespace v1 = limber::v1;
using Stream = grpc::ServerReaderWriter<v1::ActStreamResponse, v1::ActStreamRequest>;
using Clock = std::chrono::steady_clock;

// Upper limit for every wait.
constexpr double kPatienceS = 60;

#define EXPECT(condition)                                                  \
  do {                                                                     \
    if (!(condition)) {                                                    \
      std::fprintf(stderr, "  line %d fails: %s\n", __LINE__, #condition); \
      throw std::runtime_error("an expectation failed");                   \
    }                                                                      \
  } while (false)

void Until(const std::function<bool()>& holds) {
  const auto began = Clock::now();
  while (!holds()) {
    EXPECT(std::chrono::duration<double>(Clock::now() - began).count() < kPatienceS);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

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
  throw std::runtime_error("nothing was thrown");
}

bool Has(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return true;
  std::fprintf(stderr, "  message: %s\n", text.c_str());
  return false;
}

v1::ActStreamResponse Opened(std::uint32_t episode = 1) {
  v1::ActStreamResponse answer;
  answer.mutable_opened()->set_episode(episode);
  answer.mutable_opened()->set_deadline_ms(5000);
  auto* camera = answer.mutable_opened()->mutable_input()->mutable_cameras()->add_cameras();
  camera->set_name("wrist");
  camera->set_width(224);
  camera->set_height(224);
  return answer;
}

v1::ActStreamResponse Chunk(std::uint32_t step, std::uint32_t episode = 1) {
  v1::ActStreamResponse answer;
  v1::LoopChunk& chunk = *answer.mutable_chunk();
  chunk.set_start_step(step);
  chunk.set_valid_until_step(step + 1000);
  chunk.set_episode(episode);
  chunk.mutable_action()->set_dt_ms(1000);
  for (int i = 0; i < 100; ++i) {
    v1::ActionStep& row = *chunk.mutable_action()->add_steps();
    row.add_values(i);
    row.add_values(-i);
  }
  return answer;
}

// A server whose loops follow a test's script.
class Server final : public v1::InferenceService::Service {
 public:
  using Script = std::function<grpc::Status(Stream&)>;

  explicit Server(Script script) : script_(std::move(script)) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~Server() override { server_->Shutdown(Clock_()); }

  grpc::Status ActStream(grpc::ServerContext*, Stream* stream) override {
    {
      const std::lock_guard<std::mutex> hold(lock_);
      streams_ += 1;
    }
    return script_(*stream);
  }

  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
  int streams() const {
    const std::lock_guard<std::mutex> hold(lock_);
    return streams_;
  }

 private:
  static std::chrono::system_clock::time_point Clock_() { return std::chrono::system_clock::now(); }

  Script script_;
  int port_ = 0;
  mutable std::mutex lock_;
  int streams_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

// Reads the opening message and confirms that the loop is open.
bool Open(Stream& stream, v1::ActStreamRequest& first) {
  return stream.Read(&first) && stream.Write(Opened(first.open().episode()));
}

limber::LoopOptions At100() {
  limber::LoopOptions options;
  options.rate_hz = 100;
  options.connect_timeout_s = 2;
  return options;
}

limber::Observation Seen() {
  limber::Observation seen;
  seen.state = {1, 2, 3};
  return seen;
}

// Ticks a loop until it throws, and returns the message.
template <typename Thrown>
std::string Ends(const Server& server, limber::LoopOptions options = At100()) {
  const limber::Client client(server.url(), "lmb_sk_test");
  limber::Loop loop(client, "a/b", std::move(options));
  const std::string text = Throws<Thrown>([&] {
    Until([&] {
      EXPECT(!loop.Tick(Seen()));
      return false;
    });
  });
  EXPECT(loop.Stats().actions == 0);
  return text;
}

// Answers the first observation.
Server::Script Answers(const std::function<v1::ActStreamResponse(std::uint32_t)>& answer) {
  return [answer](Stream& stream) {
    v1::ActStreamRequest received;
    if (!Open(stream, received)) return grpc::Status::OK;
    while (stream.Read(&received)) {
      if (received.has_observation()) stream.Write(answer(received.observation().step()));
    }
    return grpc::Status::OK;
  };
}

void AnInvalidChunkEndsTheLoopWithAHold() {
  const std::pair<const char*, std::function<void(v1::Action&)>> wrong[] = {
      {"not finite", [](v1::Action& action) { action.mutable_steps(7)->set_values(1, std::numeric_limits<double>::quiet_NaN()); }},
      {"not finite", [](v1::Action& action) { action.mutable_steps(0)->set_values(0, std::numeric_limits<double>::infinity()); }},
      {"different lengths", [](v1::Action& action) { action.mutable_steps(3)->add_values(1); }},
      {"different lengths", [](v1::Action& action) { action.mutable_steps(0)->clear_values(); }},
      {"no steps", [](v1::Action& action) { action.clear_steps(); }},
  };
  for (const auto& [words, spoil] : wrong) {
    const Server server(Answers([spoil = spoil](std::uint32_t step) {
      v1::ActStreamResponse answer = Chunk(step);
      spoil(*answer.mutable_chunk()->mutable_action());
      return answer;
    }));
    EXPECT(Has(Ends<limber::MalformedAnswer>(server), words));
  }
}

void OpeningInAnotherEpisodeEndsTheLoop() {
  const Server server([](Stream& stream) {
    v1::ActStreamRequest received;
    stream.Read(&received);
    stream.Write(Opened(7));
    while (stream.Read(&received)) {
    }
    return grpc::Status::OK;
  });
  EXPECT(Has(Ends<limber::MalformedAnswer>(server), "opened in episode 7"));
}

void ChunksOfOtherStepsAndEpisodesAreNotExecuted() {
  const Server server(Answers([](std::uint32_t step) { return step % 2 == 0 ? Chunk(step + 100000) : Chunk(step, 2); }));
  const limber::Client client(server.url(), "lmb_sk_test");
  limber::Loop loop(client, "a/b", At100());
  Until([&] {
    EXPECT(!loop.Tick(Seen()));
    return loop.Stats().refused_chunks.size() == 2;
  });
  EXPECT(loop.Stats().chunks == 0);
}

void ReconnectsBackOffIfEveryStreamEnds() {
  const Server server([](Stream& stream) {
    v1::ActStreamRequest received;
    Open(stream, received);
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "going away");
  });
  const limber::Client client(server.url(), "lmb_sk_test");
  limber::Loop loop(client, "a/b", At100());
  const auto began = Clock::now();
  Until([&] {
    loop.Tick(Seen());
    return server.streams() >= 5;
  });
  // The delay between two attempts is at least 50 ms, and later ones are longer.
  const int streams = server.streams();
  EXPECT(streams <= 2 + std::chrono::duration<double>(Clock::now() - began).count() / 0.05);
}

void AnswersThatNoGatewaySendsAreMalformed() {
  const Server odd([](Stream&) { return grpc::Status(grpc::StatusCode::INTERNAL, "odd"); });
  EXPECT(Has(Ends<limber::MalformedAnswer>(odd), "not a Limber gateway"));
  const Server details([](Stream&) { return grpc::Status(grpc::StatusCode::INTERNAL, "odd", "\xff\xff\xff"); });
  EXPECT(Has(Ends<limber::MalformedAnswer>(details), "not a Limber gateway"));
  const limber::Client client(odd.url(), "lmb_sk_test");
  // The server does not implement Act.
  Throws<limber::MalformedAnswer>([&] { client.Act("a/b", Seen()); });
}

std::string Refusal(const std::string& code) {
  v1::RpcErrorInfo info;
  info.set_reason(code);
  (*info.mutable_metadata())["request_id"] = "req_1";
  v1::RpcStatus status;
  status.set_message("the test says no");
  google::protobuf::Any& any = *status.add_details();
  any.set_type_url("type.googleapis.com/google.rpc.ErrorInfo");
  any.set_value(info.SerializeAsString());
  return status.SerializeAsString();
}

void OnlyPermanentRefusalsEndTheLoop() {
  const Server server([](Stream&) { return grpc::Status(grpc::StatusCode::UNAUTHENTICATED, "no", Refusal("key_disabled")); });
  EXPECT(Ends<limber::AuthenticationError>(server) == "key_disabled: the test says no");
  const Server later([](Stream&) { return grpc::Status(grpc::StatusCode::ABORTED, "no", Refusal("of_a_later_version")); });
  EXPECT(Ends<limber::Refused>(later) == "of_a_later_version: the test says no");
  // The refusal of a gateway for images of an unknown camera.
  const Server strict([](Stream&) { return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "no", Refusal("input_contract")); });
  EXPECT(Ends<limber::ValidationError>(strict) == "input_contract: the test says no");
  int attempts = 0;
  const Server busy([&attempts](Stream& stream) {
    if (++attempts < 3) return grpc::Status(grpc::StatusCode::UNAVAILABLE, "no", Refusal("overloaded"));
    return Answers([](std::uint32_t step) { return Chunk(step); })(stream);
  });
  const limber::Client client(busy.url(), "lmb_sk_test");
  limber::Loop loop(client, "a/b", At100());
  Until([&] { return static_cast<bool>(loop.Tick(Seen())); });
}

void AServerThatDoesNotReadDelaysNoControlStep() {
  std::mutex lock;
  std::condition_variable news;
  bool reads = false;
  const Server server([&](Stream& stream) {
    v1::ActStreamRequest received;
    if (!Open(stream, received)) return grpc::Status::OK;
    std::unique_lock<std::mutex> hold(lock);
    news.wait(hold, [&] { return reads; });
    hold.unlock();
    while (stream.Read(&received)) {
      if (received.has_observation()) stream.Write(Chunk(received.observation().step()));
    }
    return grpc::Status::OK;
  });
  {
    const limber::Client client(server.url(), "lmb_sk_test");
    limber::Loop loop(client, "a/b", At100());
    limber::Observation seen = Seen();
    seen.images.push_back({"wrist", "\xff\xd8\xff" + std::string(1000000, 'x')});
    // Flow control stops the sender, so a newer observation replaces the queued one.
    Until([&] {
      loop.Tick(seen);
      return loop.Stats().replaced > 20;
    });
    {
      const std::lock_guard<std::mutex> hold(lock);
      reads = true;
    }
    news.notify_all();
    Until([&] { return static_cast<bool>(loop.Tick(seen)); });
  }
}

void ObservationsAreSentUnchanged() {
  std::mutex lock;
  std::vector<v1::ActStreamRequest> received;
  const Server server([&](Stream& stream) {
    v1::ActStreamRequest message;
    if (!Open(stream, message)) return grpc::Status::OK;
    {
      const std::lock_guard<std::mutex> hold(lock);
      received.push_back(message);
    }
    while (stream.Read(&message)) {
      if (message.has_observation()) stream.Write(Chunk(message.observation().step(), 1));
      const std::lock_guard<std::mutex> hold(lock);
      received.push_back(message);
    }
    return grpc::Status::OK;
  });
  const auto count_of = [&](const std::function<bool(const v1::ActStreamRequest&)>& is) {
    const std::lock_guard<std::mutex> hold(lock);
    int times = 0;
    for (const v1::ActStreamRequest& each : received) times += is(each) ? 1 : 0;
    return times;
  };
  limber::LoopOptions options = At100();
  options.instruction = "wait";
  options.robot = "arm-1";
  options.session = "s1";
  options.action_space = "joint_pos_7";
  options.bounds = limber::Bounds{{-1}, {1}, 0.5, {}};
  options.provider.only = {"acme"};
  limber::Observation seen = Seen();
  seen.state_names = {"a", "b", "c"};
  seen.gripper = 0.25;
  seen.tactile = {9};
  seen.images.push_back({"wrist", "\xff\xd8\xff picture"});
  seen.depth.push_back({"wrist", "\x89PNG\r\n\x1a\n depth"});
  {
    const limber::Client client(server.url(), "lmb_sk_test");
    limber::Loop loop(client, "a/b", options);
    Until([&] { return loop.Tick(seen).dimensions == 2; });
    EXPECT(loop.Cameras().size() == 1 && loop.Cameras()[0].camera == "wrist" && loop.Cameras()[0].width == 224);
    EXPECT(loop.session() == "s1");
    seen.instruction = "fold";
    Until([&] {
      loop.Tick(seen);
      return count_of([](const auto& each) { return each.has_observation() && each.observation().has_instruction(); }) > 0;
    });
    EXPECT(loop.Reset("unfold") == 2);
    seen.instruction.reset();
    seen.images.clear();
    Until([&] {
      // A chunk of the previous episode is not executed.
      EXPECT(!loop.Tick(seen));
      return count_of([](const auto& each) { return each.has_observation() && each.observation().observations(0).frames_size() == 0; }) > 0;
    });
  }
  Until([&] { return count_of([](const auto& each) { return each.has_close(); }) == 1; });
  const v1::LoopOpen& open = received.at(0).open();
  EXPECT(open.model() == "a/b" && open.robot_id() == "arm-1" && open.provider().session_id() == "s1" && open.provider().only(0) == "acme");
  EXPECT(open.instruction() == "wait" && open.action_space() == "joint_pos_7" && open.bounds().max_change() == 0.5 && open.episode() == 1);
  const v1::LoopObservation& first = received.at(1).observation();
  const v1::Observation& moment = first.observations(0);
  EXPECT(!first.has_instruction() && moment.proprio_size() == 3 && moment.proprio(2) == 3 && moment.proprio_names(1) == "b");
  EXPECT(moment.gripper() == 0.25 && moment.tactile(0) == 9 && moment.has_t_ms());
  EXPECT(moment.frames(0).camera() == "wrist" && moment.frames(0).data() == "\xff\xd8\xff picture" && moment.depth_size() == 1);
  // Each instruction is sent once: by an observation and by a reset.
  EXPECT(count_of([](const auto& each) { return each.has_observation() && each.observation().has_instruction(); }) == 1);
  EXPECT(count_of([](const auto& each) { return each.has_reset() && each.reset().episode() == 2 && each.reset().instruction() == "unfold"; }) == 1);
}

void NeitherThreadWaitsForTheOther() {
  const Server server(Answers([](std::uint32_t step) { return Chunk(step); }));
  const limber::Client client(server.url(), "lmb_sk_test");
  for (int i = 0; i < 20; ++i) {
    limber::LoopOptions options = At100();
    options.rate_hz = 10000;
    limber::Loop loop(client, "a/b", options);
    std::vector<std::thread> others;
    for (int each = 0; each < 3; ++each) {
      others.emplace_back([&loop, each] {
        for (int turn = 0; turn < 50; ++turn) {
          loop.Stats();
          if (each == 0) loop.Reset("again");
          if (each == 1) loop.Cameras();
        }
        if (each == 2) loop.Interrupt();
      });
    }
    for (int step = 0; step < 500; ++step) loop.Tick(Seen());
    for (std::thread& each : others) each.join();
    EXPECT(!loop.Tick(Seen()));
    if (i % 2 == 0) loop.Close();
  }
}

}  // namespace

int main(int count, char** arguments) {
  const std::pair<const char*, void (*)()> tests[] = {
#define TEST(name) {#name, name}
      TEST(AnInvalidChunkEndsTheLoopWithAHold),
      TEST(OpeningInAnotherEpisodeEndsTheLoop),
      TEST(ChunksOfOtherStepsAndEpisodesAreNotExecuted),
      TEST(ReconnectsBackOffIfEveryStreamEnds),
      TEST(AnswersThatNoGatewaySendsAreMalformed),
      TEST(OnlyPermanentRefusalsEndTheLoop),
      TEST(AServerThatDoesNotReadDelaysNoControlStep),
      TEST(ObservationsAreSentUnchanged),
      TEST(NeitherThreadWaitsForTheOther),
  };
  int failed = 0;
  for (const auto& [name, test] : tests) {
    if (count > 1 && std::string(name).find(arguments[1]) == std::string::npos) continue;
    bool passed = false;
    try {
      test();
      passed = true;
    } catch (const std::exception& error) {
      std::fprintf(stderr, "  %s\n", error.what());
    }
    failed += passed ? 0 : 1;
    std::printf("%s %s\n", passed ? "passed" : "FAILED", name);
    std::fflush(stdout);
  }
  return failed == 0 ? 0 : 1;
}
