// Compares the cost of a control step with bare stubs: `bench [STEPS]`. Prints the calling thread's CPU time in microseconds per step. `core` only
// decides; `tick` accepts an observation, decides and passes it to the sender; `stub` fills and serializes the same message by hand. The same again
// with an image of 20 kB. With LIMBER_URL and LIMBER_KEY it also runs a loop at 1000 Hz, with received chunks and returned rows. Otherwise no
// gateway is used, because the cost of a stream is equal in both cases.
#include <time.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "limber/limber.hpp"
#include "limber/v1/client.pb.h"

namespace {

double CpuUs() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

template <typename Step>
void Cost(const char* name, int steps, Step step) {
  for (int i = 0; i < 1000; ++i) step(i);
  const double began = CpuUs();
  for (int i = 1000; i < 1000 + steps; ++i) step(i);
  std::printf("%-32s %8.3f us\n", name, (CpuUs() - began) / steps);
}

// Prevents the compiler from removing the computation.
volatile std::size_t sink = 0;

}  // namespace

int main(int count, char** arguments) {
  const int steps = count > 1 ? std::atoi(arguments[1]) : 200000;
  limber::LoopCore core(1000);
  core.Opened(100);
  core.Tick(0);
  Cost("core", steps, [&](int i) {
    if (i > 0 && i % 8 == 0) {
      limber::ChunkFacts chunk;
      chunk.start_step = i - 1;
      chunk.valid_until_step = i + 15;
      chunk.dt_ms = 1;
      chunk.rows = 16;
      core.Chunk(i, chunk);
    }
    sink = static_cast<std::size_t>(core.Tick(i).step);
  });
  for (const bool pictured : {false, true}) {
    limber::Observation seen;
    seen.state = {0, 1, 2, 3, 4, 5, 6};
    if (pictured) seen.images.push_back({"front", "\xff\xd8\xff" + std::string(20000, 'x')});
    const std::string with = pictured ? ", with image" : ", seven numbers";
    std::string bytes;
    limber::v1::ActStreamRequest kept;
    const auto fill = [&](limber::v1::ActStreamRequest& message, int i) {
      limber::v1::LoopObservation& up = *message.mutable_observation();
      up.set_step(static_cast<std::uint32_t>(i));
      limber::v1::Observation& moment = up.observations_size() > 0 ? *up.mutable_observations(0) : *up.add_observations();
      moment.mutable_proprio()->Clear();
      moment.mutable_proprio()->Add(seen.state.begin(), seen.state.end());
      moment.set_t_ms(i);
      if (pictured) {
        limber::v1::Frame& frame = moment.frames_size() > 0 ? *moment.mutable_frames(0) : *moment.add_frames();
        frame.set_camera("front");
        frame.set_data(seen.images[0].data);
      }
      message.SerializeToString(&bytes);
      sink = bytes.size();
    };
    Cost(("stub, message reused" + with).c_str(), steps, [&](int i) { fill(kept, i); });
    Cost(("stub, message created" + with).c_str(), steps, [&](int i) {
      limber::v1::ActStreamRequest made;
      fill(made, i);
    });
    double now = 0;
    limber::LoopOptions options;
    options.rate_hz = 1000;
    // No server listens there, and the connection timeout is an hour.
    options.connect_timeout_s = 3600;
    options.clock = [&now] { return now; };
    limber::Loop loop(limber::Client("http://127.0.0.1:1", "none"), "a/b", options);
    Cost(("tick" + with).c_str(), steps, [&](int i) {
      now = i / 1000.0;
      sink = static_cast<std::size_t>(loop.Tick(seen).step);
    });
  }
  if (std::getenv("LIMBER_URL") == nullptr || std::getenv("LIMBER_KEY") == nullptr) return 0;
  const limber::Client client = limber::Client::FromEnvironment();
  limber::LoopOptions options;
  options.rate_hz = 1000;
  options.action_space = "base_twist_2d";
  options.finish_chunks = true;
  limber::Loop loop(client, "reference/potential-nav", options);
  limber::Observation seen;
  seen.state = {0, 0, 0, 2, 0, 0};
  double spent = 0;
  int ticks = 0;
  auto due = std::chrono::steady_clock::now();
  for (int i = 0; i < 6000; ++i) {
    const double began = CpuUs();
    loop.Tick(seen);
    // The first second is the warm-up.
    if (i >= 1000) {
      spent += CpuUs() - began;
      ticks += 1;
    }
    due += std::chrono::milliseconds(1);
    std::this_thread::sleep_until(due);
  }
  const limber::LoopStats stats = loop.Stats();
  std::printf("%-32s %8.3f us, %llu actions of %llu steps, age %.1f ms\n", "tick, over a gateway at 1 kHz", spent / ticks,
              static_cast<unsigned long long>(stats.actions), static_cast<unsigned long long>(stats.steps), stats.age_ms);
  return 0;
}
