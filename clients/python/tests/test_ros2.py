"""`limber_ros2`: its mapping over stand-ins for ROS messages, its runs against the fake gateway, and its node against stand-ins for rclpy's classes."""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from limber import Limber, errors
from limber._gen.limber.v1 import inference_service_pb2
from limber.testing import FakeGateway

_, TREE, CLIENTS, *_ = Path(__file__).resolve().parents
# The location differs between the repository and the package's source tarball.
PLACES = (CLIENTS / "ros2" / "limber_ros2", TREE / "limber_ros2")
PACKAGE = next((place for place in PLACES if place.is_dir()), None)
if PACKAGE is None:
    pytest.skip("the package for ROS 2 is not beside these tests", allow_module_level=True)
# ROS builds the package; there is no wheel.
sys.path.append(str(PACKAGE))
from limber_ros2 import mapping  # noqa: E402
from limber_ros2.mapping import MappingError, NotReady, Sensing, commands, config_of  # noqa: E402
from limber_ros2.runner import Progress, Runner, chunk  # noqa: E402

Until = Callable[[Callable[[], object]], None]


class Message:
    """A ROS message with exactly these fields."""

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self.__dict__:
            raise AttributeError(name)
        self.__dict__[name] = value


def vector(**axes: float) -> Message:
    return Message(**{"x": 0.0, "y": 0.0, "z": 0.0, **axes})


def stamp() -> Message:
    return Message(sec=0, nanosec=0)


def header() -> Message:
    return Message(stamp=stamp(), frame_id="")


def pose(x: float = 0.0, y: float = 0.0, yaw: float = 0.0) -> Message:
    return Message(position=vector(x=x, y=y), orientation=Message(x=0.0, y=0.0, z=math.sin(yaw / 2), w=math.cos(yaw / 2)))


MADE: dict[str, Callable[[], Message]] = {
    "geometry_msgs/msg/Twist": lambda: Message(linear=vector(), angular=vector()),
    "geometry_msgs/msg/TwistStamped": lambda: Message(header=header(), twist=Message(linear=vector(), angular=vector())),
    "std_msgs/msg/Float64MultiArray": lambda: Message(data=[]),
    "std_msgs/msg/Bool": lambda: Message(data=False),
    "std_msgs/msg/String": lambda: Message(data=""),
    "nav_msgs/msg/Odometry": lambda: Message(header=header(), pose=Message(pose=pose())),
    "geometry_msgs/msg/PoseStamped": lambda: Message(header=header(), pose=pose()),
    "sensor_msgs/msg/JointState": lambda: Message(header=header(), name=[], position=[], velocity=[], effort=[]),
    "trajectory_msgs/msg/JointTrajectory": lambda: Message(header=header(), joint_names=[], points=[]),
    "trajectory_msgs/msg/JointTrajectoryPoint": lambda: Message(positions=[], velocities=[], time_from_start=stamp()),
}


def make(kind: str) -> Message:
    return MADE[kind]()


def odometry(x: float = 0.0, y: float = 0.0, yaw: float = 0.0) -> Message:
    message = make("nav_msgs/msg/Odometry")
    message.pose.pose = pose(x, y, yaw)
    return message


def image(encoding: str, pixels: np.ndarray, *, pad: int = 0, big: bool = False) -> Message:
    high, wide = pixels.shape[:2]
    raw = pixels.reshape(high, -1).view(np.uint8)
    rows = np.concatenate([raw, np.full((high, pad), 7, np.uint8)], axis=1)
    return Message(
        header=header(), height=high, width=wide, encoding=encoding, is_bigendian=int(big), step=rows.shape[1], data=rows.tobytes()
    )


