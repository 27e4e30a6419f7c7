#include "limber/client.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <random>
#include <string_view>
#include <thread>

#include "connection.hpp"

namespace limber {

namespace internal {

namespace {

// Maximum message size in bytes, in both directions. An observation can contain 16 images.
constexpr int kMostBytes = 64 * 1024 * 1024;
constexpr std::size_t kMostNumbers = 4096;
constexpr std::size_t kMostCameras = 16;
constexpr std::size_t kMostName = 128;

Connection::Address Parsed(const std::string& url) {
  const auto wrong = [&url](const std::string& why) -> BadInput { return BadInput("url '" + url + "' " + why); };
  Connection::Address address{url, "", false};
  std::string rest;
  if (url.rfind("http://", 0) == 0) {
    rest = url.substr(7);
  } else if (url.rfind("https://", 0) == 0) {
    rest = url.substr(8);
    address.tls = true;
  } else {
    throw wrong("is not a gateway address; pass one such as http://127.0.0.1:8080");
  }
  if (!rest.empty() && rest.back() == '/') rest.pop_back();
  if (rest.find_first_of("/?#@ ") != std::string::npos) throw wrong("must contain only a host and a port");
  const std::size_t bracket = rest.rfind(']');
  const std::size_t colon = rest.find(':', bracket == std::string::npos ? 0 : bracket);
  const std::string host = rest.substr(0, colon);
  const std::string port = colon == std::string::npos ? (address.tls ? "443" : "80") : rest.substr(colon + 1);
  if (host.empty() || (host.front() == '[') != (bracket != std::string::npos)) throw wrong("has no valid host");
  if (port.empty() || port.size() > 5 || port.find_first_not_of("0123456789") != std::string::npos || std::stoi(port) > 65535 ||
      std::stoi(port) == 0) {
    throw wrong("must have a port between 1 and 65535");
  }
  address.target = host + ":" + port;
  return address;
}

void CheckNumbers(const std::vector<double>& values, const char* name) {
  if (values.size() > kMostNumbers) {
    throw BadInput(std::string(name) + " must have at most 4096 numbers, got " + std::to_string(values.size()));
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) {
      throw BadInput(std::string(name) + "[" + std::to_string(i) + "] must be finite, got " + std::to_string(values[i]));
    }
  }
}

bool IsPicture(const std::string& data) {
  using namespace std::string_view_literals;
  const std::string_view head(data);
  return head.substr(0, 3) == "\xff\xd8\xff"sv || head.substr(0, 8) == "\x89PNG\r\n\x1a\n"sv ||
         (head.substr(0, 4) == "RIFF"sv && head.substr(8, 4) == "WEBP"sv);
}

void CheckPictures(const std::vector<Picture>& pictures, const char* name) {
  if (pictures.size() > kMostCameras) {
    throw BadInput(std::string(name) + " must have at most 16 cameras, got " + std::to_string(pictures.size()));
  }
  for (const Picture& each : pictures) {
    if (each.camera.size() > kMostName) throw BadInput(std::string(name) + ": a camera name must have at most 128 characters");
    if (!IsPicture(each.data)) {
      throw BadInput(std::string(name) + "['" + each.camera + "'] must be an encoded JPEG, PNG or WebP");
    }
  }
}

void FillPictures(const std::vector<Picture>& pictures, google::protobuf::RepeatedPtrField<v1::Frame>& into) {
  // Images keep their memory for reuse, so only surplus ones are removed.
  while (into.size() > static_cast<int>(pictures.size())) into.RemoveLast();
  for (std::size_t i = 0; i < pictures.size(); ++i) {
    v1::Frame* frame = static_cast<int>(i) < into.size() ? into.Mutable(static_cast<int>(i)) : into.Add();
    frame->set_camera(pictures[i].camera);
    frame->set_data(pictures[i].data);
  }
}

void FillNames(const std::vector<std::string>& names, google::protobuf::RepeatedPtrField<std::string>* into) {
  for (const std::string& each : names) *into->Add() = each;
}

double Unit(double value) {
  if (!(value >= 0 && value <= 1)) {
    throw MalformedAnswer("an image coordinate is " + std::to_string(value) + "; it must be between 0 and 1");
  }
  return value;
}

}  // namespace

Connection::Connection(const std::vector<std::string>& urls, std::string key, ClientOptions options)
    : key_(std::move(key)), options_(std::move(options)) {
  if (urls.empty()) throw BadInput("url is empty; pass a gateway address such as http://127.0.0.1:8080");
  for (const std::string& each : urls) addresses_.push_back(Parsed(each));
  if (key_.empty()) throw BadInput("key is empty; pass the gateway's key (lmb_sk_…) or set LIMBER_KEY");
  if (std::any_of(key_.begin(), key_.end(), [](unsigned char each) { return each <= ' ' || each > '~'; })) {
    throw BadInput("key contains an invalid character; check for a space or a line break at its end");
  }
  if (!(options_.timeout_s > 0 && options_.timeout_s <= 86400)) throw BadInput("timeout_s must be above 0 and at most 86400");
  if (options_.retries < 0 || options_.retries > 100) throw BadInput("retries must be between 0 and 100");
  for (const Address& each : addresses_) {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(kMostBytes);
    arguments.SetMaxSendMessageSize(kMostBytes);
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 20000);
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5000);
    arguments.SetUserAgentPrefix("limber-cpp/" LIMBER_VERSION);
    // Retries are made here, because gRPC does not know which calls are safe to repeat.
    arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
    arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
    std::shared_ptr<grpc::ChannelCredentials> credentials = grpc::InsecureChannelCredentials();
    if (each.tls) {
      grpc::SslCredentialsOptions ssl;
      ssl.pem_root_certs = options_.roots_pem;
      credentials = grpc::SslCredentials(ssl);
    }
    channels_.push_back(grpc::CreateCustomChannel(each.target, credentials, arguments));
  }
}

