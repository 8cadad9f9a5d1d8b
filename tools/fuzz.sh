#!/usr/bin/env bash
# libFuzzer on every door that reads a file, SECONDS_EACH seconds each (default 600), seeded with tests/corpus/<door>.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v clang++-14 >/dev/null || { echo "fuzz: needs clang: apt-get install clang-14 libclang-rt-14-dev" >&2; exit 1; }
CC=clang-14 CXX=clang++-14 cmake -S . -B build/fuzz -G Ninja -DLOWTIDE_FUZZ=ON -DLOWTIDE_PYTHON=OFF -DCMAKE_BUILD_TYPE=RelWithDebInfo >/dev/null
cmake --build build/fuzz
for program in build/fuzz/*_fuzz; do
  door=$(basename "$program" _fuzz)
  mkdir -p "build/fuzz/corpus/$door"
  seeds="tests/corpus/$door"
  "$program" -max_total_time="${SECONDS_EACH:-600}" -rss_limit_mb=4096 -timeout=20 "build/fuzz/corpus/$door" $([ -d "$seeds" ] && echo "$seeds")
done
