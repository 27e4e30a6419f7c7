// A simulated robot for trying a loop: a wheeled base that drives between the corners of a square.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <vector>

// A base that moves by its last command until the next one arrives, in real time. Units: meters, radians, seconds.
class WheeledBase {
 public:
  // Speed limits, in meters per second and radians per second.
  static constexpr double kMostSpeed = 1;
  static constexpr double kMostTurn = 3;

  // Writes the pose and the goal in the order that the reference provider's `potential-nav` reads: [x, y, yaw, goal x, goal y, goal yaw].
  void Sense(std::vector<double>& state) {
    Move();
    const double* goal = kCorners[corners_ % 4];
    state.assign({x_, y_, yaw_, goal[0], goal[1], yaw_});
  }

  // Applies a command `[speed, turn rate]`.
  void Drive(const double* action) {
    Move();
    speed_ = action[0];
    turn_ = action[1];
    beyond_ = std::max({beyond_, std::abs(speed_) - kMostSpeed, std::abs(turn_) - kMostTurn});
  }

  void Brake() {
    Move();
    speed_ = turn_ = 0;
  }

  // Number of corners reached.
  int corners() const { return corners_; }
  bool stands() const { return speed_ == 0 && turn_ == 0; }
  // Largest excess over its limits.
  double beyond() const { return beyond_; }
  double x() const { return x_; }
  double y() const { return y_; }

 private:
  static constexpr double kCorners[4][2] = {{2, 0}, {2, 2}, {0, 2}, {0, 0}};
  // Distance at which a corner counts as reached.
  static constexpr double kNear = 0.15;

  void Move() {
    const auto now = std::chrono::steady_clock::now();
    const double took = std::chrono::duration<double>(now - at_).count();
    at_ = now;
    yaw_ = std::remainder(yaw_ + turn_ * took, 2 * M_PI);
    x_ += speed_ * std::cos(yaw_) * took;
    y_ += speed_ * std::sin(yaw_) * took;
    const double* goal = kCorners[corners_ % 4];
    if (std::hypot(goal[0] - x_, goal[1] - y_) < kNear) corners_ += 1;
  }

  std::chrono::steady_clock::time_point at_ = std::chrono::steady_clock::now();
  double x_ = 0, y_ = 0, yaw_ = 0, speed_ = 0, turn_ = 0, beyond_ = 0;
  int corners_ = 0;
};
