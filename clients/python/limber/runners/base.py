"""The runner of external evaluations: claims them, keeps their leases, runs their episodes in a benchmark, and reports each one.

A benchmark is a `Suite` of tasks, and each opened task is a `World`. Episode `i` of an evaluation has the seed `seed + i`. With `n` tasks, seed `s`
is task `s % n` and its trial `s // n`, so evaluations with equal seeds and tasks run equal episodes and can be compared.

- The lease is renewed in the background. A runner that lost it (`claim_lost`) reports nothing more; the next runner continues with the open episodes.
- All worlds of a runner run in one thread, because graphics contexts and event loops belong to a thread. If a call of a world does not return in time,
  its episode is a fault, and another world in another thread replaces it. The first world is closed in its own thread once the call has returned.
- A policy that does not fit the task is refused before the first step, with a sentence for each conflict.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from limber import _answers as answers
from limber import _calls as calls
from limber import _requests as requests
from limber._answers import Evaluation
from limber._frames import Observation, as_observation, checked
from limber._gen.limber.v1 import evaluation_pb2, runner_service_pb2
from limber.client import Limber
from limber.errors import BadInput, ClaimLost, ConnectionFailed, LimberError, MissingPackage, RateLimitError, ServerError
from limber.runners.mapping import Mapping, conflicts
from limber.runners.policy import Policy, PolicyFault, policy_of

T = TypeVar("T")

#: Consecutive faults of a world, or equal faults of a policy, after which an evaluation ends.
_WORLD_FAULTS, _POLICY_FAULTS = 3, 5
#: Interval at which a waiting runner looks for an evaluation, in seconds.
_LOOK_S = 2.0
_MOST_TEXT, _MOST_METRICS, _MOST_LATENCIES = 1024, 64, 10_000


@dataclass(frozen=True)
class Moved:
    """The result of one control step."""

    #: The observation that the policy reads next, as `Limber.act` accepts it, or a function that returns it. The function is called only when the policy
    #: is, so that images of other steps are not rendered.
    seen: Any
    reward: float
    #: True if the task is solved now.
    success: bool = False
    #: Why the world ended the episode: `fell` or `max_steps`; empty if it goes on.
    ended: str = ""
    #: Benchmark metrics by name.
    metrics: dict[str, float] = field(default_factory=dict)


class World(Protocol):
    """One task of a benchmark. All its methods run in the same thread, which other worlds of the runner use too."""

    @property
    def mapping(self) -> Mapping | None:
        """The task's interface, known after the first reset; None skips the check of the policy and the bounds."""

    @property
    def max_steps(self) -> int:
        """The most steps of an episode."""

    @property
    def success_ends(self) -> bool:
        """True if an episode succeeds at the first solved step and ends there; false if it runs to the end, and its last step decides."""

    def reset(self, trial: int) -> tuple[Any, str | None]:
        """Begins an episode. Returns the first observation, settled, as in `Moved.seen`, and the instruction, if there is one."""

    def step(self, action: NDArray[np.float64]) -> Moved:
        """Executes one action."""

    def fingerprint(self) -> bytes | None:
        """Returns the bytes of the simulator's state, for the digests of an episode; None if they are unknown."""

    def close(self) -> None:
        """Releases the world."""


class Suite(Protocol):
    """A benchmark."""

    #: The catalog's scenarios that it can run; all if empty.
    scenarios: Sequence[str]

    @property
    def harness(self) -> str:
        """Name and version of the benchmark's package, such as `metaworld 3.1.1`."""

    @property
    def tasks(self) -> Sequence[str]:
        """The tasks that the episodes go through."""

    def open(self, task: str, scenario: str) -> World:
        """Opens a task."""


class WorldFault(LimberError):
    """A world raised an exception, did not return in time, or returned a value that is not finite."""


