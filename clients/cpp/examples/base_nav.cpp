// Drives a simulated base around a square with a control loop at 50 Hz: `base_nav [SECONDS]`. Needs the gateway in LIMBER_URL, the key in LIMBER_KEY.
// Ctrl-C ends the run, and the base brakes.
#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "limber/limber.hpp"
#include "wheeled_base.hpp"

namespace {
volatile std::sig_atomic_t interrupted = 0;
}  // namespace

int main(int count, char** arguments) {
  const double seconds = count > 1 ? std::atof(arguments[1]) : 30;
  // A signal handler must not do more than this: `Interrupt` takes a lock.
  std::signal(SIGINT, [](int) { interrupted = 1; });
  try {
    const limber::Client client = limber::Client::FromEnvironment();
    limber::LoopOptions options;
    options.rate_hz = 50;
    options.robot = "cpp-base";
    options.action_space = "base_twist_2d";
    options.bounds = limber::Bounds{{-WheeledBase::kMostSpeed, -WheeledBase::kMostTurn}, {WheeledBase::kMostSpeed, WheeledBase::kMostTurn}, {}, {}};
    limber::Loop loop(client, "reference/potential-nav", options);
    WheeledBase base;
    bool drives = false;
    const limber::Outcome outcome = loop.Run(
        [&](limber::Observation& seen) {
          base.Sense(seen.state);
          return base.corners() < 4 && interrupted == 0;
        },
        [&](const limber::Due& due) {
          if (due) {
            if (!drives) std::puts("it drives"), std::fflush(stdout);
            drives = true;
            base.Drive(due.action);
          } else {
            base.Brake();
          }
        },
        seconds);
    const limber::LoopStats& stats = outcome.stats;
    std::printf("%d corners in %.1f s; %.1f actions per second, age %.1f ms (p99 %.1f), %llu chunks over %llu streams, $%.6f\n", base.corners(),
                outcome.seconds, stats.average_hz, stats.age_ms, stats.age_p99_ms, static_cast<unsigned long long>(stats.chunks),
                static_cast<unsigned long long>(stats.streams), stats.cost_usd);
    for (const auto& [why, times] : stats.holds) {
      std::printf("held %llu times: %s\n", static_cast<unsigned long long>(times), std::string(limber::WordOf(why)).c_str());
    }
    return base.stands() ? 0 : 1;
  } catch (const limber::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
