"""Invariants of the loop for arbitrary events at arbitrary times."""

from __future__ import annotations

import random

import pytest

from limber.core import LoopCore, percentile
from limber.loop import _Meter


def opened(rate_hz: float = 50, *, finish: bool = False, deadline_ms: float = 1000) -> LoopCore:
    core = LoopCore(rate_hz, finish=finish)
    core.opened(0, deadline_ms=deadline_ms)
    return core


def chunk(core: LoopCore, at: float, start: int, rows: int = 4, **more: float) -> str:
    facts = {"episode": core.episode, "start_step": start, "valid_until_step": start + rows, "dt_ms": 20, "rows": rows, **more}
    return core.chunk(at, **facts)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(40))
def test_no_action_is_ever_executed_outside_its_chunk_its_episode_or_after_the_end(seed: int) -> None:
    chance = random.Random(seed)
    core = LoopCore(50, finish=chance.random() < 0.5)
    at, taken, over = 0.0, None, False
    sent: set[tuple[int, int]] = set()
    for _ in range(3000):
        at += chance.choice([0, 5, 20, 20, 20, 60, 400])
        what = chance.random()
        if what < 0.6:
            made = core.tick(at)
            if over:
                assert made.row is None
            if made.send:
                assert (made.episode, made.step) not in sent
                sent.add((made.episode, made.step))
            if made.row is not None:
                assert taken is not None
                episode, start, until, rows, dt = taken
                assert made.episode == episode
                assert start <= made.step < until
                assert made.row < rows
                # The row that is due now by the clock: never an earlier or a later one.
                assert made.row * dt <= (made.step - start) * 20 + 1e-6 < (made.row + 1) * dt + 1e-6
            else:
                assert made.hold != ""
        elif what < 0.85:
            episode = core.episode - chance.choice([0, 0, 0, 1])
            start, rows, dt = max(0, core.step - chance.randrange(-2, 12)), chance.randrange(1, 20), chance.choice([10, 20, 50])
            if core.chunk(at, episode=episode, start_step=start, valid_until_step=start + rows, dt_ms=dt, rows=rows) == "taken":
                assert (episode, start) in sent or start <= core.step
                taken = (episode, start, start + rows, rows, dt)
        elif what < 0.93:
            core.hold(at, episode=core.episode, step=core.step, reason=chance.choice(["late", "no_provider", "out_of_bounds"]))
        elif what < 0.96:
            core.lost(at)
        elif what < 0.98:
            core.reset(at)
        elif what > 0.9995:
            core.stop("interrupted")
            over = True


def test_a_chunk_of_another_episode_is_never_executed() -> None:
    core = opened()
    core.tick(0)
    core.reset(10)
    assert core.chunk(15, episode=1, start_step=0, valid_until_step=8, dt_ms=20, rows=8) == "other_episode"
    assert core.tick(20).hold == "no_chunk"


def test_a_chunk_for_an_unsent_step_is_never_executed() -> None:
    core = opened()
    core.tick(0)
    assert chunk(core, 5, start=500, rows=100) == "unknown"
    assert core.tick(500 * 20).row is None


def test_an_answer_to_an_older_observation_does_not_replace_a_newer_one() -> None:
    core = opened()
    for at in (0, 20, 40):
        core.tick(at)
    assert chunk(core, 45, start=2) == "taken"
    assert chunk(core, 46, start=1) == "older"
    assert core.tick(60).row == 1


def test_rows_are_due_by_the_chunks_own_period() -> None:
    core = opened(100)
    core.tick(0)
    chunk(core, 1, start=0, rows=4, dt_ms=30, valid_until_step=100)
    assert [core.tick(at).row for at in (10, 20, 30, 60, 110)] == [0, 0, 1, 2, 3]
    assert core.tick(120).hold == "expired"


def test_a_chunk_without_a_period_has_one_row_per_step() -> None:
    core = opened()
    core.tick(0)
    chunk(core, 1, start=0, dt_ms=0)
    assert core.tick(40).row == 2


def test_the_robots_clock_decides_whether_a_chunk_is_late() -> None:
    core = opened(deadline_ms=50)
    core.tick(0)
    assert chunk(core, 51, start=0, rows=30, observation_time=0) == "late"
    assert core.tick(60).hold == "late"


def test_two_ticks_in_one_period_are_one_step() -> None:
    core = opened()
    assert [core.tick(at).step for at in (0, 4, 19, 41)] == [0, 0, 1, 2]
    assert core.tick(41).send is False


def test_a_pause_skips_the_rows_of_the_chunk() -> None:
    core = opened()
    core.tick(0)
    chunk(core, 1, start=0, rows=8)
    assert core.tick(20).row == 1
    assert core.tick(100).row == 5
    assert core.tick(160).hold == "expired"


def test_a_clock_that_goes_back_ends_the_loop() -> None:
    core = opened()
    core.tick(100)
    assert core.tick(99.5).hold != "clock"
    assert core.tick(50).hold == "clock"
    assert core.tick(200).hold == "clock"


def test_percentile_returns_the_value_at_a_share() -> None:
    assert percentile([], 0.5) == 0
    assert percentile([3, 1, 2], 0.5) == 2
    assert percentile([3, 1, 2], 0.99) == 3


def test_the_worst_second_counts_seconds_in_which_nothing_moved() -> None:
    meter = _Meter()
    for i in range(100):
        meter.tick(i / 50, True, "")
    for i in range(50):
        meter.tick(2 + i / 50, False, "late")
    for i in range(51):
        meter.tick(3 + i / 50, True, "")
    stats = meter.stats()
    assert (stats.rate_hz, stats.worst_second_hz) == (50, 0)
    assert stats.holds == {"late": 50}
    assert stats.average_hz == pytest.approx(150 / 4)
