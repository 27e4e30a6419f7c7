"""Converts topics to observations, and rows of actions to topics, by a configuration. Accesses messages only by their fields, so it does not
need ROS.

A path names a field: `pose.pose.position.x`, `data[3]`, `data[0:7]`, `position[elbow]` for the entry whose `name` is `elbow`, as in
`sensor_msgs/msg/JointState`, and `yaw(pose.pose.orientation)` for a quaternion's rotation about the vertical axis, in radians.
"""

from __future__ import annotations

import math
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import limber
import numpy as np
from numpy.typing import NDArray

#: Creates an empty message of a type such as `geometry_msgs/msg/Twist`.
Make = Callable[[str], Any]

_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_PATH = re.compile(rf"{_NAME}(?:\.{_NAME}|\[[^\[\]]+\])*")
_PART = re.compile(rf"({_NAME})|\[([^\[\]]+)\]")
_TYPE = re.compile(r"[a-z][a-z0-9_]*/msg/[A-Za-z][A-Za-z0-9]*")
#: Bytes per pixel, and the offsets of red, green and blue.
_COLORS: Mapping[str, tuple[int, tuple[int, ...]]] = {
    "rgb8": (3, (0, 1, 2)),
    "bgr8": (3, (2, 1, 0)),
    "rgba8": (4, (0, 1, 2)),
    "bgra8": (4, (2, 1, 0)),
    "mono8": (1, (0,)),
    "8UC1": (1, (0,)),
    "8UC3": (3, (2, 1, 0)),
}
_DEPTHS = ("16UC1", "mono16")


class MappingError(ValueError):
    """The configuration is invalid, or a message does not match it. The text names the location and the remedy."""


class NotReady(Exception):
    """The current input is incomplete: a topic is silent, or its newest message is too old. The text names the topic."""


# Paths


@dataclass(frozen=True)
class Path:
    """A path to a value in a message."""

    text: str
    #: Field names, and keys: a number, a slice, or the name of an entry.
    steps: tuple[tuple[str, str], ...]
    #: `yaw`, or empty.
    turn: str = ""

    @staticmethod
    def of(text: Any, where: str) -> Path:
        """Parses a path. Raises `MappingError` if it is invalid; `where` is its location in the configuration."""
        if not isinstance(text, str):
            raise MappingError(f"{where} must be a path such as pose.position.x, got {text!r}")
        plain, turn = text.strip(), ""
        if (called := re.fullmatch(r"(\w+)\((.*)\)", plain)) is not None:
            turn, plain = called.group(1), called.group(2).strip()
            if turn != "yaw":
                raise MappingError(f"{where}: unknown function {turn!r}; only yaw is supported")
        if _PATH.fullmatch(plain) is None:
            raise MappingError(f"{where}: {text!r} is not a path; use one such as pose.position.x, data[0:7] or position[elbow]")
        steps = tuple(("field", name) if name else ("key", key.strip()) for name, key in _PART.findall(plain))
        return Path(text, steps, turn)

    def read(self, message: Any, where: str) -> Any:
        """Returns the value. Raises `MappingError` if the message does not have it."""
        value, above = message, None
        for kind, name in self.steps:
            if kind == "field":
                if not hasattr(value, name):
                    raise MappingError(f"{where}: {self.text}: {type(value).__name__} has no field {name!r}")
                value, above = getattr(value, name), value
            else:
                value = self._entry(value, above, name, where)
        return _yaw(value, f"{where}: {self.text}") if self.turn else value

    def _entry(self, value: Any, above: Any, key: str, where: str) -> Any:
        try:
            size = len(value)
        except TypeError:
            raise MappingError(f"{where}: {self.text}: a {type(value).__name__} has no entries") from None
        if (cut := re.fullmatch(r"(-?\d*):(-?\d*)", key)) is not None:
            return value[slice(*(int(each) if each else None for each in cut.groups()))]
        if re.fullmatch(r"-?\d+", key) is not None:
            if not -size <= int(key) < size:
                raise MappingError(f"{where}: {self.text}: index {key} is out of range; there are {size} entries")
            return value[int(key)]
        names = list(getattr(above, "name", ()))
        if key not in names:
            raise MappingError(f"{where}: {self.text}: {key!r} not found; the names are {', '.join(map(str, names)) or 'empty'}")
        at = names.index(key)
        if at >= size:
            raise MappingError(f"{where}: {self.text}: {key!r} is entry {at}, but there are only {size}")
        return value[at]

    def write(self, message: Any, value: Any, where: str) -> None:
        """Sets a field. Raises `MappingError` if the message does not have it."""
        to = message
        for kind, name in self.steps[:-1]:
            if kind == "field":
                if not hasattr(to, name):
                    raise MappingError(f"{where}: {self.text}: {type(to).__name__} has no field {name!r}")
                to = getattr(to, name)
            else:
                to = self._entry(to, None, name, where)
        kind, name = self.steps[-1]
        if kind != "field" or not hasattr(to, name):
            raise MappingError(f"{where}: {self.text}: {type(to).__name__} has no field {name!r}")
        setattr(to, name, value)


