"""Runs an organization's external evaluations in any Gymnasium environment.

    def make(scenario):
        return gymnasium.make("FetchReach-v4")

    limber.gym.run(client, make, to_observation=lambda obs, info: {"state": obs["observation"]}, scenarios=["fetch/reach"])

claims the evaluations that were requested with `runner: external`, runs their episodes, reports each one, and returns when none is queued.
Gymnasium itself is not imported: any object with `reset(seed=)` and `step(action)` works.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from limber import _answers as answers
from limber import _calls as calls
from limber import _requests as requests
from limber._answers import Evaluation
from limber._gen.limber.v1 import evaluation_pb2, runner_service_pb2
from limber._version import VERSION
from limber.client import Limber
from limber.errors import ConnectionFailed, LimberError, MalformedAnswer, OutOfTime, Refused


class Environment(Protocol):
    """The two Gymnasium methods that an environment must have."""

    def reset(self, *, seed: int | None = None) -> tuple[Any, dict[str, Any]]: ...

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]: ...


#: Converts an observation of the environment and its info to what `Limber.act` accepts.
ToObservation = Callable[[Any, dict[str, Any]], Any]
#: Returns whether an episode succeeded, from its last reward and info.
Success = Callable[[float, dict[str, Any]], bool]


def _succeeded(reward: float, info: dict[str, Any]) -> bool:
    """Follows Gymnasium's convention: `is_success` or `success` in the info."""
    return bool(info.get("is_success", info.get("success", False)))


def run(
    client: Limber,
    make: Callable[[str], Environment],
    *,
    to_observation: ToObservation,
    to_action: Callable[[NDArray[np.float64]], Any] = lambda row: row,
    success: Success = _succeeded,
    scenarios: Sequence[str] = (),
    max_steps: int = 1000,
    instruction: str | Callable[[dict[str, Any]], str] | None = None,
    harness: str = f"limber.gym {VERSION}",
    forever: bool = False,
    tell: Callable[[str], None] = print,
) -> list[Evaluation]:
    """Runs the queued evaluations of the key's organization and returns their results.

    `make(scenario)` returns the environment. `to_observation(obs, info)` converts an observation for the policy; `to_action(row)` converts a row
    for the environment. An episode ends after `max_steps`. A policy fault is reported as such and not billed; an environment fault ends
    the evaluation with `harness_failed`. With `forever`, the function waits for more evaluations.
    """
    done: list[Evaluation] = []
    while True:
        request = runner_service_pb2.ClaimEvaluationRequest(harness=harness, scenarios=scenarios, lease_s=60)
        answer = client.call(calls.CLAIM_EVALUATION, request)
        if answer.HasField("claim"):
            done.append(_claimed(client, answer.claim, make, to_observation, to_action, success, max_steps, instruction))
            tell(f"{done[-1].id} {done[-1].status}: {done[-1].completed} of {done[-1].total} episodes, success {done[-1].success_rate}")
        elif not forever:
            return done
        else:
            time.sleep(2)


def _claimed(
    client: Limber,
    claim: runner_service_pb2.EvaluationClaim,
    make: Callable[[str], Environment],
    to_observation: ToObservation,
    to_action: Callable[[NDArray[np.float64]], Any],
    success: Success,
    max_steps: int,
    instruction: str | Callable[[dict[str, Any]], str] | None,
) -> Evaluation:
    job, epoch = claim.evaluation.id, claim.epoch
    stop = threading.Event()
    over = threading.Event()

    def live() -> None:
        while not over.wait(claim.lease_s / 3):
            with contextlib.suppress(ConnectionFailed):
                try:
                    if client.call(calls.RENEW_CLAIM, runner_service_pb2.RenewClaimRequest(job_id=job, epoch=epoch)).stop:
                        stop.set()
                except Refused:
                    # Another runner has claimed the evaluation.
                    stop.set()

    beating = threading.Thread(target=live, daemon=True)
    beating.start()
    fault: Exception | None = None
    try:
        env = make(claim.evaluation.scenario.id)
        for index in claim.open_episodes:
            if stop.is_set():
                break
            report = _episode(client, claim, env, index, to_observation, to_action, success, max_steps, instruction)
            if client.call(calls.REPORT_EPISODE, report).stop:
                break
    except Refused:
        raise
    except Exception as error:  # noqa: BLE001 - a harness failure is reported before it is raised
        fault = error
    finally:
        over.set()
    finish = runner_service_pb2.FinishEvaluationRequest(job_id=job, epoch=epoch)
    if fault is not None:
        finish.error.CopyFrom(evaluation_pb2.EvaluationError(code="harness_failed", message=f"{type(fault).__name__}: {fault}"[:1024]))
    ended = answers.evaluation_of(client.call(calls.FINISH_EVALUATION, finish).evaluation)
    if fault is not None:
        raise fault
    return ended


def _episode(
    client: Limber,
    claim: runner_service_pb2.EvaluationClaim,
    env: Environment,
    index: int,
    to_observation: ToObservation,
    to_action: Callable[[NDArray[np.float64]], Any],
    success: Success,
    max_steps: int,
    instruction: str | Callable[[dict[str, Any]], str] | None,
) -> runner_service_pb2.ReportEpisodeRequest:
    policy = claim.evaluation.policy
    obs, info = env.reset(seed=claim.seed + index)
    words = instruction(info) if callable(instruction) else instruction
    rows: NDArray[np.float64] = np.zeros((0, 0))
    total, steps, at = 0.0, 0, 0
    latencies: list[float] = []
    ended, error = "max_steps", ""
    provider: Mapping[str, Any] = {"session_id": f"{claim.evaluation.id}-{index}", "deadline_ms": claim.policy_timeout_ms}
    while steps < max_steps:
        if at >= min(len(rows), claim.replan_steps or len(rows)):
            began = time.monotonic()
            try:
                chunk = client.act(
                    policy.endpoint,
                    to_observation(obs, info),
                    action_space=policy.action_space or None,
                    horizon=claim.horizon or None,
                    instruction=words,
                    provider=provider,
                    timeout_s=claim.policy_timeout_ms / 1000 + 1,
                )
            except (OutOfTime, ConnectionFailed) as fault:
                ended, error = ("policy_timeout" if isinstance(fault, OutOfTime) else "policy_disconnected"), str(fault)
                break
            except MalformedAnswer as fault:
                ended, error = "invalid_action", str(fault)
                break
            except LimberError as fault:
                ended, error = "policy_error", str(fault)
                break
            latencies.append((time.monotonic() - began) * 1000)
            rows, at = chunk.steps, 0
        obs, reward, terminated, truncated, info = env.step(to_action(rows[at]))
        at += 1
        steps += 1
        reward = float(reward)
        total += reward if math.isfinite(reward) else 0.0
        if success(reward, info):
            ended = "success"
            break
        if terminated or truncated:
            ended = "fell" if terminated else "max_steps"
            break
    figures = {str(name): float(value) for name, value in info.items() if _is_number(value)}
    report = requests.make(
        runner_service_pb2.ReportEpisodeRequest,
        job_id=claim.evaluation.id,
        epoch=claim.epoch,
        index=index,
        termination=ended,
        steps=steps,
        latencies_ms=latencies[:10_000],
        metrics=dict(list(figures.items())[:64]),
        **{"return": total},
    )
    if error:
        report.error = error[:1024]
    return report


def _is_number(value: Any) -> bool:
    return isinstance(value, (bool, int, float, np.number)) and math.isfinite(float(value))
