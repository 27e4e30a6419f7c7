"""Conversion between arrays or files and observation messages. Invalid input raises `BadInput` before anything is sent."""

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

#: An image: uint8 of shape (height, width, 3), RGB; uint8 of shape (height, width), gray; an encoded JPEG, PNG or WebP; or the path of a file.
ImageLike = Union[NDArray[Any], bytes, Path]

#: JPEG quality for encoded arrays.
JPEG_QUALITY = 90
_MOST_SIDE = 16384
_MOST_NUMBERS = 4096
_MOST_CAMERAS = 16
_SIGNS = ((b"\xff\xd8\xff", "jpeg"), (b"\x89PNG\r\n\x1a\n", "png"), (b"RIFF", "webp"))


@dataclass(frozen=True)
class FrameHint:
    """The image format that an offering declares for one camera. A width or height of 0 accepts any size."""

    width: int = 0
    height: int = 0
    #: True if the offering refuses other sizes: the image is scaled and padded with black. If false, it is only shrunk and the gateway resizes it.
    exact: bool = True
    #: The encoding for arrays: `JPEG`, `PNG` or `WEBP`.
    encoding: str = "JPEG"


@dataclass
class Observation:
    """What a robot senses at one moment.

    Arrays are checked when they are sent and are not copied until then, so do not modify them before. A loop copies them.
    """

    #: Images by camera name. The name can be empty if there is only one camera.
    images: Mapping[str, ImageLike] = field(default_factory=dict)
    #: Proprioception: one row of numbers, in the order and units that the model declares.
    state: ArrayLike | None = None
    #: Names of the entries of `state`, in order.
    state_names: Sequence[str] = ()
    #: Gripper opening, in the range that the model declares.
    gripper: float | None = None
    #: Tactile readings, in the order that the model declares.
    tactile: ArrayLike | None = None
    #: Depth by camera: uint16 of shape (height, width), in millimeters.
    depth: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    #: Capture time, in milliseconds of the caller's own clock. A loop sets it.
    t_ms: float | None = None
    #: The new instruction. Only loops accept it; it applies until the next change.
    instruction: str | None = None


def as_observation(value: Observation | Mapping[str, Any] | ArrayLike) -> Observation:
    """Converts an observation, a mapping of its fields, or a state vector to an `Observation`."""
    if isinstance(value, Observation):
        return value
    if isinstance(value, Mapping):
        known = Observation.__dataclass_fields__
        for name in value:
            if name not in known:
                raise BadInput(f"an observation has no field {name!r}; its fields are {', '.join(known)}")
        return Observation(**value)
    return Observation(state=value)


def numbers(value: ArrayLike, name: str, most: int = _MOST_NUMBERS) -> NDArray[np.float64]:
    """Returns one row of finite numbers, as float64. `name` is the argument name for error messages."""
    array = np.asarray(value)
    if array.dtype == object:
        raise BadInput(f"{name} contains a value that is not a number; pass one row of floats")
    if array.dtype.kind not in "fiub":
        raise BadInput(f"{name} must be floats, got {array.dtype}")
    if array.ndim != 1:
        raise BadInput(f"{name} must be one row of numbers, got the shape {array.shape}; use {name}.ravel()")
    if array.size > most:
        raise BadInput(f"{name} must have at most {most} numbers, got {array.size}")
    row = array.astype(np.float64, copy=False)
    if not np.isfinite(row).all():
        at = int(np.flatnonzero(~np.isfinite(row))[0])
        raise BadInput(f"{name}[{at}] must be finite, got {row[at]}")
    return row


