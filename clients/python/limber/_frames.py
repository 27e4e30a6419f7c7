"""From arrays and files to the messages of observations, and back. What cannot be sent is said here, before anything is sent."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Union

import numpy as np
from numpy.typing import ArrayLike, NDArray

from limber._gen.limber.v1 import observation_pb2
from limber.errors import BadInput, MissingPackage

#: A picture: an array of height x width x 3 (uint8, RGB), of height x width (uint8, grey), the bytes of a JPEG, PNG or WebP, or a file.
ImageLike = Union[NDArray[Any], bytes, Path]

#: Quality of JPEGs that are made of arrays.
JPEG_QUALITY = 90
_MOST_SIDE = 16384
_MOST_NUMBERS = 4096
_MOST_CAMERAS = 16
_SIGNS = ((b"\xff\xd8\xff", "jpeg"), (b"\x89PNG\r\n\x1a\n", "png"), (b"RIFF", "webp"))


@dataclass(frozen=True)
class FrameHint:
    """What an offering declares of the pictures of one camera; a width or height of 0 stands for any."""

    width: int = 0
    height: int = 0
    #: Other sizes are refused: a picture of another ratio gets black edges. Else it is only shrunk, and the gateway makes it fit.
    exact: bool = True
    #: How arrays are encoded: `JPEG`, `PNG` or `WEBP`.
    encoding: str = "JPEG"


@dataclass
class Observation:
    """What a robot senses at one moment.

    Arrays are taken as they are and checked when they are sent; they must not be written to until then, except in a loop, which copies them.
    """

    #: Pictures by the name of their camera; the name is empty where there is only one.
    images: Mapping[str, ImageLike] = field(default_factory=dict)
    #: Proprioception: one row of numbers, in the order and the units that the model declares.
    state: ArrayLike | None = None
    #: Names of the entries of `state`, in order.
    state_names: Sequence[str] = ()
    #: Opening of the gripper, in the range that the model declares.
    gripper: float | None = None
    #: Tactile readings, in the order that the model declares.
    tactile: ArrayLike | None = None
    #: Depth by camera: height x width, uint16, in millimetres.
    depth: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    #: When it was sensed, in milliseconds on the caller's own clock; a loop fills it in.
    t_ms: float | None = None
    #: What the robot is to do from now on; only in a loop, where it changes.
    instruction: str | None = None


def as_observation(value: Observation | Mapping[str, Any] | ArrayLike) -> Observation:
    """An observation of what a caller gives: one, a mapping with its fields, or the state alone."""
    if isinstance(value, Observation):
        return value
    if isinstance(value, Mapping):
        known = Observation.__dataclass_fields__
        for name in value:
            if name not in known:
                raise BadInput(f"an observation has no {name!r}; it has {', '.join(known)}")
        return Observation(**value)
    return Observation(state=value)


def numbers(value: ArrayLike, name: str, most: int = _MOST_NUMBERS) -> NDArray[np.float64]:
    """One row of finite numbers, float64. `name` is the argument that it comes from."""
    array = np.asarray(value)
    if array.dtype == object:
        raise BadInput(f"{name} holds something that is no number; give one row of floats")
    if array.dtype.kind not in "fiub":
        raise BadInput(f"{name} has the type {array.dtype}; give floats")
    if array.ndim != 1:
        raise BadInput(f"{name} has the shape {array.shape}; give one row of numbers, such as {name}.ravel()")
    if array.size > most:
        raise BadInput(f"{name} has {array.size} numbers; {most} at most")
    row = array.astype(np.float64, copy=False)
    if not np.isfinite(row).all():
        at = int(np.flatnonzero(~np.isfinite(row))[0])
        raise BadInput(f"{name}[{at}] is {row[at]}; every number has to be finite")
    return row


def check_image(value: ImageLike, name: str) -> None:
    """Whether a picture can be sent, by what can be seen of it without reading it."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        head = bytes(value[:12])
        if not any(head.startswith(sign) for sign, _ in _SIGNS):
            raise BadInput(f"{name} is no JPEG, PNG or WebP; give an encoded picture, or an array of height x width x 3")
        return
    if isinstance(value, Path):
        return
    if not isinstance(value, np.ndarray):
        raise BadInput(f"{name} is a {type(value).__name__}; give an array, bytes, or a pathlib.Path")
    if value.ndim == 3 and value.shape[0] in (1, 3) and value.shape[2] not in (1, 3):
        raise BadInput(f"{name} has the shape {value.shape}, colours first; give height x width x 3, as by image.transpose(1, 2, 0)")
    if not (value.ndim == 2 or (value.ndim == 3 and value.shape[2] in (1, 3))):
        raise BadInput(f"{name} has the shape {value.shape}; give height x width x 3, or height x width")
    if value.dtype != np.uint8:
        scale = "(image * 255).astype(np.uint8)" if value.dtype.kind == "f" else "image.astype(np.uint8)"
        raise BadInput(f"{name} has the type {value.dtype}; give uint8 from 0 to 255, as by {scale}")
    if 0 in value.shape[:2] or max(value.shape[:2]) > _MOST_SIDE:
        raise BadInput(f"{name} is {value.shape[1]} x {value.shape[0]} pixels; 1 to {_MOST_SIDE} each")


