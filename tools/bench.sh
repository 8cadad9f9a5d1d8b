#!/usr/bin/env bash
# Every benchmark, each as ratios measured in one run. Peers are installed into a virtual environment of their own.
set -euo pipefail
cd "$(dirname "$0")/.."
tools/setup.sh test
venv="${LOWTIDE_VENV:-.venv}"
export PATH="$PWD/$venv/bin:$PATH"
pip install -q memray || echo "bench: memray could not be installed; its column is missing" >&2
for program in bench/*.py; do
  echo "== $program"
  python "$program" || echo "bench: $program failed" >&2
done
if cmake -S . -B build/bench -G Ninja -DLOWTIDE_BENCH=ON -DLOWTIDE_PYTHON=OFF >/dev/null; then
  cmake --build build/bench
  for program in build/bench/bench_*; do
    [ -x "$program" ] && "$program"
  done
fi