BASE: dict[str, Any] = {
    "model": "test/policy",
    "action_space": "base_twist_2d",
    "robot": "base-1",
    "rate_hz": 100,
    "observe": [
        {
            "topic": "/odom",
            "type": "nav_msgs/msg/Odometry",
            "max_age_ms": 500,
            "state": ["pose.pose.position.x", "pose.pose.position.y", "yaw(pose.pose.orientation)"],
        },
        {"topic": "/task", "type": "std_msgs/msg/String", "optional": True, "instruction": "data"},
    ],
    "act": [
        {
            "topic": "/cmd_vel",
            "type": "geometry_msgs/msg/Twist",
            "set": {"linear.x": 0, "angular.z": {"column": 1, "scale": -2.0, "offset": 0.5}},
            "hold": {"linear.x": 0.0, "angular.z": 0.0},
        }
    ],
    "done": {"topic": "/arrived", "type": "std_msgs/msg/Bool", "when": "data"},
    "patience_s": 0.2,
}


def base(**changes: Any) -> mapping.Config:
    return config_of({**BASE, **changes})


def source(**fields: Any) -> mapping.Config:
    """The base configuration with a single input topic."""
    return base(observe=[{"topic": "/in", "type": "sensor_msgs/msg/JointState", **fields}])


def seen_of(config: mapping.Config, *messages: Any) -> Any:
    sensing = Sensing(config)
    for i, message in enumerate(messages):
        sensing.took(i, message)
    return sensing.observation()


# Mapping


@pytest.mark.parametrize("name", ["base.yaml", "arm.yaml"])
def test_the_included_configurations_are_valid(name: str) -> None:
    pytest.importorskip("yaml")
    config = mapping.load((PACKAGE / "config" / name).read_text())
    assert config.sources and config.sinks and config.bounds is not None


def test_fields_become_the_state_in_the_order_of_the_configuration() -> None:
    seen = seen_of(base(), odometry(1.5, -2.0, math.pi / 2))
    assert np.asarray(seen.state) == pytest.approx([1.5, -2.0, math.pi / 2])
    assert seen.instruction is None
    seen = seen_of(base(), odometry(), Message(data="go home"))
    assert seen.instruction == "go home"


def test_joints_are_found_by_their_names_in_any_order() -> None:
    joints = make("sensor_msgs/msg/JointState")
    joints.name, joints.position, joints.effort = ["b", "grip", "a"], [2.0, 0.04, 1.0], [9.0]
    config = source(state=["position[a]", "position[b]", "position[0:2]", "position[-1]"], tactile="effort", gripper="position[grip]")
    seen = seen_of(config, joints)
    assert np.asarray(seen.state).tolist() == [1.0, 2.0, 2.0, 0.04, 1.0]
    assert (np.asarray(seen.tactile).tolist(), seen.gripper) == ([9.0], 0.04)


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("position[c]", "'c' not found; the names are a, b"),
        ("position[7]", "index 7 is out of range; there are 2 entries"),
        ("velocity[b]", "'b' is entry 1, but there are only 1"),
        ("speed", "no field 'speed'"),
        ("header.stamp.sec.x", "no field 'x'"),
        ("header.frame_id", "must be a number"),
        ("name", "not a number"),
        ("header", "must be a number"),
        ("header[0]", "has no entries"),
        ("effort", "must be finite"),
        ("yaw(header)", "a quaternion"),
    ],
)
def test_a_missing_field_is_reported_with_its_topic(path: str, words: str) -> None:
    joints = make("sensor_msgs/msg/JointState")
    joints.name, joints.position, joints.velocity, joints.effort = ["a", "b"], [1.0, 2.0], [1.0], [math.nan]
    with pytest.raises(MappingError, match="/in") as caught:
        seen_of(source(state=path), joints)
    assert words in str(caught.value)


def test_an_uninitialized_quaternion_is_refused() -> None:
    message = odometry()
    message.pose.pose.orientation = Message(x=0.0, y=0.0, z=0.0, w=0.0)
    with pytest.raises(MappingError, match="length 0"):
        seen_of(base(), message)


RGB = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)


@pytest.mark.parametrize(
    ("encoding", "pixels", "shown"),
    [
        ("rgb8", RGB, RGB),
        ("bgr8", RGB[:, :, ::-1], RGB),
        ("rgba8", np.dstack([RGB, np.full((2, 3), 255, np.uint8)]), RGB),
        ("bgra8", np.dstack([RGB[:, :, ::-1], np.full((2, 3), 255, np.uint8)]), RGB),
        ("mono8", RGB[:, :, 0], RGB[:, :, 0]),
    ],
)
@pytest.mark.parametrize("pad", [0, 5])
def test_images_become_rgb_arrays(encoding: str, pixels: np.ndarray, shown: np.ndarray, pad: int) -> None:
    message = image(encoding, np.ascontiguousarray(pixels), pad=pad)
    assert np.array_equal(mapping.picture(message, "here"), shown)  # type: ignore[arg-type]


