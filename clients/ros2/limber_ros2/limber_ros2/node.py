"""The ROS node: maps the configured topics, and offers one chunk as a service and runs of a control loop as an action.

| parameter | |
|---|---|
| `config` | the YAML file that maps topics to fields |
| `url` | the gateway's address; separate several replicas by commas |

The key comes from LIMBER_KEY or from the file in LIMBER_KEY_FILE, because every node of the graph can read parameters.
"""

from __future__ import annotations

import os
import threading
from dataclasses import asdict
from pathlib import Path
from typing import Any

import limber
import numpy as np
import rclpy
from limber.errors import LimberError
from limber_interfaces.action import RunUntilDone
from limber_interfaces.srv import GetActionChunk
from numpy.typing import NDArray
from rclpy.action import ActionServer, CancelResponse, GoalResponse
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.executors import ExternalShutdownException, MultiThreadedExecutor
from rclpy.node import Node
from rclpy.qos import QoSProfile, qos_profile_sensor_data
from rosidl_runtime_py.utilities import get_message
from std_srvs.srv import Trigger

from limber_ros2.mapping import Config, MappingError, Sensing, Source, commands, load
from limber_ros2.runner import Progress, Ran, Runner, chunk

#: Queue depth of topics; only the newest message matters.
_DEPTH = 1


def _key() -> str:
    """Returns the gateway's key. Raises `RuntimeError` if there is none."""
    file = os.environ.get("LIMBER_KEY_FILE", "")
    key = Path(file).read_text().strip() if file else os.environ.get("LIMBER_KEY", "")
    if not key:
        raise RuntimeError("no key: set LIMBER_KEY, or set LIMBER_KEY_FILE to a file that contains it")
    return key


def _fill(message: Any, values: Any) -> Any:
    """Copies the fields of a dataclass into a message with the same fields."""
    for name, value in asdict(values).items():
        setattr(message, name, list(value) if isinstance(value, tuple) else value)
    return message


class LimberNode(Node):  # type: ignore[misc]
    """The node of one robot."""

    def __init__(self) -> None:
        super().__init__("limber")
        path = str(self.declare_parameter("config", "").value)
        url = str(self.declare_parameter("url", "http://127.0.0.1:8080").value)
        if not path:
            raise MappingError("the parameter config must be a file name")
        self._robot: Config = load(Path(path).read_text())
        self._client = limber.Limber([each.strip() for each in url.split(",")], _key())
        self._sensing = Sensing(self._robot)
        self._runner: Runner | None = None
        self._one = threading.Lock()
        # A run occupies a thread; services, topics and cancellations need other threads.
        group = ReentrantCallbackGroup()
        for i, source in enumerate(self._robot.sources):
            self._listen(source, lambda message, i=i: self._sensing.took(i, message), group)
        done = self._robot.done
        if done is not None:
            self.create_subscription(get_message(done.type), done.topic, self._took_done, _DEPTH, callback_group=group)
        # The name `_publishers` is used by rclpy.
        self._sinks = [self.create_publisher(get_message(sink.type), sink.topic, _DEPTH) for sink in self._robot.sinks]
        self.create_service(GetActionChunk, "~/get_action_chunk", self._chunk, callback_group=group)
        self.create_service(Trigger, "~/stop", self._stop, callback_group=group)
        self._action = ActionServer(
            self,
            RunUntilDone,
            "~/run_until_done",
            execute_callback=self._run,
            goal_callback=self._wanted,
            cancel_callback=self._cancel,
            callback_group=group,
        )
        self.get_logger().info(f"{self._robot.model} at {url}: {len(self._robot.sources)} topics in, {len(self._sinks)} out")

    def _listen(self, source: Source, callback: Any, group: ReentrantCallbackGroup) -> None:
        qos = QoSProfile(depth=_DEPTH) if source.reliable else qos_profile_sensor_data
        self.create_subscription(get_message(source.type), source.topic, callback, qos, callback_group=group)

    def _took_done(self, message: Any) -> None:
        try:
            self._sensing.took_done(message)
        except MappingError as error:
            self.get_logger().error(str(error))

    def _publish(self, row: NDArray[np.float64] | None, why: str) -> None:
        now = self.get_clock().now().to_msg()
        for i, message in commands(self._robot, lambda kind: get_message(kind)(), row, (now.sec, now.nanosec)):
            self._sinks[i].publish(message)

    def _chunk(self, request: Any, response: Any) -> Any:
        answer = chunk(self._client, self._robot, self._sensing, instruction=request.instruction, horizon=request.horizon)
        return _fill(response, answer)

    def _stop(self, request: Any, response: Any) -> Any:
        """Handles an emergency stop: ends this node's run at once, then stops the robot on every replica."""
        runner = self._runner
        if runner is not None:
            runner.stop()
        if self._robot.robot is None:
            response.success = runner is not None
            response.message = "the run has ended; the gateway was not notified, because the configuration has no robot name"
            return response
        try:
            self._client.stop(self._robot.robot, reason="the service ~/stop of limber_ros2")
            response.success, response.message = True, f"{self._robot.robot} is stopped until it is released"
        except LimberError as error:
            response.success, response.message = False, f"the gateway was not notified: {error}"
        return response

    def _wanted(self, goal: Any) -> GoalResponse:
        return GoalResponse.REJECT if self._one.locked() or not goal.max_seconds > 0 else GoalResponse.ACCEPT

    def _cancel(self, handle: Any) -> CancelResponse:
        runner = self._runner
        if runner is not None:
            runner.cancel()
        return CancelResponse.ACCEPT

    def _run(self, handle: Any) -> Any:
        # Two goals can be accepted at once; the second one fails here.
        if not self._one.acquire(blocking=False):
            handle.abort()
            return _fill(RunUntilDone.Result(), Ran("failed", "the robot is already driven by another goal"))
        try:
            self._runner = Runner(self._client, self._robot, self._sensing, self._publish)
            if handle.is_cancel_requested:
                self._runner.cancel()

            def report(progress: Progress) -> None:
                handle.publish_feedback(_fill(RunUntilDone.Feedback(), progress))

            ran = self._runner.run(instruction=handle.request.instruction, max_seconds=handle.request.max_seconds, feedback=report)
        finally:
            self._runner = None
            self._one.release()
        if ran.ended == "cancelled":
            handle.canceled()
        elif ran.ended in ("done", "max_seconds"):
            handle.succeed()
        else:
            handle.abort()
        return _fill(RunUntilDone.Result(), ran)

    def leave(self) -> None:
        """Makes the robot hold and closes the connection."""
        runner = self._runner
        if runner is not None:
            runner.cancel()
            # The run publishes its hold itself, within one control step.
            if self._one.acquire(timeout=5):
                self._one.release()
        self._client.close()


def main() -> None:
    """Runs the node until it is interrupted."""
    rclpy.init()
    node = LimberNode()
    executor = MultiThreadedExecutor(num_threads=4)
    executor.add_node(node)
    try:
        executor.spin()
    except (KeyboardInterrupt, ExternalShutdownException):
        pass
    finally:
        node.leave()
        executor.shutdown()
        node.destroy_node()
        rclpy.try_shutdown()


if __name__ == "__main__":
    main()
