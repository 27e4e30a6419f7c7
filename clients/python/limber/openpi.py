"""Models of a gateway as openpi's policies: `infer(obs)` and `reset()`, as openpi's own `BasePolicy` has them.

    policy = limber.openpi.Policy(client, "openpi/pi05-droid", action_space="joint_pos_7")
    actions = policy.infer({"observation/wrist_image": image, "state": state, "prompt": "fold the towel"})["actions"]

Nothing of openpi is imported. Where openpi's client is installed, `Policy` is an instance of its `BasePolicy` by shape.
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

#: Names under which openpi's robots send the state; the first that is there counts, those behind `+` are joined.
_STATES = (("state",), ("observation/state",), ("observation/joint_position", "observation/gripper_position"))


class Policy:
    """A model of a gateway behind openpi's interface.

    Pictures are what has two or three axes and the type uint8, under the last part of its name; the state is `state`, `observation/state`,
    or DROID's joint and gripper positions; the instruction is `prompt`. `keys` names others: `{"wrist": "my/wrist/camera"}` for pictures,
    `{"state": "my/state"}` for the state. Further options are those of `Limber.act`.
    """

    def __init__(self, client: Limber, model: str, *, keys: Mapping[str, str] | None = None, **options: Any) -> None:
        self._client = client
        self._model = model
        self._keys = dict(keys or {})
        self._options = options
        self.reset()

    def reset(self) -> None:
        """A new episode begins: another provider may serve it."""
        self._session = f"openpi-{uuid.uuid4().hex}"

    def observation(self, obs: Mapping[str, Any]) -> Observation:
        """What is sent for `obs`. Raises `BadInput` where there is neither a state nor a picture in it."""
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
            raise BadInput(f"obs has {', '.join(map(str, obs)) or 'nothing'}; name its state and pictures by keys=")
        return Observation(images=images, state=state)

    def infer(self, obs: Mapping[str, Any]) -> dict[str, Any]:
        """The actions for an observation: `{"actions": float64 of steps x dimensions, "policy_timing": {"infer_ms": …}}`."""
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
    """`observation/wrist_image_left` → `wrist_image_left`: the name that the client's own server would read."""
    return source.rpartition("/")[2].rpartition(".")[2]


def _picture(value: Any) -> Any:
    """Colours last; openpi's clients send both."""
    array = np.asarray(value)
    if array.ndim == 3 and array.shape[0] in (1, 3) and array.shape[2] not in (1, 3):
        return array.transpose(1, 2, 0)
    return array