def test_compressed_images_are_sent_unchanged() -> None:
    assert mapping.picture(Message(header=header(), format="jpeg", data=[255, 216, 255]), "here") == b"\xff\xd8\xff"


@pytest.mark.parametrize("big", [False, True])
def test_depth_becomes_millimeters(big: bool) -> None:
    millimetres = np.array([[0, 1000], [65535, 7]], dtype=">u2" if big else "<u2")
    assert mapping.depth(image("16UC1", millimetres, big=big, pad=2), "here").tolist() == [[0, 1000], [65535, 7]]
    metres = np.array([[math.nan, 1.0], [math.inf, 0.0074]], dtype=">f4" if big else "<f4")
    assert mapping.depth(image("32FC1", metres, big=big), "here").tolist() == [[0, 1000], [0, 7]]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"encoding": "yuv422"}, "unsupported encoding 'yuv422'"),
        ({"data": b"12"}, "2 bytes in rows of 9"),
        ({"step": 3}, "cannot contain"),
        ({"height": 0}, "1 to 16384"),
        ({"width": 99999}, "1 to 16384"),
        ({"height": 4_000_000_000}, "1 to 16384"),
    ],
)
def test_an_image_with_an_inconsistent_size_is_refused(changes: dict[str, Any], words: str) -> None:
    message = image("rgb8", RGB)
    message.__dict__.update(changes)
    with pytest.raises(MappingError, match=words):
        mapping.picture(message, "here")


def test_a_silent_or_old_topic_is_not_ready() -> None:
    now = [10.0]
    sensing = Sensing(base(), clock=lambda: now[0])
    with pytest.raises(NotReady, match="no message on /odom"):
        sensing.observation()
    sensing.took(0, odometry())
    sensing.took(1, Message(data="fold"))
    assert sensing.observation().instruction == "fold"
    now[0] = 10.6
    with pytest.raises(NotReady, match="/odom is 600 ms old"):
        sensing.observation()


def test_actions_become_messages() -> None:
    ((at, twist),) = commands(base(), make, np.array([0.4, 1.0]), (5, 6))
    assert (at, twist.linear.x, twist.angular.z) == (0, 0.4, -1.5)
    ((_, still),) = commands(base(), make, None, (5, 6))
    assert (still.linear.x, still.angular.z) == (0.0, 0.0)


