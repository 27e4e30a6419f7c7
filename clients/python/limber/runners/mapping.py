"""What a benchmark gives a policy and expects from it, and the check that a policy fits before the first step.

Most wrong scores come from conventions, not from policies: an inverted gripper, absolute instead of relative actions, a rotation in another form,
a state that was not sent. A mapping therefore declares all of them, and a policy that declares something else is refused.
Source of the list: allenai/vla-evaluation-harness, docs/reproductions/common-pitfalls.md at e1ee9ad.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limber._gen.limber.v1 import input_contract_pb2
from limber.errors import BadInput


@dataclass(frozen=True)
class Camera:
    """A camera: images are uint8 of shape (height, width, 3), RGB."""

    name: str
    width: int
    height: int


@dataclass(frozen=True)
class Gripper:
    """The gripper's index in an action, and the values that open and close it."""

    index: int
    open: float
    closed: float


@dataclass(frozen=True)
class Mapping:
    """The interface of one task.

    `action` names the values of an action, in order, between `low` and `high`. `units` has one entry for all values or one for each; `1` means
    that the benchmark scales the value itself. `reference` and `rotation` are the words of the schema's ActionReference and RotationForm.
    What a benchmark does not define is empty, and is not compared.
    """

    action: tuple[str, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    units: tuple[str, ...] = ()
    reference: str = ""
    rotation: str = ""
    gripper: Gripper | None = None
    cameras: tuple[Camera, ...] = ()
    state: tuple[str, ...] = ()
    #: The action space that is requested from the policy.
    action_space: str = "continuous_nd"
    #: Duration of a control step, in seconds; 0 if it is unknown.
    dt_s: float = 0.0
    #: The observation keys of openpi servers, by camera name; `state` and `prompt` name the keys of the state and the instruction.
    openpi: dict[str, str] = field(default_factory=dict)
    #: True if openpi servers get the images rotated by 180 degrees.
    openpi_turned: bool = False

    def __post_init__(self) -> None:
        if not len(self.action) == len(self.low) == len(self.high):
            raise BadInput("a mapping needs a lower and an upper bound for each value of the action")

    def clipped(self, row: NDArray[np.float64]) -> tuple[NDArray[np.float64], bool]:
        """Returns an action within its bounds, and whether it exceeded them by more than rounding."""
        within = np.clip(row, self.low, self.high)
        return within, bool(np.abs(within - row).max(initial=0.0) > 1e-6)


@dataclass(frozen=True)
class Declared:
    """What a policy declares about itself; empty fields are not declared."""

    input: input_contract_pb2.InputContract | None = None
    actions: Sequence[input_contract_pb2.ActionMeaning] = ()
    action_spaces: Sequence[str] = ()
    action_dim: int = 0
    #: Cameras and state names of servers without an input contract.
    cameras: Sequence[str] = ()
    state: Sequence[str] = ()


#: What the catalog's taxonomy says of the action space, which holds for policies that declare no meaning themselves.
_SPACES = {
    "ee_delta_6d_grip": input_contract_pb2.ActionMeaning(
        units=["m", "m", "m", "rad", "rad", "rad", "1"],
        reference=input_contract_pb2.ACTION_REFERENCE_RELATIVE,
        rotation=input_contract_pb2.ROTATION_FORM_AXIS_ANGLE,
        gripper=input_contract_pb2.GripperMeaning(indexes=[6], open=1, closed=0),
    )
}


def _word(kind: Any, value: int, prefix: str) -> str:
    name: str = kind.Name(value) if value in kind.values() else ""
    return name.removeprefix(prefix).lower().replace("unspecified", "")


def _each(units: Sequence[str], count: int) -> list[str]:
    return list(units) * count if len(units) == 1 else list(units)


def conflicts(mapping: Mapping, declared: Declared, *, instruction: bool, assume: bool = False) -> list[str]:
    """Returns a sentence for each way in which a policy does not fit a task; none if it fits.

    `instruction` tells whether the task has one. If a policy declares no meaning of its actions, that of its action space holds; with `assume`, the task's.
    """
    found: list[str] = []
    size = len(mapping.action)
    if declared.action_spaces and mapping.action_space not in declared.action_spaces:
        found.append(f"the task's action space is {mapping.action_space}, the policy's {', '.join(declared.action_spaces)}")
    if declared.action_dim and declared.action_dim != size:
        found.append(f"the task's actions have {size} values ({', '.join(mapping.action)}), the policy's {declared.action_dim}")
    found += _input_conflicts(mapping, declared, instruction)
    meanings = [each for each in declared.actions if each.action_space in ("", mapping.action_space)]
    for meaning in meanings:
        found += _action_conflicts(mapping, meaning)
    if not meanings and not assume and mapping.action_space in _SPACES:
        undeclared = _action_conflicts(mapping, _SPACES[mapping.action_space])
        advice = f"the policy declares no meaning of its actions, so that of {mapping.action_space} holds; declare `actions` with it, or pass --assume-actions"
        found += [*undeclared, advice] if undeclared else []
    return found


def _input_conflicts(mapping: Mapping, declared: Declared, instruction: bool) -> list[str]:
    found: list[str] = []
    contract = declared.input
    names = [camera.name for camera in mapping.cameras]
    wanted = [[camera] for camera in declared.cameras]
    if contract is not None and contract.HasField("cameras"):
        wanted = [[each.name, *each.aliases] for each in contract.cameras.cameras if each.name and each.required]
    missing = [aliases[0] for aliases in wanted if not set(aliases) & set(names)]
    if missing:
        found.append(f"the policy needs the cameras {', '.join(missing)}; the task has {', '.join(names) or 'none'}")
    state = list(mapping.state)
    layouts = [each for each in contract.proprio if each.action_space in ("", mapping.action_space)] if contract is not None else []
    if layouts:
        fits = [
            (each.more_values and set(each.names) <= set(state)) or list(each.names) == state or (each.any_order and set(each.names) == set(state))
            if each.names
            else not each.HasField("dimension") or each.dimension == len(state)
            for each in layouts
        ]
        if not any(fits):
            found.append(f"the policy reads the state {_layout(layouts[0])}; the task's is {', '.join(state) or 'empty'}")
    elif declared.state and list(declared.state) != state:
        found.append(f"the policy reads the state {', '.join(declared.state)}; the task's is {', '.join(state) or 'empty'}")
    needed = contract is not None and contract.language.need == input_contract_pb2.INPUT_NEED_REQUIRED
    if needed and not instruction:
        found.append("the policy needs an instruction, and the task has none; pass --instruction")
    return found


def _layout(spec: input_contract_pb2.ProprioSpec) -> str:
    return ", ".join(spec.names) or f"of {spec.dimension} values"


def _action_conflicts(mapping: Mapping, meaning: input_contract_pb2.ActionMeaning) -> list[str]:
    found: list[str] = []

    def compare(what: str, task: str, policy: str) -> None:
        if task and policy and task != policy:
            found.append(f"{what}: the task expects {task}, the policy returns {policy}")

    size = len(mapping.action)
    if meaning.names and len(meaning.names) != size:
        found.append(f"the task's actions have {size} values ({', '.join(mapping.action)}), the policy's {len(meaning.names)}")
    ours, theirs = _each(mapping.units, size), _each(meaning.units, size)
    if ours and theirs and ours != theirs:
        found.append(f"units: the task expects {', '.join(ours)}, the policy returns {', '.join(theirs)}")
    compare("reference", mapping.reference, _word(input_contract_pb2.ActionReference, meaning.reference, "ACTION_REFERENCE_"))
    compare("rotation", mapping.rotation, _word(input_contract_pb2.RotationForm, meaning.rotation, "ROTATION_FORM_"))
    if mapping.gripper is not None and meaning.HasField("gripper"):
        grip, theirs_ = mapping.gripper, meaning.gripper
        if list(theirs_.indexes) not in ([], [grip.index]) or (theirs_.open, theirs_.closed) != (grip.open, grip.closed):
            found.append(
                f"gripper: the task opens at {grip.open:g} and closes at {grip.closed:g} in value {grip.index}, "
                f"the policy opens at {theirs_.open:g} and closes at {theirs_.closed:g} in {', '.join(map(str, theirs_.indexes)) or 'undeclared values'}"
            )
    return found