def _yaw(turn: Any, where: str) -> float:
    try:
        x, y, z, w = (float(getattr(turn, each)) for each in "xyzw")
    except (AttributeError, TypeError, ValueError):
        raise MappingError(f"{where}: yaw needs a quaternion with x, y, z and w") from None
    # ROS initializes quaternions to 0, 0, 0, 0 or to 0, 0, 0, 1; the first is not a rotation.
    if not 0.5 < math.hypot(x, y, z, w) < 2:
        raise MappingError(f"{where}: the quaternion must have length 1, got length {math.hypot(x, y, z, w):g}")
    return math.atan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))


def numbers(value: Any, where: str) -> list[float]:
    """Returns one number or a row of numbers as a list. Raises `MappingError` if any of them is not a finite number."""
    row = [value] if isinstance(value, (int, float, np.number)) else value
    if isinstance(row, (str, bytes)) or not hasattr(row, "__iter__"):
        raise MappingError(f"{where} must be a number or a row of numbers, got {type(value).__name__}")
    try:
        found = [float(each) for each in row]
    except (TypeError, ValueError):
        raise MappingError(f"{where} contains a value that is not a number") from None
    for i, each in enumerate(found):
        if not math.isfinite(each):
            raise MappingError(f"{where}[{i}] must be finite, got {each}")
    return found


# Images


def picture(message: Any, where: str) -> NDArray[np.uint8] | bytes:
    """Converts an image message of `sensor_msgs`: the bytes of a compressed image, or uint8 of shape (height, width, 3), RGB, or gray."""
    if hasattr(message, "format"):
        return bytes(message.data)
    encoding = str(getattr(message, "encoding", ""))
    if encoding not in _COLORS:
        raise MappingError(f"{where}: unsupported encoding {encoding!r}; use {', '.join(_COLORS)}, or compressed images")
    width, order = _COLORS[encoding]
    rows = _rows(message, width, where)
    pixels = rows.reshape(rows.shape[0], -1, width)[:, :, list(order)]
    return np.ascontiguousarray(pixels[:, :, 0] if width == 1 else pixels)


def depth(message: Any, where: str) -> NDArray[np.uint16]:
    """Converts a depth image to uint16 of shape (height, width), in millimeters. Floats are in meters, as in ROS."""
    encoding = str(getattr(message, "encoding", ""))
    order = ">" if getattr(message, "is_bigendian", 0) else "<"
    if encoding in _DEPTHS:
        millimetres: NDArray[np.uint16] = _rows(message, 2, where).view(f"{order}u2").astype(np.uint16)
        return millimetres
    if encoding == "32FC1":
        metres = _rows(message, 4, where).view(f"{order}f4").astype(np.float64)
        # Unknown depth is 0, as in 16-bit images.
        known = np.where(np.isfinite(metres), metres, 0.0)
        rounded: NDArray[np.uint16] = np.clip(np.rint(known * 1000), 0, 65535).astype(np.uint16)
        return rounded
    raise MappingError(f"{where}: unsupported depth encoding {encoding!r}; use 16UC1 or 32FC1")


