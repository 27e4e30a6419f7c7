"""Starts the node: `ros2 launch limber_ros2 limber.launch.py config:=/path/to/robot.yaml`. The key comes from LIMBER_KEY."""

from launch import LaunchDescription
from launch.actions import DeclareLaunchArgument
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node


def generate_launch_description() -> LaunchDescription:
    return LaunchDescription(
        [
            DeclareLaunchArgument("config", description="The YAML file that maps topics to fields."),
            DeclareLaunchArgument("url", default_value="http://127.0.0.1:8080", description="The gateway's address."),
            Node(
                package="limber_ros2",
                executable="node",
                name="limber",
                parameters=[{"config": LaunchConfiguration("config"), "url": LaunchConfiguration("url")}],
            ),
        ]
    )
