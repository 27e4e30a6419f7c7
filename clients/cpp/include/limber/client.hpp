// Client for a Limber gateway, which serves models for robots over one API. Methods block. Objects are thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "limber/errors.hpp"

namespace limber {

// One encoded image: the bytes of a JPEG, PNG or WebP.
struct Picture {
  // The camera's name, such as `front`; can be empty if there is only one camera.
  std::string camera;
  std::string data;
};

// What a robot senses at one moment.
struct Observation {
  // Proprioception, in the order and units that the model declares; at most 4096 finite numbers.
  std::vector<double> state;
  // Names of the entries of `state`, in order; as many as entries, or none.
  std::vector<std::string> state_names;
  // At most 16 cameras.
  std::vector<Picture> images;
  // Depth as 16-bit PNGs, in millimeters.
  std::vector<Picture> depth;
  // Tactile readings, in the order that the model declares.
  std::vector<double> tactile;
  // Gripper opening, in the range that the model declares.
  std::optional<double> gripper;
  // Capture time, in milliseconds of the caller's own clock; a loop sets it.
  std::optional<double> t_ms;
  // The new instruction. Only loops accept it; it applies until the next change.
  std::optional<std::string> instruction;
};

enum class Preference { kNone, kBalanced, kFastest, kCheapest, kReliable };
enum class Sort { kNone, kPrice, kLatency, kThroughput, kQuality };
enum class Contract { kAny, kAct, kPredict, kGround, kEvaluate };
enum class Embodiment { kAny, kArm, kHumanoid, kQuadruped, kMobileBase, kVehicle, kVirtualAgent };

// Constraints and preferences for providers. Constraints are never relaxed.
struct Provider {
  // Providers to try first, the only allowed providers, and excluded providers.
  std::vector<std::string> order;
  std::vector<std::string> only;
  std::vector<std::string> ignore;
  std::vector<std::string> offerings;
  std::vector<std::string> region;
  Sort sort = Sort::kNone;
  std::optional<std::uint32_t> max_latency_ms;
  // The time limit of the complete call; in a loop, the maximum age of an observation when its chunk arrives.
  std::optional<std::uint32_t> deadline_ms;
  std::optional<double> max_cost_usd;
  std::optional<double> max_price_per_action_step;
  // Minimum uptime share of the last 30 days, from 0 to 1.
  std::optional<double> min_uptime_30d;
  std::optional<bool> allow_fallbacks;
  // Accept placeholder output.
  std::optional<bool> allow_simulated;
  // Calls of one session use the same offering.
  std::optional<std::string> session_id;
  // Additional models.
  std::vector<std::string> models;
};

// The offering that served a call.
struct Route {
  std::string model;
  std::string provider;
  std::string offering_id;
  std::string region;
  // True if the output is a placeholder and not a model's.
  bool simulated = false;
  // True if the answer did not come from the first entry of the plan.
  bool fallback_used = false;
};

// An action chunk: `rows` steps of `dimensions` numbers each.
struct Chunk {
  std::size_t rows = 0;
  std::size_t dimensions = 0;
  // The values in row-major order.
  std::vector<double> values;
  // The action space of every row.
  std::string space;
  // Time between consecutive rows, in seconds.
  double dt_s = 0;
  // How long the chunk is valid after its creation, in seconds.
  double valid_for_s = 0;
  // The model's note about the actions: units, frame, limits.
  std::string note;
  std::string model;
  Route route;
  double cost_usd = 0;
  // The call's id, which the gateway's log also contains.
  std::string id;