def _rows(message: Any, width: int, where: str) -> NDArray[np.uint8]:
    """Returns the bytes of an `Image` without the row padding."""
    high, wide, step = (int(getattr(message, each, 0)) for each in ("height", "width", "step"))
    if not (0 < high <= 16384 and 0 < wide <= 16384):
        raise MappingError(f"{where}: the image must have 1 to 16384 pixels on each side, got {wide} x {high}")
    data = np.frombuffer(bytes(message.data), dtype=np.uint8)
    if step < wide * width or data.size < step * high:
        raise MappingError(f"{where}: {data.size} bytes in rows of {step} cannot contain {wide} x {high} pixels of {width} bytes")
    return np.ascontiguousarray(data[: step * high].reshape(high, step)[:, : wide * width])


# Configuration


@dataclass(frozen=True)
class Source:
    """The inputs from one topic."""

    where: str
    topic: str
    type: str
    state: tuple[Path, ...] = ()
    tactile: tuple[Path, ...] = ()
    gripper: Path | None = None
    instruction: Path | None = None
    image: str | None = None
    depth: str | None = None
    #: Maximum age of a message, in seconds; None for no limit.
    max_age_s: float | None = None
    #: True if the robot can act without it.
    optional: bool = False
    #: True if every message matters: requests reliable delivery instead of the sensor default.
    reliable: bool = False


@dataclass(frozen=True)
class Column:
    """Numbers of an action, each converted by `value * scale + offset`."""

    columns: tuple[int, ...] | None
    scale: float = 1.0
    offset: float = 0.0
    #: True for one number instead of a row of numbers.
    single: bool = False

    def of(self, row: NDArray[np.float64], where: str) -> float | list[float]:
        if self.columns is not None and max(self.columns) >= len(row):
            raise MappingError(f"{where}: column {max(self.columns)} is out of range; an action has {len(row)} numbers")
        picked = row if self.columns is None else row[list(self.columns)]
        values = [float(each) * self.scale + self.offset for each in picked]
        return values[0] if self.single else values


@dataclass(frozen=True)
class Trajectory:
    """A `trajectory_msgs/msg/JointTrajectory` with one point."""

    joints: tuple[str, ...]
    column: Column


@dataclass(frozen=True)
class Sink:
    """The output to one topic."""

    where: str
    topic: str
    type: str
    set: tuple[tuple[Path, Column], ...] = ()
    trajectory: Trajectory | None = None
    #: Constant fields.
    constants: tuple[tuple[Path, Any], ...] = ()
    #: The timestamp field; None if the message has none.
    stamp: Path | None = None
    #: The fields to set during a hold; None publishes nothing.
    hold: tuple[tuple[Path, Any], ...] | None = None


@dataclass(frozen=True)
class Done:
    """A topic that reports whether the robot is done."""

    where: str
    topic: str
    type: str
    when: Path


@dataclass(frozen=True)
class Config:
    """The configuration of a robot."""

    model: str
    rate_hz: float
    sources: tuple[Source, ...]
    sinks: tuple[Sink, ...]
    action_space: str | None = None
    robot: str | None = None
    instruction: str | None = None
    horizon: int | None = None
    bounds: limber.Bounds | None = None
    provider: Mapping[str, Any] = field(default_factory=dict)
    embodiment: str | None = None
    deadline_ms: int | None = None
    finish_chunks: bool = False
    state_names: tuple[str, ...] = ()
    done: Done | None = None
    #: Seconds without complete input, at the start or later, before a run fails.
    patience_s: float = 5.0

    @property
    def period_s(self) -> float:
        return 1 / self.rate_hz

    def loop_options(self) -> dict[str, Any]:
        """Returns the options of `limber.Loop`."""
        return {
            "rate_hz": self.rate_hz,
            "action_space": self.action_space,
            "robot": self.robot,
            "horizon": self.horizon,
            "bounds": self.bounds,
            "provider": dict(self.provider),
            "embodiment": self.embodiment,
            "deadline_ms": self.deadline_ms,
            "finish_chunks": self.finish_chunks,
        }


