"""Connects a robot's topics to a Limber gateway. `mapping` and `runner` do not need ROS; `node` does."""
