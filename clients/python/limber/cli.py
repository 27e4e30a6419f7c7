"""The `limber` command."""

from __future__ import annotations

import argparse
import getpass
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from limber import _calls as calls
from limber._frames import Observation
from limber._gen.limber.v1 import account_service_pb2
from limber._version import VERSION
from limber.client import Limber
from limber.errors import BadInput, LimberError
from limber.loop import Bounds
from limber.sim import LIMITS, WheeledBase

_SIM_MODEL = "reference/potential-nav"


def credentials_file() -> Path:
    """Returns the file in which `limber login` stores the address and the key."""
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return Path(home) / "limber" / "credentials.json"


def _stored_login() -> dict[str, str]:
    try:
        kept = json.loads(credentials_file().read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise BadInput(f"{credentials_file()} is not readable ({error}); run limber login again") from None
    return kept if isinstance(kept, dict) else {}


def _client(options: argparse.Namespace) -> Limber:
    """Creates a client from the options, the environment, or the stored login, in this order."""
    kept = _stored_login()
    url = options.url or os.environ.get("LIMBER_URL") or kept.get("url") or "http://127.0.0.1:8080"
    key = os.environ.get("LIMBER_KEY") or kept.get("key") or ""
    if not key:
        raise BadInput("no key found: run limber login or set LIMBER_KEY")
    return Limber(url.split(","), key)


def login(options: argparse.Namespace) -> int:
    url = options.url or os.environ.get("LIMBER_URL") or "http://127.0.0.1:8080"
    # A key on the command line would end up in the shell's history.
    key = (sys.stdin.readline() if options.stdin else getpass.getpass("Key (lmb_sk_…): ")).strip()
    with Limber(url.split(","), key) as client:
        mine = client.call(calls.GET_KEY, account_service_pb2.GetKeyRequest()).key
    file = credentials_file()
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    half = file.with_suffix(".new")
    half.unlink(missing_ok=True)
    with os.fdopen(os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
        json.dump({"url": url, "key": key}, out)
    half.replace(file)
    print(f"stored {mine.name or mine.id} of {mine.org_id} in {file}")
    return 0


def _numbers(text: str) -> list[float]:
    try:
        return [float(each) for each in text.split(",")] if text else []
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of numbers such as 0,0.5,1") from None


def _image_argument(text: str) -> tuple[str, Path]:
    name, equals, path = text.rpartition("=")
    return (name if equals else "", Path(path))


def act(options: argparse.Namespace) -> int:
    seen = Observation(images=dict(options.image), state=options.state)
    with _client(options) as client:
        chunk = client.act(
            options.model,
            seen,
            instruction=options.instruction,
            action_space=options.action_space,
            horizon=options.horizon,
            robot=options.robot,
        )
    if options.json:
        print(json.dumps({"model": chunk.model, "space": chunk.space, "dt_s": chunk.dt_s, "steps": chunk.steps.tolist(), "cost_usd": chunk.cost_usd}))
        return 0
    print(f"{chunk.model} from {chunk.route.provider}: {len(chunk.steps)} steps in {chunk.space}, {chunk.dt_s * 1000:g} ms apart, ${chunk.cost_usd:.6f}")
    for row in chunk.steps:
        print("  " + "  ".join(f"{value:9.4f}" for value in row))
    return 0


def loop(options: argparse.Namespace) -> int:
    if not options.sim:
        raise BadInput("limber loop drives only a simulated robot: add --sim. To drive your own robot, use client.loop in a program")
    base = WheeledBase()
    with _client(options) as client, client.loop(
        options.model,
        action_space="base_twist_2d",
        rate_hz=options.rate,
        robot=options.robot,
        hold=base.hold,
        bounds=Bounds([-LIMITS[0], -LIMITS[1]], LIMITS),
        finish_chunks=options.finish_chunks,
    ) as running:
        over = threading.Event()

        def show() -> None:
            while not over.wait(1):
                stats = running.stats
                print(
                    f"{stats.rate_hz:.0f} Hz, age {stats.age_ms:.1f} ms, {sum(stats.holds.values())} holds, {stats.stale_actions} stale actions, "
                    f"${stats.cost_usd:.6f}, stream {stats.streams}, at {base.x:.2f} {base.y:.2f}, {base.corners} corners",
                    flush=True,
                )

        shower = threading.Thread(target=show, daemon=True)
        shower.start()
        try:
            outcome = running.run(base.observe, base.step, max_seconds=options.seconds)
        finally:
            over.set()
            shower.join(2)
    stats = outcome.stats
    if options.json:
        print(json.dumps({"seconds": outcome.seconds, "corners": base.corners, "driven_m": base.driven_m, **_plain(stats)}))
        return 0
    print(f"drove {base.driven_m:.2f} m to {base.corners} corners in {outcome.seconds:.1f} s: {stats.average_hz:.1f} Hz on average, {stats.worst_second_hz:.0f} Hz in the worst second")
    for why, count in sorted(stats.holds.items()):
        print(f"  {count} holds: {why}")
    return 0


def _plain(stats: Any) -> dict[str, Any]:
    return {name: value for name, value in vars(stats).items() if name != "route"}


def models(options: argparse.Namespace) -> int:
    with _client(options) as client:
        found = [
            model
            for model in client.models(options.query, contract=options.contract, action_space=options.action_space)
            if options.all or model.providers
        ]
    if options.json:
        print(json.dumps([vars(model) for model in found]))
        return 0
    for model in found:
        print(f"{model.id}  {','.join(model.contracts) or '-'}  {','.join(model.action_spaces) or '-'}  {','.join(model.providers) or 'not served'}")
    if not found:
        print("no model matches" if options.all else "no matching model is currently served; add --all to list models that are not served")
    return 0


def stop(options: argparse.Namespace) -> int:
    with _client(options) as client:
        if options.list:
            for each in client.stops():
                print(f"{each.id}  {each.subject}  {each.reason}")
            return 0
        if not options.robot and not options.session and not options.all:
            raise BadInput("pass a robot, --session NAME, or --all")
        names: dict[str, Any] = {"session": options.session, "everything": options.all}
        if options.release:
            done = client.release(options.robot, **names)
            print(f"released {done.subject}")
        else:
            done = client.stop(options.robot, **names, reason=options.reason)
            print(f"stopped {done.subject}: {done.id}" + ("" if done.durable else " (active, but not persisted yet)"))
    return 0


#: The action space of a probe without one.
_ACTION_SPACE = "ee_delta_6d_grip"


def probe(options: argparse.Namespace) -> int:
    from limber.probe import NativeServer, OpenpiServer, Report, Server, guess_profile
    from limber.probe import probe as run

    scheme = options.address.partition("://")[0]
    runtime = options.runtime or {"ws": "openpi-ws", "wss": "openpi-ws", "grpc": "limber-policy", "tcp": "gr00t-zmq"}.get(scheme, "")
    if options.gateway or runtime not in ("openpi-ws", "limber-policy"):
        return _gateway_probe(options, runtime)
    server: Server
    guesses = runtime == "openpi-ws" and options.profile is None
    guess = guess_profile(options.address, options.timeout_s) if guesses else None
    profile = options.profile or (guess.profile if guess else "openpi/droid")
    space = options.action_space or (guess.action_space if guess else _ACTION_SPACE)
    dim = options.action_dim or (guess.action_dim if guess and space == guess.action_space else None)
    server = OpenpiServer(options.address, profile, options.timeout_s) if runtime == "openpi-ws" else NativeServer(options.address, space, options.timeout_s)
    report: Report = run(server, options.address, runtime, action_space=space, action_dim=dim, max_horizon=options.max_horizon)
    print(report.json() if options.json else report.markdown())
    if guesses:
        why = "the server's answers fit it" if guess else "the server's answers fit no known profile; pass --profile"
        print(f"\nAssumed profile {profile} and action space {space}: {why}.", file=sys.stderr if options.json else sys.stdout)
    return 0 if report.passed else 1


def _gateway_probe(options: argparse.Namespace, runtime: str) -> int:
    """Runs the gateway's own probe for protocols that this package does not implement."""
    node = shutil.which("node")
    program = Path(options.gateway or "") / "src" / "cli.ts"
    if not options.gateway or not program.exists() or node is None:
        what = runtime or f"the protocol of {options.address}"
        raise BadInput(
            f"{what} needs the gateway's own probe, which runs on Node.js: npx limber probe {options.address}"
            f"{f' --runtime {runtime}' if runtime else ' --runtime NAME'}, or pass the gateway's folder as --gateway"
        )
    args = [node, str(program), "probe", options.address, "--max-horizon", str(options.max_horizon)]
    args += ["--timeout-s", str(max(1, round(options.timeout_s)))]
    for name in ("runtime", "profile", "action_space", "action_dim"):
        value = getattr(options, name)
        if value is not None:
            args += [f"--{name.replace('_', '-')}", str(value)]
    if options.json:
        args.append("--json")
    return subprocess.run(args, check=False).returncode


def lerobot_carrier(options: argparse.Namespace) -> int:
    from limber.lerobot import Carrier, open_transport

    host, colon, port = options.listen.rpartition(":")
    if not colon or not port.isdigit():
        raise BadInput(f"--listen must be HOST:PORT, got {options.listen}")
    token = os.environ.get("LIMBER_CARRIER_TOKEN", "")
    transport = open_transport(options.connect, mode=options.mode, config_file=options.zenoh_config)
    try:
        with Carrier(transport, options.deployment, host=host.strip("[]"), port=int(port), token=token, action_s=options.timeout_s) as carrier:
            print(f"limber lerobot-carrier ready ws://{host}:{carrier.port} for {options.deployment}", flush=True)
            carrier.wait()
    finally:
        transport.close()
    return 0


def lerobot_server(options: argparse.Namespace) -> int:
    from limber.lerobot import open_transport
    from limber.lerobot_server import Contract, ModelServer, Worker

    contract = Contract.read(options.contract)
    with _client(options) as client:
        worker = Worker(client, contract, options.deployment, timeout_s=options.timeout_s)
        transport = open_transport(listen=options.listen, config_file=options.zenoh_config)
        try:
            with ModelServer(transport, worker) as server:
                print(f"limber lerobot-server ready {options.listen}: {contract.model} as {options.deployment}", flush=True)
                server.wait()
        finally:
            transport.close()
    return 0


def runner(options: argparse.Namespace) -> int:
    from limber.runners.base import Runner, leaving_by_signal
    from limber.runners.suites import suite_of

    chosen: dict[str, Any] = {} if options.images is None else {"images": options.images}
    if options.suite == "lerobot-env":
        chosen.update(connect=options.connect, deployment=options.deployment)
    suite = suite_of(options.suite, [task for task in options.tasks.split(",") if task], **chosen)
    if options.scenario:
        suite.scenarios = options.scenario
    with _client(options) as client:
        running = Runner(client, suite, lease_s=options.lease_s, timeout_s=options.timeout_s, instruction=options.instruction, assume_actions=options.assume_actions)
        with leaving_by_signal(running):
            print(f"limber runner ready {suite.harness}: {', '.join(suite.tasks)} for {', '.join(suite.scenarios) or 'every scenario'}", flush=True)
            ended = running.run(forever=not options.once)
    return 0 if all(each.status in ("completed", "cancelled") for each in ended) else 1


def parser() -> argparse.ArgumentParser:
    """Builds the argument parser."""
    top = argparse.ArgumentParser(prog="limber", description="Client for a Limber gateway. LIMBER_URL and LIMBER_KEY take precedence over limber login.")
    top.add_argument("--version", action="version", version=f"limber {VERSION}")
    parts = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, run: Any, about: str, gateway: bool = True) -> argparse.ArgumentParser:
        part = parts.add_parser(name, help=about, description=about)
        part.set_defaults(run=run)
        if gateway:
            part.add_argument("--url", help="the gateway's address; separate several replicas by commas")
        return part

    part = command("login", login, "Stores the address and the key of a gateway for this user.")
    part.add_argument("--stdin", action="store_true", help="read the key from standard input")

    part = command("act", act, "Requests one action chunk.")
    part.add_argument("model")
    part.add_argument("--state", type=_numbers, metavar="N,N,…", help="proprioception: the robot's state")
    part.add_argument("--image", type=_image_argument, action="append", default=[], metavar="CAMERA=FILE", help="an image; can be repeated")
    part.add_argument("--instruction")
    part.add_argument("--action-space")
    part.add_argument("--horizon", type=int)
    part.add_argument("--robot", help="the robot's name, which emergency stops refer to")
    part.add_argument("--json", action="store_true")

    part = command("loop", loop, "Runs a control loop that drives a simulated wheeled base from corner to corner.")
    part.add_argument("model", nargs="?", default=_SIM_MODEL)
    part.add_argument("--sim", action="store_true", help="simulate the robot in this process; required")
    part.add_argument("--seconds", type=float, default=10)
    part.add_argument("--rate", type=float, default=50, metavar="HZ")
    part.add_argument("--robot", default="sim-base")
    part.add_argument("--finish-chunks", action="store_true", help="execute the remaining valid actions of a chunk while the next one is missing")
    part.add_argument("--json", action="store_true")

    part = command("models", models, "Lists the models that are currently served.")
    part.add_argument("query", nargs="?")
    part.add_argument("--contract", choices=["act", "predict", "ground", "evaluate"])
    part.add_argument("--action-space")
    part.add_argument("--all", action="store_true", help="also list models that are not served")
    part.add_argument("--json", action="store_true")

    part = command("stop", stop, "Orders an emergency stop: the named robots receive no actions until it is released.")
    part.add_argument("robot", nargs="?")
    part.add_argument("--session")
    part.add_argument("--all", action="store_true", help="everything that the key can access")
    part.add_argument("--reason", default="")
    part.add_argument("--release", action="store_true", help="release the stop instead")
    part.add_argument("--list", action="store_true", help="list the active stops")

    part = command("lerobot-carrier", lerobot_carrier, "Forwards a gateway's calls to a LeRobot remote-inference server.", gateway=False)
    part.add_argument("--deployment", required=True, help="the deployment name that the server was started with")
    part.add_argument("--connect", required=True, metavar="ENDPOINT", help="the server's Zenoh endpoint, such as tcp/127.0.0.1:7447")
    part.add_argument("--mode", choices=["peer", "client"], default="peer", help="client if a router is in between")
    part.add_argument("--zenoh-config", metavar="FILE", help="Zenoh configuration with TLS and access rules")
    part.add_argument("--listen", default="127.0.0.1:8095", metavar="HOST:PORT", help="addresses other than the loopback require LIMBER_CARRIER_TOKEN")
    part.add_argument("--timeout-s", type=float, default=30, help="time limit for an action, in seconds")

    part = command("lerobot-server", lerobot_server, "Serves a model of the gateway to a robot that uses LeRobot's remote inference.")
    part.add_argument("--deployment", required=True, help="the deployment name that LeRobot's client requests")
    part.add_argument("--contract", required=True, metavar="FILE", help="JSON file with the robot's features, its action and the model")
    part.add_argument("--listen", default="tcp/127.0.0.1:7447", metavar="ENDPOINT", help="the Zenoh endpoint to listen on; every client that reaches it uses this key")
    part.add_argument("--zenoh-config", metavar="FILE", help="Zenoh configuration with TLS and access rules")
    part.add_argument("--timeout-s", type=float, default=4.5, help="time limit for an action, in seconds; LeRobot's client waits 5 s")

    part = command("runner", runner, "Runs external evaluations in a published benchmark, until it is stopped.")
    part.add_argument("suite", help="metaworld, gymnasium-robotics, libero, simpler-env, maniskill, vla-eval or lerobot-env")
    part.add_argument("--tasks", default="", metavar="TASK,TASK,…", help="episodes go through them in turn, by their seeds (default: the suite's first)")
    part.add_argument("--scenario", action="append", default=[], metavar="SLUG", help="claim only evaluations of this scenario (default: the suite's); can be repeated")
    part.add_argument("--images", action=argparse.BooleanOptionalAction, help="send camera images, where the suite can do both")
    part.add_argument("--instruction", help="replaces the tasks' own instructions")
    part.add_argument("--assume-actions", action="store_true", help="accept policies that do not declare what their actions mean")
    part.add_argument("--once", action="store_true", help="exit when no evaluation is queued")
    part.add_argument("--lease-s", type=int, default=60, help="seconds after which another runner continues if this one has died")
    part.add_argument("--timeout-s", type=float, default=60, help="time limit of a step, in seconds; six times as much for a reset")
    part.add_argument("--connect", default="tcp/127.0.0.1:7448", metavar="ENDPOINT", help="the Zenoh endpoint of a lerobot-env server")
    part.add_argument("--deployment", default="default", help="the deployment name of a lerobot-env server")

    part = command("probe", probe, "Checks whether a policy server meets a gateway's requirements.", gateway=False)
    part.add_argument("address", help="ws://host:port, grpc://host:port, …")
    part.add_argument("--runtime", help="the protocol, if the address does not imply it")
    part.add_argument("--profile", help="input profile for openpi servers (default: guessed from the server's answers)")
    part.add_argument("--action-space", help="guessed for openpi servers, otherwise ee_delta_6d_grip when absent")
    part.add_argument("--action-dim", type=int, help="action dimension, for spaces that do not fix it")
    part.add_argument("--max-horizon", type=int, default=16)
    part.add_argument("--timeout-s", type=float, default=30)
    part.add_argument("--gateway", metavar="FOLDER", help="the gateway's folder, to probe all its protocols")
    part.add_argument("--json", action="store_true")
    return top


def main(arguments: list[str] | None = None) -> int:
    """Runs the command and returns its exit code: 0 success, 1 failed check, 2 usage error, 3 refusal or network error."""
    options = parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except BadInput as error:
        print(f"limber: {error}", file=sys.stderr)
        return 2
    except LimberError as error:
        print(f"limber: {error}", file=sys.stderr)
        return 3
    except KeyboardInterrupt:
        print("limber: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
