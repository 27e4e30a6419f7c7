#!/usr/bin/env bash
# Builds the C++ client, replays the golden traces, and drives loops against a gateway that the project's own command starts: connections that are
# cut, stops, bad input, no allocation in a control step. Ends with 75 where there is no compiler or no CMake; where there is no gRPC, the core alone is
# tried. LIMBER_CPP_BUILD keeps what was built.
set -euo pipefail
cd "$(dirname "$0")"
root=$(cd ../.. && pwd)
export PATH="$root/node_modules/.bin:$PATH"
if ! command -v cmake >/dev/null || ! command -v c++ >/dev/null; then
  echo "cpp: CMake or a compiler is not there"
  exit 75
fi
scratch=$(mktemp -d)
build=${LIMBER_CPP_BUILD:-$scratch/build}
gateway=
finish() {
  [ -z "$gateway" ] || { kill "$gateway" 2>/dev/null && wait "$gateway" 2>/dev/null; } || true
  rm -rf "$scratch"
}
trap finish EXIT

# The gateway starts while the compiler runs.
PORT=0 DATA_DIR="$scratch/data" node "$root/src/main.ts" >"$scratch/log" 2>&1 &
gateway=$!
cmake -S . -B "$build" -DCMAKE_BUILD_TYPE= -DCMAKE_CXX_FLAGS=-O1 >"$scratch/built" 2>&1 &&
  cmake --build "$build" --parallel 2 >>"$scratch/built" 2>&1 || { cat "$scratch/built"; exit 1; }
"$build/replay" ../conformance/traces/*.jsonl
if [ ! -x "$build/real" ]; then
  echo "cpp: left out: the client, for want of gRPC"
  exit 0
fi
"$build/fake" "$@"
for _ in $(seq 600); do
  grep -q '^LIMBER_KEY=' "$scratch/log" && break
  kill -0 "$gateway" 2>/dev/null || { cat "$scratch/log"; exit 1; }
  read -rt 0.1 <> <(:) || true
done
LIMBER_KEY=$(sed -n 's/^LIMBER_KEY=//p' "$scratch/log")
LIMBER_URL=$(sed -n 's/^limber ready //p' "$scratch/log")
export LIMBER_KEY LIMBER_URL
"$build/real" "$@"
[ $# -gt 0 ] || "$build/base_nav" 2
