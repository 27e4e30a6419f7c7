#!/usr/bin/env bash
# Builds the C++ client, replays the golden traces, and drives loops against a gateway that it starts: cut connections, stops, bad input, no
# allocation in a control step. Exits with 75 if there is no compiler or no CMake. Without gRPC, it tests only the core. LIMBER_CPP_BUILD is the
# build folder to keep. `check.sh --quick` compiles without optimization; other arguments name the tests to run.
set -euo pipefail
cd "$(dirname "$0")"
root=$(cd ../.. && pwd)
export PATH="$root/node_modules/.bin:$PATH"
if ! command -v cmake >/dev/null || ! command -v c++ >/dev/null; then
  echo "cpp: CMake or a compiler is missing"
  exit 75
fi
optimize=-O1
if [ "${1:-}" = --quick ]; then
  optimize=-O0
  shift
fi
scratch=$(mktemp -d)
build=${LIMBER_CPP_BUILD:-$scratch/build}
gateways=()
finish() {
  for each in "${gateways[@]}"; do { kill "$each" 2>/dev/null && wait "$each" 2>/dev/null; } || true; done
  rm -rf "$scratch"
}
trap finish EXIT

start() {
  PORT=0 DATA_DIR="$scratch/data-$1" node "${@:2}" >"$scratch/log-$1" 2>&1 &
  gateways+=($!)
}
# Waits for the last started gateway and exports its address and key.
ready() {
  for _ in $(seq 3000); do
    grep -q '^export LIMBER_KEY=' "$scratch/log-$1" && break
    kill -0 "${gateways[-1]}" 2>/dev/null || { cat "$scratch/log-$1"; exit 1; }
    read -rt 0.1 <> <(:) || true
  done
  LIMBER_KEY=$(sed -n 's/^export LIMBER_KEY=//p' "$scratch/log-$1")
  LIMBER_URL=$(sed -n 's/^limber ready //p' "$scratch/log-$1")
  export LIMBER_KEY LIMBER_URL
}

# The gateway starts while the compiler runs.
start today "$root/src/main.ts"
cmake -S . -B "$build" -DCMAKE_BUILD_TYPE= -DCMAKE_CXX_FLAGS=$optimize >"$scratch/built" 2>&1 &&
  cmake --build "$build" --parallel 2 >>"$scratch/built" 2>&1 || { cat "$scratch/built"; exit 1; }
"$build/replay" ../conformance/traces/*.jsonl
if [ ! -x "$build/real" ]; then
  echo "cpp: skipped the client: gRPC not found"
  exit 0
fi
"$build/fake" "$@"
ready today
"$build/real" "$@"
if [ $# -eq 0 ]; then
  "$build/base_nav" 2
  # Ctrl-C during a run: the program exits with 0 if the base was told to brake.
  "$build/base_nav" 60 >"$scratch/driven" &
  driver=$!
  until grep -q drives "$scratch/driven"; do kill -0 "$driver"; read -rt 0.05 <> <(:) || true; done
  kill -INT "$driver"
  wait "$driver"
fi