class Refusal(LimberError):
    """An evaluation cannot be run here. It ends with this code and text."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


class _Thread:
    """A thread that runs calls one after the other. After a call that did not return in time, `hangs` is true, and callers use another thread."""

    def __init__(self) -> None:
        self._calls: queue.Queue[tuple[Callable[[], Any], queue.Queue[tuple[Any, BaseException | None]]] | None] = queue.Queue()
        self.hangs = False
        # A daemon, because a call that hangs must not keep the process alive.
        threading.Thread(target=self._serve, name="limber-world", daemon=True).start()

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            work, done = call
            try:
                done.put((work(), None))
            except BaseException as error:  # noqa: BLE001 - benchmarks raise all types, even SystemExit
                done.put((None, error))

    def run(self, what: str, work: Callable[[], T], timeout_s: float) -> T:
        done: queue.Queue[tuple[Any, BaseException | None]] = queue.Queue(1)
        self._calls.put((work, done))
        try:
            result, error = done.get(timeout=timeout_s)
        except queue.Empty:
            self.hangs = True
            raise WorldFault(f"{what} did not return within {timeout_s:g} s") from None
        if error is not None:
            if isinstance(error, (BadInput, MissingPackage, Refusal)):
                raise error
            raise WorldFault(f"{what} raised {type(error).__name__}: {error}") from error
        return result  # type: ignore[no-any-return]

    def post(self, work: Callable[[], Any]) -> None:
        """Runs a call after those that were made before, without waiting for it. Its result and its exception are dropped."""
        self._calls.put((work, queue.Queue(1)))

    def end(self) -> None:
        """Ends the thread after the calls that were made before."""
        self._calls.put(None)


class _Lease:
    """Renews the lease of a claim until it is left. `stop` is set if the evaluation must stop, `lost` if another runner may hold it."""

    def __init__(self, client: Limber, claim: runner_service_pb2.EvaluationClaim) -> None:
        self._client = client
        self._claim = claim
        self._over = threading.Event()
        self.stop = threading.Event()
        self.lost = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="limber-lease", daemon=True)

    def __enter__(self) -> _Lease:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(5)

    def _renew(self) -> None:
        request = runner_service_pb2.RenewClaimRequest(job_id=self._claim.evaluation.id, epoch=self._claim.epoch)
        while not self._over.wait(self._claim.lease_s / 3):
            try:
                if self._client.call(calls.RENEW_CLAIM, request, timeout_s=self._claim.lease_s / 3).stop:
                    self.stop.set()
            except ClaimLost:
                self.lost.set()
                return
            except LimberError:
                # Unreachable, or briefly overloaded: the next attempt follows. If the lease expires meanwhile, the next call says so.
                continue


class Runner:
    """Runs the evaluations of the key's organization in one suite.

    `timeout_s` limits a step and the closing of a world, and six times as much its opening and a reset. `instruction` replaces the tasks' own.
    `assume_actions` accepts policies that declare no meaning of their actions. `leave` ends the
    runner at the next step: the claim is kept until its lease expires, then the next runner continues.
    """

    def __init__(
        self,
        client: Limber,
        suite: Suite,
        *,
        lease_s: int = 60,
        timeout_s: float = 60.0,
        instruction: str | None = None,
        assume_actions: bool = False,
        world_faults: int = _WORLD_FAULTS,
        tell: Callable[[str], None] = print,
    ) -> None:
        self._client = client
        self._suite = suite
        self._lease_s = lease_s
        self._timeout_s = timeout_s
        self._instruction = instruction
        self._assume_actions = assume_actions
        self._world_faults = world_faults
        self._tell = tell
        self.leave = threading.Event()
        self._lease: _Lease | None = None
        self._thread: _Thread | None = None

    def run(self, *, forever: bool = False) -> list[Evaluation]:
        """Runs queued evaluations and returns them as they ended. With `forever`, waits for more until `leave` is set."""
        try:
            return self._run(forever)
        finally:
            if self._thread is not None:
                self._thread.end()
                self._thread = None

    def _run(self, forever: bool) -> list[Evaluation]:
        done: list[Evaluation] = []
        request = runner_service_pb2.ClaimEvaluationRequest(harness=self._suite.harness[:256], scenarios=self._suite.scenarios, lease_s=self._lease_s)
        while not self.leave.is_set():
            try:
                answer = self._client.call(calls.CLAIM_EVALUATION, request)
                ended = self._evaluate(answer.claim) if answer.HasField("claim") else None
            except (ConnectionFailed, RateLimitError, ServerError) as error:
                if not forever:
                    raise
                # A claim that was left in the middle is claimed again once its lease has expired.
                self._tell(str(error))
                self.leave.wait(_LOOK_S)
                continue
            if answer.HasField("claim"):
                if ended is not None:
                    done.append(ended)
                    self._tell(f"{ended.id} {ended.status}: {ended.completed} of {ended.total} episodes, success {ended.success_rate}{f', {ended.error}' if ended.error else ''}")
            elif not forever:
                break
            else:
                self.leave.wait(_LOOK_S)
        return done

    def _evaluate(self, claim: runner_service_pb2.EvaluationClaim) -> Evaluation | None:
        """Runs the open episodes of a claim. Returns the ended evaluation; None if it was left to the next runner."""
        job = claim.evaluation.id
        self._tell(f"{job}: {len(claim.open_episodes)} open episodes of {claim.evaluation.policy.endpoint} in {claim.evaluation.scenario.id}")
        fault: Refusal | None = None
        with _Lease(self._client, claim) as self._lease:
            try:
                self._episodes(claim)
            except Refusal as refusal:
                fault = refusal
            except (BadInput, MissingPackage) as error:
                fault = Refusal("runner_refused", str(error))
            except ClaimLost:
                self._lease.lost.set()
            if self._lease.lost.is_set():
                self._tell(f"{job}: another runner holds it, or it has ended")
                return None
            if self.leave.is_set():
                self._tell(f"{job}: left; the next runner continues it after {claim.lease_s} s")
                return None
            finish = runner_service_pb2.FinishEvaluationRequest(job_id=job, epoch=claim.epoch)
            if fault is not None:
                finish.error.CopyFrom(evaluation_pb2.EvaluationError(code=fault.code, message=str(fault)[:_MOST_TEXT]))
            try:
                ended = answers.evaluation_of(self._client.call(calls.FINISH_EVALUATION, finish).evaluation)
            except ClaimLost:
                return None
        if isinstance(fault, Refusal) and isinstance(fault.__cause__, WorldFault) and self._world_faults == 1:
            raise fault.__cause__.__cause__ or fault.__cause__
        return ended

    def _tasks(self, claim: runner_service_pb2.EvaluationClaim) -> list[str]:
        """The tasks of an evaluation: those of its `metadata.tasks`, or all of the runner's."""
        metadata = claim.evaluation.metadata
        if "tasks" not in metadata.fields:
            return list(self._suite.tasks)
        named = [each.string_value for each in metadata.fields["tasks"].list_value.values]
        unknown = [task for task in named if task not in self._suite.tasks]
        if not named or unknown:
            raise Refusal("tasks_refused", f"this runner has the tasks {', '.join(self._suite.tasks)}; the evaluation's metadata.tasks are {', '.join(named) or 'empty'}")
        return named

    def _episodes(self, claim: runner_service_pb2.EvaluationClaim) -> None:
        """Reports the open episodes. Raises Refusal if the evaluation cannot be continued, and ClaimLost."""
        assert self._lease is not None
        tasks = self._tasks(claim)
        policy = policy_of(self._client, claim)
        broken = failed = 0
        last = ""
        with contextlib.closing(policy), _Stage(self, claim, policy, tasks) as stage:
            # Sorted by task, because opening a world can take longer than an episode.
            for index in sorted(claim.open_episodes, key=lambda each: ((claim.seed + each) % len(tasks), each)):
                if self._stopped():
                    return
                try:
                    report = stage.episode(index)
                    broken = 0
                except WorldFault as fault:
                    broken += 1
                    stage.close()
                    if broken >= self._world_faults:
                        raise Refusal("harness_failed", str(fault)) from fault
                    report = stage.report(index, "sim_unstable", error=str(fault))
                if report is None:
                    return
                same = report.termination in _POLICY_WORDS and report.termination == last
                failed = failed + 1 if same else 1
                last = report.termination
                if self._client.call(calls.REPORT_EPISODE, report).stop:
                    return
                if last in _POLICY_WORDS and failed >= _POLICY_FAULTS:
                    raise Refusal(last, f"{failed} consecutive episodes ended with {last}: {report.error}")

    def _idle_thread(self) -> _Thread:
        """Returns the thread of the worlds; another one if the last one hangs."""
        if self._thread is None or self._thread.hangs:
            self._thread = _Thread()
        return self._thread

    def _stopped(self) -> bool:
        assert self._lease is not None
        return self.leave.is_set() or self._lease.stop.is_set() or self._lease.lost.is_set()