def encoded(value: ImageLike, hint: FrameHint | None, name: str) -> bytes:
    """The bytes of a picture. An array becomes a JPEG, made as large as `hint` says; what is encoded stays as it is."""
    check_image(value, name)
    if isinstance(value, Path):
        try:
            data = value.read_bytes()
        except OSError as error:
            raise BadInput(f"{name}: {error.strerror}: {value}") from None
        check_image(data, name)
        return data
    if not isinstance(value, np.ndarray):
        return bytes(value)
    image = _pillow().fromarray(np.ascontiguousarray(value[:, :, 0] if value.ndim == 3 and value.shape[2] == 1 else value))
    if hint and hint.width and hint.height and image.size != (hint.width, hint.height):
        image = _fitted(image, hint)
    encoding = hint.encoding if hint else "JPEG"
    out = io.BytesIO()
    image.save(out, encoding, **({} if encoding == "PNG" else {"quality": JPEG_QUALITY}))
    return out.getvalue()


def _fitted(image: Any, hint: FrameHint) -> Any:
    """Made to fit into the size that is declared, its proportions kept; on black where no other size is taken, as openpi's own clients do."""
    ratio = max(image.width / hint.width, image.height / hint.height)
    if not hint.exact and ratio <= 1:
        return image
    size = (max(1, int(image.width / ratio)), max(1, int(image.height / ratio)))
    small = image.resize(size, _pillow().Resampling.BILINEAR)
    if not hint.exact or size == (hint.width, hint.height):
        return small
    ground = _pillow().new(image.mode, (hint.width, hint.height), 0)
    ground.paste(small, ((hint.width - size[0]) // 2, (hint.height - size[1]) // 2))
    return ground


def depth_png(value: NDArray[Any], name: str) -> bytes:
    """A depth picture as a PNG of 16 bits."""
    if not isinstance(value, np.ndarray) or value.dtype != np.uint16 or value.ndim != 2:
        kind = f"{value.dtype} of {value.shape}" if isinstance(value, np.ndarray) else type(value).__name__
        raise BadInput(f"{name} is {kind}; give height x width of uint16, in millimetres")
    out = io.BytesIO()
    _pillow().fromarray(np.ascontiguousarray(value)).save(out, "PNG")
    return out.getvalue()


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError:
        raise MissingPackage("pictures from arrays need Pillow: pip install 'limber[images]', or give encoded bytes") from None
    return Image


def checked(observation: Observation) -> None:
    """Raises where an observation cannot be sent; a picture is not encoded for that."""
    for kind, pictures in (("images", observation.images), ("depth", observation.depth)):
        if not isinstance(pictures, Mapping):
            raise BadInput(f"{kind} is a {type(pictures).__name__}; give a mapping of camera names to pictures")
        if len(pictures) > _MOST_CAMERAS:
            raise BadInput(f"{kind} has {len(pictures)} cameras; {_MOST_CAMERAS} at most")
        for camera in pictures:
            if not isinstance(camera, str) or len(camera) > 128:
                raise BadInput(f"{kind} has the key {camera!r}; a camera's name is a string of 128 characters at most")
    for camera, image in observation.images.items():
        check_image(image, f"images[{camera!r}]")
    if observation.state is not None:
        size = numbers(observation.state, "state").size
        names = observation.state_names
        if len(names) > 0 and len(names) != size:
            raise BadInput(f"state has {size} numbers and state_names {len(names)} names; give as many")
    if observation.tactile is not None:
        numbers(observation.tactile, "tactile")
    for name, value in (("gripper", observation.gripper), ("t_ms", observation.t_ms)):
        if value is not None and not np.isfinite(value):
            raise BadInput(f"{name} is {value}; it has to be finite")


def message_of(observation: Observation, hints: Mapping[str, FrameHint]) -> observation_pb2.Observation:
    """The message of an observation. Raises `BadInput` where it cannot be sent."""
    checked(observation)
    message = observation_pb2.Observation()
    for camera, image in observation.images.items():
        hint = hints.get(camera) or hints.get("")
        message.frames.add(camera=camera, data=encoded(image, hint, f"images[{camera!r}]"))
    for camera, depth in observation.depth.items():
        message.depth.add(camera=camera, data=depth_png(depth, f"depth[{camera!r}]"))
    if observation.state is not None:
        message.proprio.extend(numbers(observation.state, "state").tolist())
    message.proprio_names.extend(observation.state_names)
    if observation.tactile is not None:
        message.tactile.extend(numbers(observation.tactile, "tactile").tolist())
    if observation.gripper is not None:
        message.gripper = observation.gripper
    if observation.t_ms is not None:
        message.t_ms = observation.t_ms
    return message


def copied(observation: Observation) -> Observation:
    """The same with arrays of its own, so that a camera may write over its buffer."""
    own = {camera: image.copy() if isinstance(image, np.ndarray) else image for camera, image in observation.images.items()}
    return Observation(
        images=own,
        state=None if observation.state is None else np.array(observation.state, dtype=np.float64),
        state_names=tuple(observation.state_names),
        gripper=observation.gripper,
        tactile=None if observation.tactile is None else np.array(observation.tactile, dtype=np.float64),
        depth={camera: depth.copy() for camera, depth in observation.depth.items()},
        t_ms=observation.t_ms,
        instruction=observation.instruction,
    )


def decoded(data: bytes) -> NDArray[np.uint8]:
    """The pixels of a picture: height x width x 3, uint8, RGB."""
    return np.asarray(_pillow().open(io.BytesIO(data)).convert("RGB"))
