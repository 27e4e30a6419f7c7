#!/usr/bin/env bash
# Checks the Python clients and the ROS 2 package: generated stubs, types, wheels that build without a network, and the tests, against a gateway that
# it starts. `check.sh --quick` skips the wheels. Exits with 75 if Python or its packages are not available.
set -euo pipefail
cd "$(dirname "$0")"
root=$(cd ../.. && pwd)
quick=${1:-}
venv=${LIMBER_PYTHON_VENV:-$root/node_modules/.cache/python}

python=
for each in python3 python3.13 python3.12 python3.11; do
  "$each" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && python=$each && break
done
if [ -z "$python" ]; then
  echo "python: Python 3.11 or later is not there"
  exit 75
fi
packages=(grpcio==1.84.0 grpcio-tools==1.84.0 protobuf==7.36.2 numpy==2.4.6 pillow==12.3.0 pytest==9.1.1 mypy==2.4.0 hatchling==1.32.4
  build==1.6.1 gymnasium==1.3.0 websockets==17.1 msgpack==1.2.3 mcp==2.3.0 pyyaml==6.0.3)
if [ "$(cat "$venv/packages" 2>/dev/null)" != "${packages[*]}" ]; then
  rm -rf "$venv"
  # pip's own retries would take minutes if no registry is reachable. Modules are compiled when they are first imported.
  if ! "$python" -m venv "$venv" >/dev/null 2>&1 ||
    ! timeout 300 "$venv/bin/pip" install --quiet --no-compile --retries 1 --timeout 15 "${packages[@]}" >"$venv/log" 2>&1; then
    echo "python: its packages cannot be installed"
    exit 75
  fi
  echo "${packages[*]}" >"$venv/packages"
fi
export PATH="$venv/bin:$root/node_modules/.bin:$PATH"
scratch=$(mktemp -d)
gateways=()
finish() {
  for each in "${gateways[@]}"; do { kill "$each" 2>/dev/null && wait "$each" 2>/dev/null; } || true; done
  rm -rf "$scratch"
}
trap finish EXIT

python generate.py --check
MYPYPATH=../ros2/limber_ros2 mypy --cache-dir "$scratch/mypy" limber ../ros2/limber_ros2/limber_ros2/{mapping,runner}.py

tested=.
if [ "$quick" != --quick ]; then
  # Without isolation nothing is downloaded, because hatchling is installed. The tests run on the built wheels.
  python -m build --no-isolation --outdir "$scratch/dist" . >/dev/null
  python -m build --no-isolation --outdir "$scratch/dist" ../lerobot_policy_limber >/dev/null
  python -m venv --system-site-packages "$scratch/fresh"
  # Makes the packages of the environment above visible next to the wheels.
  echo "$venv/lib/$(basename "$(echo "$venv"/lib/python3*)")/site-packages" >"$(echo "$scratch"/fresh/lib/python3*/site-packages)/above.pth"
  "$scratch/fresh/bin/pip" install --quiet --no-index --no-deps "$scratch"/dist/*.whl
  export PATH="$scratch/fresh/bin:$PATH"
  tested=
fi

start() {
  PORT=0 DATA_DIR="$scratch/data-$1" node "${@:2}" >"$scratch/log-$1" 2>&1 &
  gateways+=($!)
  for _ in $(seq 3000); do
    grep -q '^export LIMBER_KEY=' "$scratch/log-$1" && return
    kill -0 "${gateways[-1]}" 2>/dev/null || { cat "$scratch/log-$1"; exit 1; }
    read -rt 0.1 <> <(:) || true
  done
}
said() { sed -n "s/^$2//p" "$scratch/log-$1"; }
start today "$root/src/main.ts"
LIMBER_KEY=$(said today 'export LIMBER_KEY=')
LIMBER_URL=$(said today 'limber ready ')
export LIMBER_KEY LIMBER_URL LIMBER_GATEWAY="$root"

if [ "$quick" != --quick ]; then
  # A robot at 100 Hz over two gateways that are killed in turn; `npm run chaos python` runs it for an hour.
  LIMBER_PYTHON="$venv/bin/python" node "$root/test/slow/chaos/python.ts" 15 5
fi
# No folder of sources gets compiled files.
export PYTHONPATH=$tested PYTHONPYCACHEPREFIX=$scratch/compiled
# Test the installed packages, not the sources in this folder.
[ -n "$tested" ] || export PYTHONSAFEPATH=1
python -m pytest -q -p no:cacheprovider tests