  const double* row(std::size_t index) const { return values.data() + index * dimensions; }
};

// A point in an image. Coordinates range from 0 to 1, left to right and top to bottom.
struct Point {
  double x = 0;
  double y = 0;
  std::string label;
  double confidence = 0;
  std::string camera;
};

// A region of an image. Coordinates range from 0 to 1, left to right and top to bottom.
struct Box {
  double x_min = 0;
  double y_min = 0;
  double x_max = 0;
  double y_max = 0;
  std::string label;
  double confidence = 0;
  std::string camera;
};

// Points and boxes that match an instruction.
struct Grounding {
  std::vector<Point> points;
  std::vector<Box> boxes;
  std::string model;
  std::string provider;
  // The model's note, such as why it found nothing.
  std::string note;
  double cost_usd = 0;
  std::string id;
};

// A model of the catalog.
struct Model {
  std::string id;
  std::string name;
  std::string summary;
  std::vector<std::string> action_spaces;
  // Providers that currently serve it.
  std::vector<std::string> providers;
};

// An emergency stop.
struct Stop {
  std::string id;
  // What is stopped, such as a robot's name.
  std::string subject;
  // True if the stop is persisted. A stop that is not persisted yet is active, but cannot be released.
  bool durable = false;
  bool released = false;
};

struct ActOptions {
  std::optional<std::string> instruction;
  // A requirement; by default the model's only one, or `ee_delta_6d_grip`.
  std::optional<std::string> action_space;
  // The exact number of rows, from 1 to 256.
  std::optional<std::uint32_t> horizon;
  // Fallback models, tried if the first one cannot serve.
  std::vector<std::string> models;
  Preference preference = Preference::kNone;
  Provider provider;
  std::optional<std::int64_t> seed;
  std::optional<double> temperature;
  std::optional<std::string> preset;
  Embodiment embodiment = Embodiment::kAny;
  // The robot's name, which emergency stops refer to.
  std::optional<std::string> robot;
  // Calls with the same key return the same answer, charged once. The default is a generated key, so that a retry recovers a lost answer.
  std::optional<std::string> idempotency_key;
  std::optional<double> timeout_s;
};

struct GroundOptions {
  std::optional<std::string> model;
  Provider provider;
  std::optional<double> timeout_s;
};

struct ModelsOptions {
  std::optional<std::string> query;
  Contract contract = Contract::kAny;
  std::optional<std::string> action_space;
  // From 1 to 1000.
  std::uint32_t limit = 100;
  std::uint32_t offset = 0;
};

struct ClientOptions {
  // Time limit of a call with all its attempts, in seconds.
  double timeout_s = 30;
  // Number of retries of calls that are safe to repeat.
  int retries = 2;
  // Trusted certificates in PEM; the system's certificates if empty.
  std::string roots_pem;
};

namespace internal {
class Connection;
}

// A client of one gateway.
//
//   limber::Client client("http://127.0.0.1:8080", "lmb_sk_…");
//   const limber::Chunk chunk = client.Act("reference/potential-nav", {{0, 0, 0, 2, 0, 0}}, options);
//
// Methods throw the exceptions of errors.hpp. A loop can outlive its client.
class Client {
 public:
  // `urls` are the addresses of one gateway's replicas, which are tried in turn. Throws BadInput for an invalid address or key.
  Client(std::vector<std::string> urls, std::string key, ClientOptions options = {});
  Client(std::string url, std::string key, ClientOptions options = {});
  // Uses the address in LIMBER_URL (default: http://127.0.0.1:8080) and the key in LIMBER_KEY.
  static Client FromEnvironment(ClientOptions options = {});

  // Requests one action chunk.
  Chunk Act(const std::string& model, const Observation& seen, const ActOptions& options = {}) const;
  // Requests one action chunk for several moments, oldest first; at most 32.
  Chunk Act(const std::string& model, const std::vector<Observation>& seen, const ActOptions& options = {}) const;
  // Locates an instruction in the images of an observation.
  Grounding Ground(const Observation& seen, const std::string& instruction, const GroundOptions& options = {}) const;
  // Returns one page of the catalog; the best match first if a query is given.
  std::vector<Model> Models(const ModelsOptions& options = {}) const;
  // Orders an emergency stop. No replica sends actions to the robot until it is released.
  Stop StopRobot(const std::string& robot, const std::string& reason = "") const;
  // Releases a robot. Replicas apply the release a moment later.
  Stop ReleaseRobot(const std::string& robot) const;

  const std::shared_ptr<internal::Connection>& connection() const noexcept { return connection_; }

 private:
  std::shared_ptr<internal::Connection> connection_;
};

}  // namespace limber
