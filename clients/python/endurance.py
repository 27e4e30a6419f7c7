"""A robot that detects stale actions and actions of other episodes: `python endurance.py URL,URL KEY SECONDS`; `npm run chaos python` runs it.

At 100 Hz it sends observations that identify its model's answers: the episode, and a number for each observation. Each executed action therefore
identifies the observation that it answers, and the robot checks it independently of the client's counters. A new episode begins every 7 s. Exits
with 1 if an action was stale or of another episode. Prints one line of JSON; `reopened_ms` are the median and the longest time from the last chunk
of a stream to the first of the next one.
"""

import json
import statistics
import sys
import time

import limber

RATE_HZ = 100
HORIZON = 16
EPISODE_S = 7.0
#: Distance between the values of two consecutive episodes.
APART = 1_000_000
#: Duration of a chunk plus one control step.
LONGEST_S = (HORIZON + 1) / RATE_HZ


def main() -> int:
    urls, key, seconds = sys.argv[1].split(","), sys.argv[2], float(sys.argv[3])
    stale = mixed = 0
    faults: list[str] = []
    options = {"action_space": "base_twist_2d", "horizon": HORIZON, "robot": "endurance", "deadline_ms": 150}
    with limber.Limber(urls, key) as client, client.loop("acme/base", rate_hz=RATE_HZ, **options) as loop:
        sensed: list[float] = []
        gaps: list[float] = []
        chunks = streams = 0
        last_chunk = 0.0
        episode, resets = 1, 0.0
        began = due = time.monotonic()
        resets = began + EPISODE_S
        while (now := time.monotonic()) - began < seconds:
            if now >= resets:
                episode, resets = loop.reset(), now + EPISODE_S
                sensed.clear()
            sensed.append(now)
            tick = loop.tick([episode * APART + len(sensed) - 1])
            if tick.action is not None:
                # The model adds 0.01 for each row.
                of, number = divmod(int(tick.action[0] + 1e-6), APART)
                if of != episode:
                    mixed += 1
                    faults.append(f"episode {episode}: executed an action of episode {of}")
                elif number >= len(sensed) or now - sensed[number] > LONGEST_S:
                    stale += 1
                    faults.append(f"executed an action for an observation from {(now - sensed[min(number, len(sensed) - 1)]) * 1000:.0f} ms ago")
            stats = loop.stats
            if stats.chunks > chunks:
                if stats.streams > streams > 0:
                    gaps.append((now - last_chunk) * 1000)
                chunks, streams, last_chunk = stats.chunks, stats.streams, now
            due = max(due + 1 / RATE_HZ, now)
            time.sleep(max(0.0, due - time.monotonic()))
        stats = loop.stats
    told = {
        "seconds": seconds,
        "steps": stats.steps,
        "actions": stats.actions,
        "chunks": stats.chunks,
        "streams": stats.streams,
        "episodes": episode,
        "average_hz": round(stats.average_hz, 2),
        "worst_second_hz": stats.worst_second_hz,
        "age_ms": round(stats.age_ms, 2),
        "age_p99_ms": round(stats.age_p99_ms, 2),
        "reopened_ms": [round(statistics.median(gaps)), round(max(gaps))] if gaps else [],
        "holds": stats.holds,
        "refused_chunks": stats.refused_chunks,
        "stale": stale,
        "mixed": mixed,
        "faults": faults[:5],
    }
    print(json.dumps(told))
    return 1 if stale or mixed else 0


if __name__ == "__main__":
    sys.exit(main())
