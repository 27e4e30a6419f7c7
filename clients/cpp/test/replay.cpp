// Replays the golden traces of clients/conformance: `replay TRACE …`. Exits with 1 if a decision differs from the recorded one, or if the core
// allocates.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <new>
#include <sstream>
#include <string>

#include "limber/core.hpp"

namespace {
long allocations = 0;
}

void* operator new(std::size_t size) {
  ++allocations;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace {

// The members of a trace's JSON object; nested members have a path such as `chunk.rows`. The strings contain no escapes.
using Line = std::map<std::string, std::string>;

[[noreturn]] void Broken(const std::string& line) {
  std::cerr << "invalid line: " << line << "\n";
  std::exit(2);
}

std::size_t Parse(const std::string& text, std::size_t at, const std::string& path, Line& into) {
  if (text.at(at) != '{') Broken(text);
  ++at;
  while (text.at(at) != '}') {
    if (text[at] == ',') ++at;
    const std::size_t end = text.find('"', at + 1);
    if (text[at] != '"' || end == std::string::npos || text.at(end + 1) != ':') Broken(text);
    const std::string name = path + text.substr(at + 1, end - at - 1);
    at = end + 2;
    if (text.at(at) == '{') {
      into[name] = "{}";
      at = Parse(text, at, name + ".", into);
    } else if (text[at] == '"') {
      std::size_t over = at + 1;
      while (text.at(over) != '"') ++over;
      into[name] = text.substr(at + 1, over - at - 1);
      at = over + 1;
    } else {
      const std::size_t over = text.find_first_of(",}", at);
      if (over == std::string::npos) Broken(text);
      into[name] = text.substr(at, over - at);
      at = over;
    }
  }
  return at + 1;
}

double Number(const Line& line, const std::string& name) { return std::strtod(line.at(name).c_str(), nullptr); }

std::string Told(const limber::Decision& made, limber::Hold ended, const std::string& code) {
  std::ostringstream out;
  const std::string hold = made.hold == limber::Hold::kRefused && ended == limber::Hold::kRefused ? code : std::string(limber::WordOf(made.hold));
  out << made.step << " " << made.episode << " " << (made.send ? "true" : "false") << " ";
  if (made.row < 0) out << "null"; else out << made.row;
  out << " " << hold;
  return out.str();
}

int Replay(const char* path) {
  std::ifstream file(path);
  std::string text;
  if (!std::getline(file, text)) Broken(path);
  Line head;
  Parse(text, 0, "", head);
  limber::LoopCore core(Number(head, "rate_hz"), head.at("finish") == "true", static_cast<std::uint32_t>(Number(head, "episode")));
  limber::Hold ended = limber::Hold::kNone;
  std::string code;
  int number = 0;
  while (std::getline(file, text)) {
    ++number;
    Line event;
    Parse(text, 0, "", event);
    const double at = Number(event, "at");
    const bool is_tick = event.count("tick") > 0;
    std::string came, wanted;
    if (is_tick) {
      const long before = allocations;
      const limber::Decision made = core.Tick(at);
      if (allocations != before) {
        std::cerr << path << ": a control step allocates\n";
        return 1;
      }
      came = Told(made, ended, code);
      wanted = event.at("expect.step") + " " + event.at("expect.episode") + " " + event.at("expect.send") + " " + event.at("expect.row") + " " + event.at("expect.hold");
    } else if (event.count("chunk")) {
      limber::ChunkFacts chunk;
      chunk.episode = static_cast<std::uint32_t>(Number(event, "chunk.episode"));
      chunk.start_step = static_cast<std::int64_t>(Number(event, "chunk.start_step"));
      chunk.valid_until_step = static_cast<std::int64_t>(Number(event, "chunk.valid_until_step"));
      chunk.dt_ms = Number(event, "chunk.dt_ms");
      chunk.rows = static_cast<std::int32_t>(Number(event, "chunk.rows"));
      if (event.count("chunk.observation_time")) chunk.observation_time = Number(event, "chunk.observation_time");
      const long before = allocations;
      const limber::Verdict verdict = core.Chunk(at, chunk);
      if (allocations != before) {
        std::cerr << path << ": a chunk allocates\n";
        return 1;
      }
      came = limber::WordOf(verdict);
      wanted = event.at("expect");
    } else if (event.count("hold")) {
      const auto episode = static_cast<std::uint32_t>(Number(event, "hold.episode"));
      const auto step = static_cast<std::int64_t>(Number(event, "hold.step"));
      came = limber::WordOf(core.TakeHold(episode, step, limber::HoldOf(event.at("hold.reason"))));
      wanted = event.at("expect");
    } else if (event.count("reset")) {
      came = std::to_string(core.Reset());
      wanted = event.at("expect");
    } else if (event.count("opened")) {
      core.Opened(Number(event, "opened.deadline_ms"));
    } else if (event.count("lost")) {
      core.Lost();
    } else if (event.count("ended")) {
      code = event.at("ended.code");
      ended = code.empty() ? limber::Hold::kClosed : limber::Hold::kRefused;
      core.Ended(ended);
    } else if (event.count("stop")) {
      core.Stop(limber::HoldOf(event.at("stop")));
    } else {
      Broken(text);
    }
    if (came != wanted) {
      std::cerr << path << ", event " << number << ": got " << came << ", recorded " << wanted << "\n  " << text << "\n";
      return 1;
    }
  }
  if (number < 20) Broken(path);
  std::cout << path << ": " << number << " events\n";
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 2) {
    std::cerr << "usage: replay TRACE ...\n";
    return 2;
  }
  int worst = 0;
  for (int each = 1; each < count; ++each) worst = std::max(worst, Replay(arguments[each]));
  return worst;
}