_POLICY_WORDS = ("policy_timeout", "policy_disconnected", "policy_error", "invalid_action", "action_dim_mismatch")


class _Stage:
    """The world in which the episodes of one evaluation run. It changes with the task and after a fault."""

    def __init__(self, runner: Runner, claim: runner_service_pb2.EvaluationClaim, policy: Policy, tasks: Sequence[str]) -> None:
        self._runner = runner
        self._claim = claim
        self._policy = policy
        self._tasks = tasks
        self._declared: Any = None
        self._task = ""
        self._world: World | None = None
        self._thread: _Thread | None = None
        #: The world of the thread, even if its opening did not return in time.
        self._held: list[World] = []

    def __enter__(self) -> _Stage:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the world. One that hangs is closed in its thread, once its call has returned."""
        thread, held, self._world, self._thread, self._held = self._thread, self._held, None, None, []
        if thread is None:
            return

        def close() -> None:
            for world in held:
                world.close()

        if not thread.hangs:
            with contextlib.suppress(WorldFault, BadInput, MissingPackage, Refusal):
                thread.run("close", close, self._runner._timeout_s)
        else:
            thread.post(close)
        if thread.hangs:
            thread.end()

    def _opened(self, task: str) -> World:
        if self._world is None or task != self._task:
            self.close()
            self._thread, self._task = self._runner._idle_thread(), task
            suite, scenario, held = self._runner._suite, self._claim.evaluation.scenario.id, self._held

            def opened() -> World:
                world = suite.open(task, scenario)
                held.append(world)
                return world

            self._world = self._thread.run(f"opening {task}", opened, 6 * self._runner._timeout_s)
        return self._world

    def _check(self, world: World, instruction: str | None) -> None:
        mapping = world.mapping
        if mapping is None:
            return
        wanted = self._claim.evaluation.policy.action_space
        if wanted not in ("", mapping.action_space):
            raise Refusal("mapping_mismatch", f"the evaluation's action space is {wanted}, the task's {mapping.action_space}")
        if self._declared is None:
            self._declared = self._policy.declared()
        found = conflicts(mapping, self._declared, instruction=bool(instruction), assume=self._runner._assume_actions)
        if found:
            raise Refusal("mapping_mismatch", f"the policy does not fit the task {self._task}: {'; '.join(found)}")

    def report(self, index: int, termination: str, *, error: str = "", **fields: Any) -> runner_service_pb2.ReportEpisodeRequest:
        report = requests.make(
            runner_service_pb2.ReportEpisodeRequest, job_id=self._claim.evaluation.id, epoch=self._claim.epoch, index=index, termination=termination, **fields
        )
        if error:
            report.error = error[:_MOST_TEXT]
        return report

    def episode(self, index: int) -> runner_service_pb2.ReportEpisodeRequest | None:
        """Runs one episode. Returns None if it must stop. Raises WorldFault."""
        claim, runner = self._claim, self._runner
        seed = claim.seed + index
        number, trial = seed % len(self._tasks), seed // len(self._tasks)
        world = self._opened(self._tasks[number])
        thread = self._thread
        assert thread is not None
        (seen, words), begun = thread.run("reset", lambda: (world.reset(trial), world.fingerprint()), 6 * runner._timeout_s)
        mapping = world.mapping
        instruction = runner._instruction or words
        self._check(world, instruction)
        digest = hashlib.sha256(begun or b"")
        rows: NDArray[np.float64] = np.zeros((0, 0))
        total, steps, at, clipped, began = 0.0, 0, 0, 0, time.monotonic()
        latencies: list[float] = []
        metrics: dict[str, float] = {}
        ended, error, solved = "max_steps", "", False
        while steps < world.max_steps:
            if runner._stopped():
                return None
            if at >= min(len(rows), claim.replan_steps or len(rows)):
                if callable(seen):
                    seen = thread.run("observing", seen, runner._timeout_s)
                asked = time.monotonic()
                try:
                    rows, at = self._policy.act(_checked(seen), instruction, mapping, f"{claim.evaluation.id}-{index}"), 0
                except PolicyFault as fault:
                    ended, error = fault.termination, str(fault)
                    break
                latencies.append((time.monotonic() - asked) * 1000)
                if mapping is not None and rows.shape[1] != len(mapping.action):
                    ended = "action_dim_mismatch"
                    error = f"the task's actions have {len(mapping.action)} values ({', '.join(mapping.action)}), the policy returned {rows.shape[1]}"
                    break
            action, beyond = mapping.clipped(rows[at]) if mapping is not None else (rows[at], False)
            clipped += beyond
            digest.update(action.tobytes())
            moved = thread.run("step", lambda: world.step(action), runner._timeout_s)  # noqa: B023 - runs before the next iteration
            at += 1
            steps += 1
            seen, solved = moved.seen, moved.success
            if not math.isfinite(moved.reward):
                raise WorldFault(f"the reward of step {steps} is {moved.reward}")
            total += moved.reward
            metrics = moved.metrics
            if (moved.success and world.success_ends) or moved.ended:
                ended = moved.ended or "max_steps"
                break
        if solved and not error:
            ended = "success"
        figures = {"task": float(number), "clipped_steps": float(clipped), "wall_s": time.monotonic() - began} if mapping is not None else {}
        figures.update(_figures(metrics))
        hashes = {}
        if begun is not None:
            digest.update(thread.run("reading the state", world.fingerprint, runner._timeout_s) or b"")
            hashes = {"initial_state_sha256": hashlib.sha256(begun).hexdigest(), "trajectory_sha256": digest.hexdigest()}
        return self.report(
            index,
            ended,
            error=error,
            steps=steps,
            sim_time_s=steps * mapping.dt_s if mapping is not None else None,
            latencies_ms=latencies[:_MOST_LATENCIES],
            metrics=dict(list(figures.items())[:_MOST_METRICS]),
            **hashes,
            **{"return": total},
        )


def _checked(seen: Any) -> Observation:
    """Converts a world's observation, whose numbers must be finite. Raises WorldFault."""
    try:
        observation = as_observation(seen)
        checked(observation)
        return observation
    except BadInput as error:
        raise WorldFault(f"the world's observation is invalid: {error}") from error


def _figures(metrics: dict[str, Any]) -> dict[str, float]:
    pairs = ((str(name)[:64], value) for name, value in metrics.items() if isinstance(value, (bool, int, float, np.number, np.bool_)))
    return {name: float(value) for name, value in pairs if name and math.isfinite(float(value))}


@contextlib.contextmanager
def leaving_by_signal(runner: Runner) -> Iterator[None]:
    """Ends a runner cleanly on SIGINT and SIGTERM. A second signal ends the process."""
    import signal

    def leave(number: int, _: Any) -> None:
        runner.leave.set()
        signal.signal(number, signal.SIG_DFL)

    before = {number: signal.signal(number, leave) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
