#!/usr/bin/env bash
# The long tests: kills at random times, thousands of censuses. Each prints what it did.
set -euo pipefail
cd "$(dirname "$0")/.."
tools/setup.sh test
export PATH="$PWD/${LOWTIDE_VENV:-.venv}/bin:$PATH"
for program in tests/soak/*.py; do
  echo "== $program"
  python "$program"
done