class _Part:
    """One mapping of the configuration. Unknown keys are errors."""

    def __init__(self, value: Any, where: str) -> None:
        if not isinstance(value, Mapping):
            raise MappingError(f"{where} must be a mapping, got {type(value).__name__}")
        self.left = dict(value)
        self.where = where
        self.known: list[str] = []

    def take(self, name: str, kind: type | tuple[type, ...], otherwise: Any = None, *, required: bool = False) -> Any:
        self.known.append(name)
        if name not in self.left:
            if required:
                raise MappingError(f"{self.where} has no {name}")
            return otherwise
        value = self.left.pop(name)
        # In Python, bool is a subclass of int; here it is not a number.
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise MappingError(f"{self.where}.{name} must be {_words(kind)}, got {value!r}")
        return value

    def number(self, name: str, least: float, most: float, otherwise: float | None = None, *, required: bool = False) -> float | None:
        value = self.take(name, (int, float), otherwise, required=required)
        if value is not None and not least <= value <= most:
            raise MappingError(f"{self.where}.{name} must be between {least:g} and {most:g}, got {value:g}")
        return None if value is None else float(value)

    def over(self) -> None:
        for name in self.left:
            raise MappingError(f"{self.where} has no key {name!r}; the keys are {', '.join(self.known)}")


_WORDS = {int: "a whole number", float: "a number", str: "a string", list: "a list", Mapping: "a mapping", bool: "true or false"}


def _words(kind: type | tuple[type, ...]) -> str:
    return " or ".join(_WORDS[each] for each in (kind if isinstance(kind, tuple) else (kind,)))


def config_of(value: Any) -> Config:
    """Parses the content of a YAML file. Raises `MappingError`."""
    part = _Part(value, "the configuration")
    bounds = part.take("bounds", Mapping)
    names = part.take("state_names", list, [])
    config = Config(
        model=part.take("model", str, required=True),
        rate_hz=part.number("rate_hz", 0.01, 10_000, required=True) or 0.0,
        sources=tuple(_source(each, f"observe[{i}]") for i, each in enumerate(part.take("observe", list, required=True))),
        sinks=tuple(_sink(each, f"act[{i}]") for i, each in enumerate(part.take("act", list, required=True))),
        action_space=part.take("action_space", str),
        robot=part.take("robot", str),
        instruction=part.take("instruction", str),
        horizon=part.take("horizon", int),
        bounds=None if bounds is None else _bounds(bounds),
        provider=part.take("provider", Mapping, {}),
        embodiment=part.take("embodiment", str),
        deadline_ms=part.take("deadline_ms", int),
        finish_chunks=part.take("finish_chunks", bool, False),
        state_names=tuple(str(each) for each in names),
        done=_done(part.take("done", Mapping)),
        patience_s=part.number("patience_s", 0, 3600, 5.0) or 0.0,
    )
    part.over()
    if not config.sources or not config.sinks:
        raise MappingError("observe and act must each have at least one topic")
    cameras = [each for source in config.sources for each in (source.image, source.depth and f"depth of {source.depth}") if each is not None]
    for camera in cameras:
        if cameras.count(camera) > 1:
            raise MappingError(f"two topics provide the image {camera!r}")
    for name in ("gripper", "instruction"):
        if sum(getattr(source, name) is not None for source in config.sources) > 1:
            raise MappingError(f"two topics provide the {name}")
    return config


def load(text: str) -> Config:
    """Parses a YAML text. Raises `MappingError`. Needs PyYAML, which ROS includes."""
    import yaml

    try:
        return config_of(yaml.safe_load(text))
    except yaml.YAMLError as error:
        raise MappingError(f"the configuration is not valid YAML: {error}") from None


def _bounds(value: Mapping[str, Any]) -> limber.Bounds:
    part = _Part(value, "bounds")
    rows = {name: part.take(name, (int, float, list)) for name in ("lowest", "highest")}
    made = limber.Bounds(
        **{name: None if row is None else numbers(row, f"bounds.{name}") for name, row in rows.items()},
        max_change=part.number("max_change", 0, math.inf),
        max_start_jump=part.number("max_start_jump", 0, math.inf),
    )
    part.over()
    return made


def _topic(part: _Part) -> tuple[str, str]:
    topic, kind = part.take("topic", str, required=True), part.take("type", str, required=True)
    if not topic:
        raise MappingError(f"{part.where}.topic is empty")
    if _TYPE.fullmatch(kind) is None:
        raise MappingError(f"{part.where}.type must be a message type such as sensor_msgs/msg/JointState, got {kind!r}")
    return topic, kind


def _paths(part: _Part, name: str) -> tuple[Path, ...]:
    given = part.take(name, (str, list), [])
    return tuple(Path.of(each, f"{part.where}.{name}[{i}]") for i, each in enumerate([given] if isinstance(given, str) else given))


