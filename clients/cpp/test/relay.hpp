// A TCP relay in front of a gateway, which can cut or silence its connections; or a server that answers garbage.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

class Relay {
 public:
  // Relays to `port` on the loopback interface. With port 0, it answers each connection with `garbage` and closes it.
  explicit Relay(int port, std::string garbage = "") : to_(port), garbage_(std::move(garbage)) {
    listener_ = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = At(0);
    socklen_t size = sizeof address;
    if (bind(listener_, reinterpret_cast<sockaddr*>(&address), size) != 0 || listen(listener_, 16) != 0 ||
        getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
      throw std::runtime_error("the relay cannot listen");
    }
    port_ = ntohs(address.sin_port);
    accepter_ = std::thread([this] { Accept(); });
  }

  ~Relay() {
    shutdown(listener_, SHUT_RDWR);
    accepter_.join();
    close(listener_);
    Cut();
    for (std::thread& each : pumps_) each.join();
  }

  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }

  // Breaks every connection.
  void Cut() {
    const std::lock_guard<std::mutex> hold(lock_);
    for (const int each : open_) shutdown(each, SHUT_RDWR);
  }

  // Stops forwarding to the robot, on open and on new connections.
  void Silence(bool silenced) { silenced_ = silenced; }

 private:
  static sockaddr_in At(int port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
  }

  void Accept() {
    for (;;) {
      const int robot = accept(listener_, nullptr, nullptr);
      if (robot < 0) return;
      if (to_ == 0) {
        // The client's data is not read.
        if (write(robot, garbage_.data(), garbage_.size()) < 0) {
        }
        shutdown(robot, SHUT_WR);
        const std::lock_guard<std::mutex> hold(lock_);
        open_.push_back(robot);
        continue;
      }
      const int gateway = socket(AF_INET, SOCK_STREAM, 0);
      sockaddr_in address = At(to_);
      if (connect(gateway, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
        close(gateway);
        close(robot);
        continue;
      }
      const std::lock_guard<std::mutex> hold(lock_);
      open_.push_back(robot);
      open_.push_back(gateway);
      pumps_.emplace_back([this, robot, gateway] { Pump(robot, gateway); });
    }
  }

  void Pump(int robot, int gateway) {
    std::vector<char> bytes(65536);
    bool alive = true;
    while (alive) {
      pollfd ready[2] = {{robot, POLLIN, 0}, {gateway, POLLIN, 0}};
      if (poll(ready, 2, -1) < 0) break;
      for (int side = 0; side < 2 && alive; ++side) {
        if (ready[side].revents == 0) continue;
        const ssize_t came = read(ready[side].fd, bytes.data(), bytes.size());
        if (came <= 0) alive = false;
        if (side == 1 && silenced_) continue;
        for (ssize_t sent = 0; sent < came;) {
          const ssize_t went = send(ready[1 - side].fd, bytes.data() + sent, static_cast<std::size_t>(came - sent), MSG_NOSIGNAL);
          if (went <= 0) {
            alive = false;
            break;
          }
          sent += went;
        }
      }
    }
    shutdown(robot, SHUT_RDWR);
    shutdown(gateway, SHUT_RDWR);
  }

  const int to_;
  const std::string garbage_;
  int listener_ = -1;
  int port_ = 0;
  std::atomic<bool> silenced_{false};
  std::mutex lock_;
  // Closed only at process exit, because a closed descriptor could be reused by another connection.
  std::vector<int> open_;
  std::vector<std::thread> pumps_;
  std::thread accepter_;
};
