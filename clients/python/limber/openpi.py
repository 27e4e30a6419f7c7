"""Gateway models behind openpi's policy interface: `infer(obs)` and `reset()`, as in openpi's `BasePolicy`.

    policy = limber.openpi.Policy(client, "openpi/pi05-droid", action_space="joint_pos_7")
    actions = policy.infer({"observation/wrist_image": image, "state": state, "prompt": "fold the towel"})["actions"]

openpi is not imported. `Policy` matches openpi's `BasePolicy` by structure.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from typing import Any

import numpy as np

from limber._frames import Observation
from limber.client import Limber
from limber.errors import BadInput

#: Keys that openpi's robots use for the state. The first complete entry is used; an entry with several keys is concatenated.
_STATES = (("state",), ("observation/state",), ("observation/joint_position", "observation/gripper_position"))


class Policy:
    """A gateway model with openpi's policy interface.

    Images are uint8 arrays with two or three axes; the last part of the key is the camera name. The state is `state`, `observation/state`, or
    DROID's joint and gripper positions. The instruction is `prompt`. `keys` overrides the keys: `{"wrist": "my/wrist/camera"}` for images,
    `{"state": "my/state"}` for the state. `options` are the options of `Limber.act`.
    """

    def __init__(self, client: Limber, model: str, *, keys: Mapping[str, str] | None = None, **options: Any) -> None:
        self._client = client
        self._model = model
        self._keys = dict(keys or {})
        self._options = options
        self.reset()

    def reset(self) -> None:
        """Begins a new episode, which another provider can serve."""
        self._session = f"openpi-{uuid.uuid4().hex}"

    def observation(self, obs: Mapping[str, Any]) -> Observation:
        """Converts `obs` to the observation that is sent. Raises `BadInput` if it contains neither a state nor an image."""
        named = {source: name for name, source in self._keys.items()}
        images: dict[str, Any] = {}
        state: Any = None
        for source, value in obs.items():
            name = named.get(source)
            if name == "state":
                state = value
            elif name is not None:
                images[name] = _picture(value)
            elif isinstance(value, np.ndarray) and value.dtype == np.uint8 and value.ndim in (2, 3):
                images[_camera(source)] = _picture(value)
        if state is None:
            found = next((names for names in _STATES if all(name in obs for name in names)), ())
            if found:
                state = np.concatenate([np.atleast_1d(np.asarray(obs[name], dtype=np.float64)).ravel() for name in found])
        if state is None and not images:
            raise BadInput(f"obs must contain a state or an image, got {', '.join(map(str, obs)) or 'no keys'}; name them with keys=")
        return Observation(images=images, state=state)

    def infer(self, obs: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the actions for an observation: `{"actions": float64 of shape (steps, dimensions), "policy_timing": {"infer_ms": …}}`."""
        options = dict(self._options)
        provider = {"session_id": self._session, **options.pop("provider", {})}
        prompt = obs.get("prompt")
        if prompt is not None and "instruction" not in options:
            options["instruction"] = str(prompt)
        began = time.monotonic()
        chunk = self._client.act(self._model, self.observation(obs), provider=provider, **options)
        return {
            "actions": chunk.steps,
            "policy_timing": {"infer_ms": (time.monotonic() - began) * 1000},
            "server_timing": {"provider": chunk.route.provider, "cost_usd": chunk.cost_usd},
        }


def _camera(source: str) -> str:
    """Returns the camera name of a key: `observation/wrist_image_left` → `wrist_image_left`, as on openpi's own server."""
    return source.rpartition("/")[2].rpartition(".")[2]


def _picture(value: Any) -> Any:
    """Moves the channel axis to the end; openpi's clients send both layouts."""
    array = np.asarray(value)
    if array.ndim == 3 and array.shape[0] in (1, 3) and array.shape[2] not in (1, 3):
        return array.transpose(1, 2, 0)
    return array