def _path(part: _Part, name: str) -> Path | None:
    given = part.take(name, str)
    return None if given is None else Path.of(given, f"{part.where}.{name}")


def _source(value: Any, where: str) -> Source:
    part = _Part(value, where)
    topic, kind = _topic(part)
    age = part.number("max_age_ms", 1, 3_600_000)
    source = Source(
        where=f"{where} ({topic})",
        topic=topic,
        type=kind,
        state=_paths(part, "state"),
        tactile=_paths(part, "tactile"),
        gripper=_path(part, "gripper"),
        instruction=_path(part, "instruction"),
        image=part.take("image", str),
        depth=part.take("depth", str),
        max_age_s=None if age is None else age / 1000,
        optional=part.take("optional", bool, False),
        reliable=part.take("reliable", bool, False),
    )
    part.over()
    given = (source.state, source.tactile, source.gripper, source.instruction, source.image, source.depth)
    if not any(each not in (None, ()) for each in given):
        raise MappingError(f"{where} provides no input; set state, tactile, gripper, instruction, image or depth")
    return source


def _column(value: Any, where: str) -> Column:
    scale, offset = 1.0, 0.0
    if isinstance(value, Mapping):
        part = _Part(value, where)
        scale = part.number("scale", -1e9, 1e9, 1.0) or 0.0
        offset = part.number("offset", -1e9, 1e9, 0.0) or 0.0
        value = part.take("column", (int, list, str), required=True)
        part.over()
    if value == "all":
        return Column(None, scale, offset)
    single = isinstance(value, int)
    columns = [value] if single else value
    if not isinstance(columns, list) or not columns or not all(type(each) is int and 0 <= each < 1024 for each in columns):
        raise MappingError(f"{where} must be a column from 0, a list of columns, or all, got {value!r}")
    return Column(tuple(columns), scale, offset, single)


def _sink(value: Any, where: str) -> Sink:
    part = _Part(value, where)
    topic, kind = _topic(part)
    sets = part.take("set", Mapping, {})
    constants = part.take("with", Mapping, {})
    trajectory = part.take("trajectory", Mapping)
    hold = part.take("hold", (str, Mapping), required=True)
    stamp = _path(part, "stamp")
    part.over()
    if isinstance(hold, str) and hold != "nothing":
        raise MappingError(f"{where}.hold must be the message fields that make the robot hold, or nothing, got {hold!r}")
    if (trajectory is None) == (not sets):
        raise MappingError(f"{where} must have exactly one of set and trajectory")
    made = None
    if trajectory is not None:
        inner = _Part(trajectory, f"{where}.trajectory")
        joints = tuple(str(each) for each in inner.take("joints", list, required=True))
        column = _column(inner.take("columns", (list, str, Mapping), required=True), f"{where}.trajectory.columns")
        inner.over()
        if column.single or (column.columns is not None and len(column.columns) != len(joints)):
            raise MappingError(f"{where}.trajectory has {len(joints)} joints; it must have the same number of columns")
        made = Trajectory(joints, column)
    return Sink(
        where=f"{where} ({topic})",
        topic=topic,
        type=kind,
        set=tuple((Path.of(path, f"{where}.set"), _column(column, f"{where}.set.{path}")) for path, column in sets.items()),
        trajectory=made,
        constants=tuple((Path.of(path, f"{where}.with"), each) for path, each in constants.items()),
        stamp=stamp,
        hold=None if isinstance(hold, str) else tuple((Path.of(path, f"{where}.hold"), each) for path, each in hold.items()),
    )


def _done(value: Mapping[str, Any] | None) -> Done | None:
    if value is None:
        return None
    part = _Part(value, "done")
    topic, kind = _topic(part)
    when = Path.of(part.take("when", str, required=True), "done.when")
    part.over()
    return Done(f"done ({topic})", topic, kind, when)


# Input


