// The client of a Limber gateway: models for robots, over one API. Methods block; an object may be used by several threads at once.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "limber/errors.hpp"

namespace limber {

// One encoded picture: the bytes of a JPEG, PNG or WebP.
struct Picture {
  // The camera's name, such as `front`; empty where there is only one.
  std::string camera;
  std::string data;
};

// What a robot senses at one moment.
struct Observation {
  // Proprioception, in the order and the units that the model declares; 4096 numbers at most, all of them finite.
  std::vector<double> state;
  // Names of the entries of `state`, in order; as many or none.
  std::vector<std::string> state_names;
  // 16 cameras at most.
  std::vector<Picture> images;
  // Depth as PNGs of 16 bits, in millimetres.
  std::vector<Picture> depth;
  // Tactile readings, in the order that the model declares.
  std::vector<double> tactile;
  // Opening of the gripper, in the range that the model declares.
  std::optional<double> gripper;
  // When it was sensed, in milliseconds on the caller's own clock; a loop fills it in.
  std::optional<double> t_ms;
  // What the robot is to do from now on; only in a loop, where it changes.
  std::optional<std::string> instruction;
};

enum class Preference { kNone, kBalanced, kFastest, kCheapest, kReliable };
enum class Sort { kNone, kPrice, kLatency, kThroughput, kQuality };
enum class Contract { kAny, kAct, kPredict, kGround, kEvaluate };
enum class Embodiment { kAny, kArm, kHumanoid, kQuadruped, kMobileBase, kVehicle, kVirtualAgent };

// Constraints and preferences on who serves. Constraints are never relaxed.
struct Provider {
  // Providers to ask first, to ask alone, and not to ask.
  std::vector<std::string> order;
  std::vector<std::string> only;
  std::vector<std::string> ignore;
  std::vector<std::string> offerings;
  std::vector<std::string> region;
  Sort sort = Sort::kNone;
  std::optional<std::uint32_t> max_latency_ms;
  // The time of the whole call; in a loop, how old an observation may be when its chunk comes.
  std::optional<std::uint32_t> deadline_ms;
  std::optional<double> max_cost_usd;
  std::optional<double> max_price_per_action_step;
  // Least share of the last 30 days in which it served, 0 to 1.
  std::optional<double> min_uptime_30d;
  std::optional<bool> allow_fallbacks;
  // Placeholder output will do.
  std::optional<bool> allow_simulated;
  // Calls of one session stay with one offering.
  std::optional<std::string> session_id;
  // Further providers' models.
  std::vector<std::string> models;
};

// Who served a call.
struct Route {
  std::string model;
  std::string provider;
  std::string offering_id;
  std::string region;
  // True: placeholder output, not a model's.
  bool simulated = false;
  // The answer did not come from the first entry of the plan.
  bool fallback_used = false;
};

// An action chunk: `rows` steps of `dimensions` numbers each.
struct Chunk {
  std::size_t rows = 0;
  std::size_t dimensions = 0;
  // Row after row.
  std::vector<double> values;
  // The action space that every row is in.
  std::string space;
  // Time from one row to the next, in seconds.
  double dt_s = 0;
  // How long after it was made it may be executed, in seconds.
  double valid_for_s = 0;
  // What the model says about it: units, frame, limits.
  std::string note;
  std::string model;
  Route route;
  double cost_usd = 0;
  // Name of the call, for the gateway's log.
  std::string id;

  const double* row(std::size_t index) const { return values.data() + index * dimensions; }
};

// A place in a picture, 0 to 1 from left to right and from top to bottom.
struct Point {
  double x = 0;
  double y = 0;
  std::string label;
  double confidence = 0;
  std::string camera;
};

// A region of a picture, 0 to 1 from left to right and from top to bottom.
struct Box {
  double x_min = 0;
  double y_min = 0;
  double x_max = 0;
  double y_max = 0;
  std::string label;
  double confidence = 0;
  std::string camera;
};

// Where an instruction points.
struct Grounding {
  std::vector<Point> points;
  std::vector<Box> boxes;
  std::string model;
  std::string provider;
  // What the model says about its answer, such as why it found nothing.
  std::string note;
  double cost_usd = 0;
  std::string id;
};

// One model of the catalog.
struct Model {
  std::string id;
  std::string name;
  std::string summary;
  std::vector<std::string> action_spaces;
  // Who serves it at the moment.
  std::vector<std::string> providers;
};

// An emergency stop.
struct Stop {
  std::string id;
  // What is stopped, such as a robot's name.
  std::string subject;
  // It is on record; where it is not yet, it is in force all the same, and cannot be released before.
  bool durable = false;
  bool released = false;
};

struct ActOptions {
  std::optional<std::string> instruction;
  // A contract, not a hint: `ee_delta_6d_grip` when absent.
  std::optional<std::string> action_space;
  // Exactly so many rows come; 1 to 256.
  std::optional<std::uint32_t> horizon;
  // Further models to try when the first cannot serve.
  std::vector<std::string> models;
  Preference preference = Preference::kNone;
  Provider provider;
  std::optional<std::int64_t> seed;
  std::optional<double> temperature;
  std::optional<std::string> preset;
  Embodiment embodiment = Embodiment::kAny;
  // The robot's name, which an emergency stop names.
  std::optional<std::string> robot;
  // The same key gives the same answer, charged once; one of its own is made when absent, so that a lost answer comes again.
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
  // 1 to 1000.
  std::uint32_t limit = 100;
  std::uint32_t offset = 0;
};

struct ClientOptions {
  // Of a call with all its tries.
  double timeout_s = 30;
  // Further tries of calls that may be made again without harm.
  int retries = 2;
  // Certificates to trust, in PEM; those of the system when empty.
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
// Every method throws what errors.hpp holds. Loops outlive their client.
class Client {
 public:
  // `urls` are the addresses of one gateway's replicas, which are tried in turn. Throws BadInput for what is no address or no key.
  Client(std::vector<std::string> urls, std::string key, ClientOptions options = {});
  Client(std::string url, std::string key, ClientOptions options = {});
  // The address in LIMBER_URL, http://127.0.0.1:8080 where there is none, and the key in LIMBER_KEY.
  static Client FromEnvironment(ClientOptions options = {});

  // Asks for one action chunk.
  Chunk Act(const std::string& model, const Observation& seen, const ActOptions& options = {}) const;
  // The same of several moments, oldest first; 32 at most.
  Chunk Act(const std::string& model, const std::vector<Observation>& seen, const ActOptions& options = {}) const;
  // Asks where in the pictures of an observation an instruction points.
  Grounding Ground(const Observation& seen, const std::string& instruction, const GroundOptions& options = {}) const;
  // One page of the catalog, the best match first where a query is given.
  std::vector<Model> Models(const ModelsOptions& options = {}) const;
  // Emergency stop of a robot: it gets no action from any replica until it is released.
  Stop StopRobot(const std::string& robot, const std::string& reason = "") const;
  // Releases a robot. Each replica hears of it a moment later.
  Stop ReleaseRobot(const std::string& robot) const;

  const std::shared_ptr<internal::Connection>& connection() const noexcept { return connection_; }

 private:
  std::shared_ptr<internal::Connection> connection_;
};

}  // namespace limber
