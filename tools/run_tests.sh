#!/usr/bin/env bash
# The C++ unit tests from the wheel's own build tree, then pytest against the installed wheel. Arguments go to pytest.
set -euo pipefail
cd "$(dirname "$0")/.."
venv="${LOWTIDE_VENV:-.venv}"
tag=$("$venv/bin/python" -c 'import sys; print("cp%d%d" % sys.version_info[:2])')
build=$(ls -d build/"$tag-$tag"-* | head -n 1)
[ $# -gt 0 ] || ctest --test-dir "$build" --output-on-failure --no-tests=error
PATH="$PWD/$venv/bin:$PATH" "$venv/bin/python" -m pytest -q -rs "$@"