class Sensing:
    """The newest message of each topic. Messages can arrive on any thread and are not modified afterwards."""

    def __init__(self, config: Config, clock: Callable[[], float] = time.monotonic) -> None:
        self._config = config
        self._clock = clock
        self._lock = threading.Lock()
        self._newest: dict[int, tuple[float, Any]] = {}
        self._done = False

    def took(self, source: int, message: Any) -> None:
        """Stores a message of the source with this index in the configuration."""
        with self._lock:
            self._newest[source] = (self._clock(), message)

    def took_done(self, message: Any) -> None:
        """Stores a message of the topic that reports whether the robot is done."""
        done = self._config.done
        if done is not None:
            self._done = bool(done.when.read(message, done.where))

    @property
    def done(self) -> bool:
        """Whether the newest message reports that the robot is done."""
        return self._done

    def begin(self) -> None:
        """Clears the done state at the start of a run."""
        self._done = False

    def observation(self) -> limber.Observation:
        """Returns the current observation. Raises `NotReady` if a topic is silent, `MappingError` if a message does not match."""
        with self._lock:
            newest, now = dict(self._newest), self._clock()
        seen = limber.Observation()
        state: list[float] = []
        tactile: list[float] = []
        images: dict[str, Any] = {}
        depths: dict[str, Any] = {}
        for i, source in enumerate(self._config.sources):
            at, message = newest.get(i, (0.0, None))
            if message is None:
                if source.optional:
                    continue
                raise NotReady(f"no message on {source.topic} yet")
            if source.max_age_s is not None and now - at > source.max_age_s:
                if source.optional:
                    continue
                raise NotReady(f"the newest message of {source.topic} is {(now - at) * 1000:.0f} ms old")
            for paths, row, name in ((source.state, state, "state"), (source.tactile, tactile, "tactile")):
                for path in paths:
                    row += numbers(path.read(message, source.where), f"{source.where}: {name} {path.text}")
            if source.gripper is not None:
                found = numbers(source.gripper.read(message, source.where), f"{source.where}: gripper")
                if len(found) != 1:
                    raise MappingError(f"{source.where}: gripper {source.gripper.text} must have one number, got {len(found)}")
                seen.gripper = found[0]
            if source.instruction is not None:
                seen.instruction = str(source.instruction.read(message, source.where))
            if source.image is not None:
                images[source.image] = picture(message, source.where)
            if source.depth is not None:
                depths[source.depth] = depth(message, source.where)
        if self._config.state_names and len(self._config.state_names) != len(state):
            raise MappingError(f"state_names has {len(self._config.state_names)} names, but the topics provide {len(state)} numbers")
        seen.state = np.array(state, dtype=np.float64) if state else None
        seen.tactile = np.array(tactile, dtype=np.float64) if tactile else None
        seen.state_names = self._config.state_names
        seen.images, seen.depth = images, depths
        return seen


# Output


def commands(config: Config, make: Make, row: NDArray[np.float64] | None, stamp: tuple[int, int]) -> list[tuple[int, Any]]:
    """Returns the messages of one control step, each with the index of its sink. They make the robot hold if `row` is None. `stamp` is the ROS
    time in seconds and nanoseconds."""
    made: list[tuple[int, Any]] = []
    for i, sink in enumerate(config.sinks):
        if row is None and sink.hold is None:
            continue
        message = make(sink.type)
        for path, value in sink.constants:
            path.write(message, value, sink.where)
        if sink.stamp is not None:
            time_of_it = sink.stamp.read(message, sink.where)
            time_of_it.sec, time_of_it.nanosec = stamp
        if row is None:
            for path, value in sink.hold or ():
                path.write(message, value, sink.where)
        elif sink.trajectory is not None:
            _point(sink, sink.trajectory, make, message, row, config.period_s)
        else:
            for path, column in sink.set:
                path.write(message, column.of(row, sink.where), sink.where)
        made.append((i, message))
    return made


def _point(sink: Sink, trajectory: Trajectory, make: Make, message: Any, row: NDArray[np.float64], period_s: float) -> None:
    values: Sequence[float] = trajectory.column.of(row, sink.where)  # type: ignore[assignment]
    if len(values) != len(trajectory.joints):
        raise MappingError(f"{sink.where}: an action has {len(values)} numbers for {len(trajectory.joints)} joints")
    point = make("trajectory_msgs/msg/JointTrajectoryPoint")
    point.positions = list(values)
    # The joints reach the point when the next action is due.
    whole = int(period_s)
    point.time_from_start.sec, point.time_from_start.nanosec = whole, round((period_s - whole) * 1e9)
    message.joint_names = list(trajectory.joints)
    message.points = [point]