void Connection::Prepare(grpc::ClientContext& context, const std::string& idempotency_key) const {
  context.AddMetadata("authorization", "Bearer " + key_);
  if (!idempotency_key.empty()) context.AddMetadata("idempotency-key", idempotency_key);
}

void CheckName(const std::string& value, const char* name, std::size_t most) {
  if (value.empty()) throw BadInput(std::string(name) + " is empty");
  if (value.size() > most) throw BadInput(std::string(name) + " must have at most " + std::to_string(most) + " bytes, got " + std::to_string(value.size()));
}

void Check(const Observation& seen) {
  CheckNumbers(seen.state, "state");
  CheckNumbers(seen.tactile, "tactile");
  if (!seen.state_names.empty() && seen.state_names.size() != seen.state.size()) {
    throw BadInput("state and state_names must have the same length, got " + std::to_string(seen.state.size()) + " and " +
                   std::to_string(seen.state_names.size()));
  }
  for (const std::string& each : seen.state_names) {
    if (each.size() > kMostName) throw BadInput("state_names: a name must have at most 128 characters");
  }
  CheckPictures(seen.images, "images");
  CheckPictures(seen.depth, "depth");
  if (seen.gripper && !std::isfinite(*seen.gripper)) throw BadInput("gripper must be finite");
  if (seen.t_ms && !std::isfinite(*seen.t_ms)) throw BadInput("t_ms must be finite");
  if (seen.instruction && seen.instruction->size() > 8192) throw BadInput("instruction must have at most 8192 characters");
}

void Fill(const Observation& seen, v1::Observation& into) {
  into.mutable_proprio()->Clear();
  into.mutable_proprio()->Add(seen.state.begin(), seen.state.end());
  into.mutable_proprio_names()->Clear();
  FillNames(seen.state_names, into.mutable_proprio_names());
  into.mutable_tactile()->Clear();
  into.mutable_tactile()->Add(seen.tactile.begin(), seen.tactile.end());
  FillPictures(seen.images, *into.mutable_frames());
  FillPictures(seen.depth, *into.mutable_depth());
  into.clear_gripper();
  if (seen.gripper) into.set_gripper(*seen.gripper);
  into.clear_t_ms();
  if (seen.t_ms) into.set_t_ms(*seen.t_ms);
}