def check_image(value: ImageLike, name: str) -> None:
    """Checks an image without decoding it. Raises `BadInput` if it cannot be sent."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        head = bytes(value[:12])
        if not any(head.startswith(sign) for sign, _ in _SIGNS):
            raise BadInput(f"{name} must be an encoded JPEG, PNG or WebP, or an array of height x width x 3")
        return
    if isinstance(value, Path):
        return
    if not isinstance(value, np.ndarray):
        raise BadInput(f"{name} must be an array, bytes, or a pathlib.Path, got {type(value).__name__}")
    if value.ndim == 3 and value.shape[0] in (1, 3) and value.shape[2] not in (1, 3):
        raise BadInput(f"{name} must be height x width x 3, got the channels-first shape {value.shape}; use image.transpose(1, 2, 0)")
    if not (value.ndim == 2 or (value.ndim == 3 and value.shape[2] in (1, 3))):
        raise BadInput(f"{name} must be height x width x 3 or height x width, got the shape {value.shape}")
    if value.dtype != np.uint8:
        scale = "(image * 255).astype(np.uint8)" if value.dtype.kind == "f" else "image.astype(np.uint8)"
        raise BadInput(f"{name} must be uint8 from 0 to 255, got {value.dtype}; use {scale}")
    if 0 in value.shape[:2] or max(value.shape[:2]) > _MOST_SIDE:
        raise BadInput(f"{name} must have 1 to {_MOST_SIDE} pixels on each side, got {value.shape[1]} x {value.shape[0]}")


def encoded(value: ImageLike, hint: FrameHint | None, name: str) -> bytes:
    """Encodes an image. Arrays become a JPEG, or the encoding and size that `hint` declares; encoded images are not changed."""
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
    """Fits an image into the declared size and keeps its aspect ratio. Pads with black if only that size is accepted, like openpi's clients."""
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
    """Encodes a depth image as a 16-bit PNG."""
    if not isinstance(value, np.ndarray) or value.dtype != np.uint16 or value.ndim != 2:
        kind = f"{value.dtype} of {value.shape}" if isinstance(value, np.ndarray) else type(value).__name__
        raise BadInput(f"{name} must be height x width of uint16, in millimeters, got {kind}")
    out = io.BytesIO()
    _pillow().fromarray(np.ascontiguousarray(value)).save(out, "PNG")
    return out.getvalue()


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError:
        raise MissingPackage("encoding arrays as images needs Pillow: pip install 'limber[images]', or pass encoded bytes") from None
    return Image


def checked(observation: Observation) -> None:
    """Checks an observation without encoding its images. Raises `BadInput` if it cannot be sent."""
    for kind, pictures in (("images", observation.images), ("depth", observation.depth)):
        if not isinstance(pictures, Mapping):
            raise BadInput(f"{kind} must be a mapping of camera names to images, got {type(pictures).__name__}")
        if len(pictures) > _MOST_CAMERAS:
            raise BadInput(f"{kind} must have at most {_MOST_CAMERAS} cameras, got {len(pictures)}")
        for camera in pictures:
            if not isinstance(camera, str) or len(camera) > 128:
                raise BadInput(f"a camera name in {kind} must be a string of at most 128 characters, got {camera!r}")
    for camera, image in observation.images.items():
        check_image(image, f"images[{camera!r}]")
    if observation.state is not None:
        size = numbers(observation.state, "state").size
        names = observation.state_names
        if len(names) > 0 and len(names) != size:
            raise BadInput(f"state and state_names must have the same length, got {size} and {len(names)}")
    if observation.tactile is not None:
        numbers(observation.tactile, "tactile")
    for name, value in (("gripper", observation.gripper), ("t_ms", observation.t_ms)):
        if value is not None and not np.isfinite(value):
            raise BadInput(f"{name} must be finite, got {value}")


def message_of(observation: Observation, hints: Mapping[str, FrameHint]) -> observation_pb2.Observation:
    """Converts an observation to a message. Raises `BadInput` if it cannot be sent."""
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
    """Copies an observation with its arrays, so that the caller can reuse its buffers."""
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
    """Decodes an image to uint8 of shape (height, width, 3), RGB."""
    return np.asarray(_pillow().open(io.BytesIO(data)).convert("RGB"))