def test_messages_have_stamps_constants_and_rows() -> None:
    config = base(
        act=[
            {
                "topic": "/a",
                "type": "geometry_msgs/msg/TwistStamped",
                "set": {"twist.linear.x": 2},
                "with": {"header.frame_id": "base_link"},
                "stamp": "header.stamp",
                "hold": {"twist.linear.x": 0.0},
            },
            {"topic": "/b", "type": "std_msgs/msg/Float64MultiArray", "set": {"data": "all"}, "hold": "nothing"},
            {"topic": "/c", "type": "std_msgs/msg/Float64MultiArray", "set": {"data": [2, 0]}, "hold": "nothing"},
            {
                "topic": "/d",
                "type": "trajectory_msgs/msg/JointTrajectory",
                "trajectory": {"joints": ["a", "b"], "columns": {"column": [1, 2], "scale": 10}},
                "hold": "nothing",
            },
        ],
        rate_hz=20,
    )
    made = dict(commands(config, make, np.array([1.0, 2.0, 3.0]), (5, 6)))
    assert (made[0].header.stamp.sec, made[0].header.stamp.nanosec, made[0].header.frame_id) == (5, 6, "base_link")
    assert (made[0].twist.linear.x, made[1].data, made[2].data) == (3.0, [1.0, 2.0, 3.0], [3.0, 1.0])
    (point,) = made[3].points
    assert (made[3].joint_names, point.positions) == (["a", "b"], [20.0, 30.0])
    assert (point.time_from_start.sec, point.time_from_start.nanosec) == (0, 50_000_000)
    assert [at for at, _ in commands(config, make, None, (5, 6))] == [0]
    with pytest.raises(MappingError, match="column 2 is out of range; an action has 2"):
        commands(config, make, np.array([1.0, 2.0]), (5, 6))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model": None}, "model must be a string, got None"),
        ({"model": 3}, "must be a string"),
        ({"rate_hz": 0}, "rate_hz must be between"),
        ({"rate_hz": True}, "must be a whole number or a number"),
        ({"rate": 5}, "no key 'rate'; the keys are .*rate_hz"),
        ({"observe": []}, "at least one topic"),
        ({"observe": ["/odom"]}, r"observe\[0\] must be a mapping, got str"),
        ({"observe": [{"type": "a/msg/B"}]}, r"observe\[0\] has no topic"),
        ({"observe": [{"topic": "/a", "type": "Odometry", "state": "x"}]}, "sensor_msgs/msg/JointState"),
        ({"observe": [{"topic": "/a", "type": "a/msg/B"}]}, "provides no input"),
        ({"observe": [{"topic": "/a", "type": "a/msg/B", "state": ["x y"]}]}, r"state\[0\]: 'x y' is not a path"),
        ({"observe": [{"topic": "/a", "type": "a/msg/B", "state": [3]}]}, r"state\[0\] must be a path.*got 3"),
        ({"observe": [{"topic": "/a", "type": "a/msg/B", "state": "__import__('os')"}]}, "unknown function"),
        ({"observe": [{"topic": "/a", "type": "a/msg/B", "image": "x"}, {"topic": "/b", "type": "a/msg/B", "image": "x"}]}, "two topics"),
        ({"act": [{"topic": "/a", "type": "a/msg/B", "set": {"x": 0}}]}, "has no hold"),
        ({"act": [{"topic": "/a", "type": "a/msg/B", "set": {"x": 0}, "hold": "brake"}]}, "got 'brake'"),
        ({"act": [{"topic": "/a", "type": "a/msg/B", "hold": "nothing"}]}, "one of set and trajectory"),
        ({"act": [{"topic": "/a", "type": "a/msg/B", "set": {"x": -1}, "hold": "nothing"}]}, "must be a column"),
        ({"act": [{"topic": "/a", "type": "a/msg/B", "set": {"x": "some"}, "hold": "nothing"}]}, "must be a column"),
        ({"act": [{"topic": "/a", "type": "a/msg/B", "trajectory": {"joints": ["a"], "columns": [1, 2]}, "hold": "nothing"}]}, "same number of columns"),
        ({"bounds": {"lowest": "x"}}, "bounds.lowest"),
        ({"bounds": {"lowest": [math.nan]}}, "finite"),
        ({"done": {"topic": "/a", "type": "a/msg/B"}}, "done has no when"),
    ],
)
def test_an_invalid_configuration_is_reported_with_its_location(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(MappingError, match=words):
        base(**changes)


def test_an_invalid_yaml_text_is_refused() -> None:
    pytest.importorskip("yaml")
    for text in ("a: [", "- 1", "", "!!python/object/apply:os.system ['true']"):
        with pytest.raises(MappingError):
            mapping.load(text)


# Runs


class Robot:
    """Records what a run published."""

    def __init__(self) -> None:
        self.rows: list[list[float] | None] = []
        self.why: list[str] = []

    def publish(self, row: Any, why: str) -> None:
        self.rows.append(None if row is None else row.tolist())
        self.why.append(why)


def sensed(config: mapping.Config) -> Sensing:
    """A robot whose sensors do not change."""
    sensing = Sensing(config)
    sensing.took(0, odometry(1.0))
    return sensing


STANDING = {**BASE["observe"][0], "max_age_ms": 600_000}
STAYS = {**BASE, "observe": [STANDING]}


def begun(runner: Runner, **options: Any) -> tuple[threading.Thread, list[Any]]:
    ran: list[Any] = []
    thread = threading.Thread(target=lambda: ran.append(runner.run(max_seconds=60, **options)), daemon=True)
    thread.start()
    return thread, ran


def test_a_run_drives_until_the_robot_is_done(gateway: FakeGateway, client: Limber, until: Until) -> None:
    gateway.policy = lambda seen, horizon: [seen.proprio[0], 0.5]
    config, robot, told = config_of(STAYS), Robot(), []
    sensing = sensed(config)
    # A done message of another run does not end this one.
    sensing.took_done(Message(data=True))
    thread, ran = begun(Runner(client, config, sensing, robot.publish), instruction="go", feedback=told.append)
    until(lambda: [1.0, 0.5] in robot.rows and told)
    sensing.took_done(Message(data=True))
    thread.join(20)
    assert (ran[0].ended, ran[0].message, robot.rows[-1], robot.why[-1]) == ("done", "", None, "done")
    assert ran[0].actions > 0 and ran[0].steps >= ran[0].actions and isinstance(told[0], Progress)
    opening = next(each.open for each in gateway.received if isinstance(each, inference_service_pb2.ActStreamRequest) and each.HasField("open"))
    assert (opening.model, opening.robot_id, opening.instruction, opening.action_space) == ("test/policy", "base-1", "go", "base_twist_2d")


@pytest.mark.parametrize(("end", "word"), [("cancel", "cancelled"), ("stop", "stopped")])
def test_a_run_ends_from_any_thread(client: Limber, until: Until, end: str, word: str) -> None:
    config, robot = config_of(STAYS), Robot()
    runner = Runner(client, config, sensed(config), robot.publish)
    thread, ran = begun(runner)
    until(lambda: any(row is not None for row in robot.rows))
    getattr(runner, end)()
    thread.join(20)
    assert (ran[0].ended, robot.rows[-1], robot.why[-1]) == (word, None, word)


def test_a_run_ends_after_its_time_limit(client: Limber) -> None:
    config, robot = config_of(STAYS), Robot()
    ran = Runner(client, config, sensed(config), robot.publish).run(max_seconds=0.1)
    assert (ran.ended, robot.rows[-1]) == ("max_seconds", None)
    for wrong in (0.0, -1.0, math.inf, math.nan):
        assert Runner(client, config, sensed(config), robot.publish).run(max_seconds=wrong).ended == "failed"


def test_silent_sensors_make_the_robot_hold_and_end_the_run(client: Limber, until: Until) -> None:
    now = [0.0]
    config, robot = base(), Robot()
    sensing = Sensing(config, clock=lambda: now[0])
    sensing.took(0, odometry())
    thread, ran = begun(Runner(client, config, sensing, robot.publish))
    until(lambda: any(row is not None for row in robot.rows))
    now[0] = 1.0
    thread.join(20)
    assert ran[0].ended == "failed" and "/odom is 1000 ms old" in ran[0].message
    assert robot.rows[-2:] == [None, None]


def test_a_refusal_ends_the_run_with_its_word(gateway: FakeGateway, client: Limber, until: Until) -> None:
    for code, ended in (("robot_stopped", "stopped"), ("key_disabled", "failed")):
        config, robot = config_of(STAYS), Robot()
        thread, ran = begun(Runner(client, config, sensed(config), robot.publish))
        until(lambda robot=robot: any(row is not None for row in robot.rows))
        gateway.end_loops(code)
        thread.join(20)
        assert (ran[0].ended, ran[0].code, robot.rows[-1]) == (ended, code, None)


def test_a_message_that_does_not_match_ends_the_run_with_a_hold(client: Limber, until: Until) -> None:
    config, robot = config_of(STAYS), Robot()
    sensing = sensed(config)
    thread, ran = begun(Runner(client, config, sensing, robot.publish))
    until(lambda: any(row is not None for row in robot.rows))
    sensing.took(0, odometry(math.nan))
    thread.join(20)
    assert ran[0].ended == "failed" and "got nan" in ran[0].message and robot.rows[-1] is None


def test_a_publishing_error_ends_the_run(client: Limber) -> None:
    config = config_of(STAYS)

    def broken(row: Any, why: str) -> None:
        raise RuntimeError("the publisher is gone")

    ran = Runner(client, config, sensed(config), broken).run(max_seconds=10)
    assert ran.ended == "failed" and "the publisher is gone" in ran.message and "not told to hold" in ran.message


def test_the_service_returns_a_flat_chunk_or_the_error(gateway: FakeGateway, client: Limber) -> None:
    gateway.policy = lambda seen, horizon: np.arange(horizon * 2).reshape(horizon, 2) + seen.proprio[0]
    config = config_of(STAYS)
    answer = chunk(client, config, sensed(config), instruction="look", horizon=3)
    assert (answer.success, answer.rows, answer.dimensions, answer.actions) == (True, 3, 2, (1.0, 2.0, 3.0, 4.0, 5.0, 6.0))
    assert (gateway.received[-1].instruction, gateway.received[-1].robot_id) == ("look", "base-1")
    gateway.refuse("no_route_available")
    answer = chunk(client, config, sensed(config))
    assert (answer.success, answer.code) == (False, "no_route_available") and answer.message
    answer = chunk(client, config, Sensing(config))
    assert not answer.success and "/odom" in answer.message


# The node


@pytest.fixture
def ros(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Stand-ins for the rclpy classes that the node uses, with their names and shapes."""
    world = SimpleNamespace(parameters={}, subscriptions={}, qualities={}, published=[], services={}, actions={}, logs=[])

    class Node:
        def __init__(self, name: str) -> None:
            self.name = name

        def declare_parameter(self, name: str, value: Any) -> Any:
            return SimpleNamespace(value=world.parameters.get(name, value))

        def create_subscription(self, kind: Any, topic: str, callback: Any, qos: Any, callback_group: Any = None) -> None:
            world.subscriptions[topic] = callback
            world.qualities[topic] = qos

        def create_publisher(self, kind: Any, topic: str, qos: Any) -> Any:
            return SimpleNamespace(publish=lambda message: world.published.append((topic, message)))

        def create_service(self, kind: Any, name: str, callback: Any, callback_group: Any = None) -> None:
            world.services[name] = callback

        def get_clock(self) -> Any:
            return SimpleNamespace(now=lambda: SimpleNamespace(to_msg=stamp))

        def get_logger(self) -> Any:
            return SimpleNamespace(info=world.logs.append, error=world.logs.append)

    class ActionServer:
        def __init__(self, node: Any, kind: Any, name: str, **callbacks: Any) -> None:
            world.actions[name] = callbacks

    class RunUntilDone:
        Result = staticmethod(
            lambda: Message(ended="", message="", code="", seconds=0.0, steps=0, actions=0, cost_usd=0.0)
        )
        Feedback = staticmethod(
            lambda: Message(seconds=0.0, steps=0, actions=0, rate_hz=0.0, age_ms=0.0, hold="", cost_usd=0.0)
        )

    modules: dict[str, dict[str, Any]] = {
        "rclpy": {},
        "rclpy.action": {
            "ActionServer": ActionServer,
            "CancelResponse": SimpleNamespace(ACCEPT="accept"),
            "GoalResponse": SimpleNamespace(ACCEPT="accept", REJECT="reject"),
        },
        "rclpy.callback_groups": {"ReentrantCallbackGroup": object},
        "rclpy.executors": {"ExternalShutdownException": type("Ended", (Exception,), {}), "MultiThreadedExecutor": object},
        "rclpy.node": {"Node": Node},
        "rclpy.qos": {"QoSProfile": SimpleNamespace, "qos_profile_sensor_data": "best effort"},
        "rosidl_runtime_py": {},
        "rosidl_runtime_py.utilities": {"get_message": lambda kind: lambda: make(kind)},
        "limber_interfaces": {},
        "limber_interfaces.action": {"RunUntilDone": RunUntilDone},
        "limber_interfaces.srv": {"GetActionChunk": object},
        "std_srvs": {},
        "std_srvs.srv": {"Trigger": object},
    }
    for name, members in modules.items():
        module = ModuleType(name)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, "limber_ros2.node", raising=False)
    return world


class Handle:
    """A goal of an action."""

    def __init__(self) -> None:
        self.request = SimpleNamespace(instruction="", max_seconds=60.0)
        self.is_cancel_requested = False
        self.ended = ""
        self.feedback: list[Any] = []

    def publish_feedback(self, message: Any) -> None:
        self.feedback.append(message)

    def succeed(self) -> None:
        self.ended = "succeeded"

    def abort(self) -> None:
        self.ended = "aborted"

    def canceled(self) -> None:
        self.ended = "canceled"


def test_the_node_serves_chunks_runs_and_stops(
    ros: SimpleNamespace, gateway: FakeGateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, until: Until
) -> None:
    yaml = pytest.importorskip("yaml")
    task = {"topic": "/task", "type": "std_msgs/msg/String", "optional": True, "reliable": True, "instruction": "data"}
    (tmp_path / "robot.yaml").write_text(yaml.safe_dump({**STAYS, "observe": [STANDING, task]}))
    ros.parameters.update(config=str(tmp_path / "robot.yaml"), url=gateway.url)
    monkeypatch.setenv("LIMBER_KEY", gateway.key)
    from limber_ros2.node import LimberNode

    node = LimberNode()
    callbacks = ros.actions["~/run_until_done"]
    assert (ros.qualities["/odom"], ros.qualities["/task"]) == ("best effort", SimpleNamespace(depth=1))
    ros.subscriptions["/odom"](odometry(1.0))
    empty = Message(
        **dict.fromkeys(("message", "code", "model", "provider", "action_space", "request_id"), ""),
        **dict.fromkeys(("rows", "dimensions"), 0),
        **dict.fromkeys(("dt", "valid_for", "cost_usd"), 0.0),
        success=False,
        actions=[],
    )
    answer = ros.services["~/get_action_chunk"](SimpleNamespace(instruction="", horizon=2), empty)
    assert answer.success and answer.actions == [0.0] * 4

    def runs() -> tuple[Handle, threading.Thread, list[Any]]:
        handle, results = Handle(), []
        thread = threading.Thread(target=lambda: results.append(callbacks["execute_callback"](handle)), daemon=True)
        before = len(ros.published)
        thread.start()
        until(lambda: len(ros.published) > before + 3)
        return handle, thread, results

    assert callbacks["goal_callback"](SimpleNamespace(max_seconds=1.0)) == "accept"
    assert callbacks["goal_callback"](SimpleNamespace(max_seconds=0.0)) == "reject"
    handle, thread, results = runs()
    # Only one goal can drive the robot.
    assert callbacks["goal_callback"](SimpleNamespace(max_seconds=1.0)) == "reject"
    second = Handle()
    assert callbacks["execute_callback"](second).ended == "failed" and second.ended == "aborted"
    callbacks["cancel_callback"](handle)
    thread.join(20)
    assert (handle.ended, results[0].ended) == ("canceled", "cancelled")
    handle, thread, results = runs()
    ros.subscriptions["/arrived"](Message(data=True))
    thread.join(20)
    assert (handle.ended, results[0].ended) == ("succeeded", "done")
    handle, thread, results = runs()
    told = ros.services["~/stop"](None, Message(success=False, message=""))
    thread.join(20)
    assert told.success and (handle.ended, results[0].ended) == ("aborted", "stopped")
    topic, last = ros.published[-1]
    assert (topic, last.linear.x, last.angular.z) == ("/cmd_vel", 0.0, 0.0)
    node.leave()


def test_a_node_without_a_key_is_refused(ros: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    yaml = pytest.importorskip("yaml")
    (tmp_path / "robot.yaml").write_text(yaml.safe_dump(BASE))
    ros.parameters.update(config=str(tmp_path / "robot.yaml"))
    monkeypatch.delenv("LIMBER_KEY", raising=False)
    monkeypatch.delenv("LIMBER_KEY_FILE", raising=False)
    from limber_ros2.node import LimberNode

    with pytest.raises(RuntimeError, match="LIMBER_KEY"):
        LimberNode()
    (tmp_path / "key").write_text("lmb_sk_x y\n")
    monkeypatch.setenv("LIMBER_KEY_FILE", str(tmp_path / "key"))
    with pytest.raises(errors.BadInput, match="key contains"):
        LimberNode()
