"""Replays the golden traces of `clients/conformance`: all clients make the same decisions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from limber.core import LoopCore

HERE = Path(__file__).resolve().parent
#: The repository shares the traces between clients; the source package includes them beside its tests.
FOLDER = HERE / "traces" if (HERE / "traces").exists() else HERE.parents[1] / "conformance" / "traces"
TRACES = sorted(FOLDER.glob("*.jsonl"))


def take(core: LoopCore, event: dict[str, Any]) -> Any:
    at = event["at"]
    if event.get("tick"):
        made = core.tick(at)
        return {"step": made.step, "episode": made.episode, "send": made.send, "row": made.row, "hold": made.hold}
    if "chunk" in event:
        return core.chunk(at, **event["chunk"])
    if "hold" in event:
        return core.hold(at, **event["hold"])
    if event.get("reset"):
        return core.reset(at)
    if "opened" in event:
        core.opened(at, **event["opened"])
    elif event.get("lost"):
        core.lost(at)
    elif "ended" in event:
        core.ended(at, **event["ended"])
    elif "stop" in event:
        core.stop(event["stop"])
    else:
        raise AssertionError(f"an event of no kind: {event}")
    return None


def test_the_traces_exist() -> None:
    assert len(TRACES) >= 17


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.stem)
def test_a_trace_produces_the_recorded_decisions(path: Path) -> None:
    head, *events = map(json.loads, path.read_text().splitlines())
    core = LoopCore(head["rate_hz"], finish=head["finish"], episode=head["episode"])
    assert any("expect" in event for event in events)
    for number, event in enumerate(events):
        assert take(core, event) == event.get("expect"), f"{path.stem}, event {number}: {event}"