void Fill(const Provider& given, v1::ProviderPreferences& into) {
  FillNames(given.order, into.mutable_order());
  FillNames(given.only, into.mutable_only());
  FillNames(given.ignore, into.mutable_ignore());
  FillNames(given.offerings, into.mutable_offerings());
  FillNames(given.region, into.mutable_region());
  FillNames(given.models, into.mutable_models());
  if (given.sort != Sort::kNone) into.set_sort(static_cast<v1::SortAxis>(given.sort));
  if (given.max_latency_ms) into.set_max_latency_ms(*given.max_latency_ms);
  if (given.deadline_ms) into.set_deadline_ms(*given.deadline_ms);
  if (given.max_cost_usd) into.set_max_cost_usd(*given.max_cost_usd);
  if (given.max_price_per_action_step) into.set_max_price_per_action_step(*given.max_price_per_action_step);
  if (given.min_uptime_30d) into.set_min_uptime_30d(*given.min_uptime_30d);
  if (given.allow_fallbacks) into.set_allow_fallbacks(*given.allow_fallbacks);
  if (given.allow_simulated) into.set_allow_simulated(*given.allow_simulated);
  if (given.session_id) into.set_session_id(*given.session_id);
}

Route RouteOf(const v1::Route& route) {
  return {route.model(), route.provider(), route.offering_id(), route.region(), route.simulated(), route.fallback_used()};
}

void Flatten(const v1::Action& action, std::vector<double>& values, std::size_t& rows, std::size_t& dimensions) {
  rows = static_cast<std::size_t>(action.steps_size());
  if (rows == 0) throw MalformedAnswer("the chunk has no steps");
  dimensions = static_cast<std::size_t>(action.steps(0).values_size());
  values.clear();
  for (const v1::ActionStep& step : action.steps()) {
    if (dimensions == 0 || static_cast<std::size_t>(step.values_size()) != dimensions) {
      throw MalformedAnswer("the chunk's steps have different lengths; all must be equal");
    }
    for (const double each : step.values()) {
      if (!std::isfinite(each)) throw MalformedAnswer("the chunk contains a number that is not finite");
      values.push_back(each);
    }
  }
}

std::string Unique() {
  std::random_device chance;
  std::string made;
  for (int i = 0; i < 4; ++i) {
    const unsigned bits = chance();
    for (int shift = 28; shift >= 0; shift -= 4) made += "0123456789abcdef"[bits >> shift & 15U];
  }
  return made;
}

}  // namespace internal

namespace {

using internal::Connection;
using internal::Failure;
using internal::FailureOf;
using Clock = std::chrono::steady_clock;

static_assert(static_cast<int>(Sort::kQuality) == v1::SORT_AXIS_QUALITY && static_cast<int>(Sort::kPrice) == v1::SORT_AXIS_PRICE);
static_assert(static_cast<int>(Preference::kBalanced) == v1::PREFERENCE_BALANCED && static_cast<int>(Preference::kReliable) == v1::PREFERENCE_RELIABLE);
static_assert(static_cast<int>(Contract::kAct) == v1::CONTRACT_ACT && static_cast<int>(Contract::kEvaluate) == v1::CONTRACT_EVALUATE);
static_assert(static_cast<int>(Embodiment::kArm) == v1::EMBODIMENT_ARM && static_cast<int>(Embodiment::kVirtualAgent) == v1::EMBODIMENT_VIRTUAL_AGENT);

// Returns the delay before the next attempt: a random value between half of the delay and all of it.
std::chrono::duration<double> WaitBefore(int tried, const Failure& failure) {
  constexpr double kWaits[] = {0.05, 0.2, 0.8, 2.0};
  if (failure.retry_after_s) return std::chrono::duration<double>(*failure.retry_after_s);
  std::random_device chance;
  const double share = 0.5 + 0.5 * (static_cast<double>(chance()) / static_cast<double>(std::random_device::max()));
  return std::chrono::duration<double>(kWaits[std::min(tried - 1, 3)] * share);
}

// Makes one call, and retries it if that is safe.
template <typename Service, typename Request, typename Answer>
void Call(Connection& connection, const char* name, grpc::Status (Service::Stub::*method)(grpc::ClientContext*, const Request&, Answer*),
          const Request& request, Answer& answer, bool repeatable, const std::string& idempotency_key, std::optional<double> timeout_s) {
  const double patience = timeout_s.value_or(connection.options().timeout_s);
  if (!(patience > 0 && patience <= 86400)) throw BadInput("timeout_s must be above 0 and at most 86400");
  const auto until = Clock::now() + std::chrono::duration<double>(patience);
  const int retries = std::max(connection.options().retries, static_cast<int>(connection.size()) - 1);
  for (int tried = 1;; ++tried) {
    const std::size_t at = connection.current();
    grpc::ClientContext context;
    connection.Prepare(context, idempotency_key);
    const auto left = std::max(std::chrono::duration<double>(until - Clock::now()), std::chrono::duration<double>(0.001));
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::duration_cast<std::chrono::system_clock::duration>(left));
    const auto stub = Service::NewStub(connection.channel(at));
    const grpc::Status status = (stub.get()->*method)(&context, request, &answer);
    if (status.ok()) return;
    const Failure failure = FailureOf(status, std::string(name) + " at " + connection.address(at).url);
    if (failure.kind == Failure::Kind::kConnection) connection.Next(at);
    const bool mends = failure.kind == Failure::Kind::kConnection || (failure.kind == Failure::Kind::kRefused && failure.retryable);
    const auto wait = WaitBefore(tried, failure);
    if (!repeatable || tried > retries || !mends || Clock::now() + wait >= until) std::rethrow_exception(failure.error);
    std::this_thread::sleep_for(wait);
  }
}

