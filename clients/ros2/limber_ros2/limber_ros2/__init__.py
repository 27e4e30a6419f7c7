"""A robot's topics and a Limber gateway. `mapping` and `runner` need no ROS; `node` does."""
