# The two commands of the README are `make demo` and `make test`; the rest is for developers (CONTRIBUTING.md).
VENV ?= .venv
export LOWTIDE_VENV := $(VENV)
PYTHON := $(VENV)/bin/python
TESTS ?=

.PHONY: demo test build asan tsan fuzz bench soak format tidy clean

demo:            ## lowtide run on a training script that leaks
	tools/setup.sh
	$(VENV)/bin/lowtide run examples/leaky_train.py 400

test:            ## every test; installs what it needs
	tools/setup.sh test
	tools/run_tests.sh $(TESTS)

build:           ## a developer's build of the tree in build/dev, run with PYTHONPATH=python
	cmake -S . -B build/dev -G Ninja -DLOWTIDE_TESTS=ON -DPython_EXECUTABLE=$(abspath $(PYTHON))
	cmake --build build/dev

asan:            ## unit tests under AddressSanitizer and UBSan
	cmake --preset asan && cmake --build --preset asan && ctest --preset asan

tsan:            ## unit tests under ThreadSanitizer
	cmake --preset tsan && cmake --build --preset tsan && ctest --preset tsan

fuzz:            ## libFuzzer on each door, SECONDS_EACH seconds (default 600)
	tools/fuzz.sh

bench:           ## ratios against named peers, each in one run
	tools/bench.sh

soak:            ## long tests: kills, censuses
	tools/soak.sh

format:
	git ls-files '*.cc' '*.h' '*.c' | xargs clang-format-14 -i

tidy:
	cmake -S . -B build/tidy -G Ninja -DLOWTIDE_PYTHON=OFF && run-clang-tidy-14 -quiet -p build/tidy 'src/(base|finding|record|series|verdict|snapshot|heap|lint|report|cli)/'

clean:
	rm -rf build dist .venv