void FillMoments(const std::vector<Observation>& seen, google::protobuf::RepeatedPtrField<v1::Observation>& into) {
  if (seen.empty() || seen.size() > 32) throw BadInput("a call must have 1 to 32 observations, got " + std::to_string(seen.size()));
  for (const Observation& each : seen) {
    internal::Check(each);
    internal::Fill(each, *into.Add());
  }
}

Stop StopOf(const v1::RobotStop& stop) { return {stop.id(), stop.subject(), stop.durable(), stop.has_released()}; }

std::string Setting(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : otherwise;
}

}  // namespace

Client::Client(std::vector<std::string> urls, std::string key, ClientOptions options)
    : connection_(std::make_shared<Connection>(urls, std::move(key), std::move(options))) {}

Client::Client(std::string url, std::string key, ClientOptions options)
    : Client(std::vector<std::string>{std::move(url)}, std::move(key), std::move(options)) {}

Client Client::FromEnvironment(ClientOptions options) {
  return Client(Setting("LIMBER_URL", "http://127.0.0.1:8080"), Setting("LIMBER_KEY", ""), std::move(options));
}

Chunk Client::Act(const std::string& model, const Observation& seen, const ActOptions& options) const {
  return Act(model, std::vector<Observation>{seen}, options);
}

Chunk Client::Act(const std::string& model, const std::vector<Observation>& seen, const ActOptions& options) const {
  internal::CheckName(model, "model", 256);
  v1::ActRequest request;
  request.set_model(model);
  FillMoments(seen, *request.mutable_observations());
  for (const std::string& each : options.models) request.add_models(each);
  if (options.preference != Preference::kNone) request.set_preference(static_cast<v1::Preference>(options.preference));
  internal::Fill(options.provider, *request.mutable_provider());
  if (options.seed) request.set_seed(static_cast<double>(*options.seed));
  if (options.preset) request.set_preset(*options.preset);
  if (options.instruction) request.set_instruction(*options.instruction);
  if (options.action_space) request.set_action_space(*options.action_space);
  if (options.horizon) request.set_horizon(*options.horizon);
  if (options.temperature) request.set_temperature(*options.temperature);
  if (options.embodiment != Embodiment::kAny) request.set_embodiment(static_cast<v1::Embodiment>(options.embodiment));
  if (options.robot) request.set_robot_id(*options.robot);
  v1::ActResponse answer;
  // With this key, a retry recovers a lost answer without a second charge.
  const std::string key = options.idempotency_key ? *options.idempotency_key : internal::Unique();
  Call<v1::InferenceService>(*connection_, "Act", &v1::InferenceService::Stub::Act, request, answer, true, key, options.timeout_s);
  Chunk chunk;
  internal::Flatten(answer.action(), chunk.values, chunk.rows, chunk.dimensions);
  if (options.horizon && chunk.rows != *options.horizon) {
    throw MalformedAnswer("the chunk has " + std::to_string(chunk.rows) + " steps; " + std::to_string(*options.horizon) + " were requested");
  }
  chunk.space = answer.action().space();
  chunk.dt_s = answer.action().dt_ms() / 1000.0;
  chunk.valid_for_s = answer.valid_until_ms() / 1000.0;
  chunk.note = answer.action().note();
  chunk.model = answer.model();
  chunk.route = internal::RouteOf(answer.route());
  chunk.cost_usd = answer.usage().cost_usd();
  chunk.id = answer.id();
  return chunk;
}

