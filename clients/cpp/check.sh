#!/usr/bin/env bash
# Builds the C++ core and replays the golden traces. Ends with 75 where there is no compiler or no CMake.
set -euo pipefail
cd "$(dirname "$0")"
if ! command -v cmake >/dev/null || ! command -v c++ >/dev/null; then
  echo "cpp: CMake or a compiler is not there"
  exit 75
fi
build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT
cmake -S . -B "$build" -DCMAKE_BUILD_TYPE=RelWithDebInfo >/dev/null
cmake --build "$build" >/dev/null
"$build/replay" ../conformance/traces/*.jsonl