Grounding Client::Ground(const Observation& seen, const std::string& instruction, const GroundOptions& options) const {
  internal::CheckName(instruction, "instruction", 8192);
  v1::GroundRequest request;
  FillMoments({seen}, *request.mutable_observations());
  request.set_instruction(instruction);
  if (options.model) request.set_model(*options.model);
  internal::Fill(options.provider, *request.mutable_provider());
  v1::GroundResponse answer;
  Call<v1::InferenceService>(*connection_, "Ground", &v1::InferenceService::Stub::Ground, request, answer, true, internal::Unique(),
                             options.timeout_s);
  Grounding grounding;
  for (const auto& each : answer.points()) {
    grounding.points.push_back({internal::Unit(each.x()), internal::Unit(each.y()), each.label(), each.confidence(), each.camera()});
  }
  for (const auto& each : answer.boxes()) {
    grounding.boxes.push_back({internal::Unit(each.x_min()), internal::Unit(each.y_min()), internal::Unit(each.x_max()),
                               internal::Unit(each.y_max()), each.label(), each.confidence(), each.camera()});
  }
  grounding.model = answer.model();
  grounding.provider = answer.route().provider();
  grounding.note = answer.note();
  grounding.cost_usd = answer.usage().cost_usd();
  grounding.id = answer.id();
  return grounding;
}

std::vector<Model> Client::Models(const ModelsOptions& options) const {
  v1::ListModelsRequest request;
  if (options.query) request.set_q(*options.query);
  if (options.contract != Contract::kAny) request.set_contract(static_cast<v1::Contract>(options.contract));
  if (options.action_space) request.set_action_space(*options.action_space);
  request.set_limit(options.limit);
  request.set_offset(options.offset);
  v1::ListModelsResponse answer;
  Call<v1::RegistryService>(*connection_, "ListModels", &v1::RegistryService::Stub::ListModels, request, answer, true, "", std::nullopt);
  std::vector<Model> models;
  for (const auto& each : answer.data()) {
    models.push_back({each.id(), each.name(), each.summary(), {each.action_spaces().begin(), each.action_spaces().end()},
                      {each.providers().begin(), each.providers().end()}});
  }
  return models;
}

Stop Client::StopRobot(const std::string& robot, const std::string& reason) const {
  internal::CheckName(robot, "robot", 128);
  v1::StopRobotsRequest request;
  request.set_robot_id(robot);
  request.set_reason(reason);
  v1::StopRobotsResponse answer;
  // Repeating a stop returns the active stop, so an emergency stop is retried until it arrives.
  Call<v1::RobotService>(*connection_, "StopRobots", &v1::RobotService::Stub::StopRobots, request, answer, true, "", std::nullopt);
  return StopOf(answer.stop());
}

Stop Client::ReleaseRobot(const std::string& robot) const {
  internal::CheckName(robot, "robot", 128);
  v1::ReleaseRobotsRequest request;
  request.set_robot_id(robot);
  v1::ReleaseRobotsResponse answer;
  Call<v1::RobotService>(*connection_, "ReleaseRobots", &v1::RobotService::Stub::ReleaseRobots, request, answer, false, "", std::nullopt);
  return StopOf(answer.stop());
}

}  // namespace limber
