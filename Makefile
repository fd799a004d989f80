# `make demo` and `make test` also work as the very first command: they build the environment they need.

VENV ?= .venv
WORKERS ?= 2
ARGS ?=
VERSIONS ?= build/versions
ENVIRONMENTS ?=
MINUTES ?= 10
SEED ?=
BIN := $(VENV)/bin

# The first of these that is Python 3.11 or newer; PYTHON=... chooses another.
PYTHONS := python3.11 python3 python3.12 python3.13 python3.14
PYTHON ?= $(firstword $(foreach p,$(PYTHONS),$(shell $(p) -c 'import sys; print("$(p)" if sys.version_info >= (3, 11) else "")' 2>/dev/null)))

INSTALL := $(BIN)/python -m pip install --constraint constraints.txt --build-constraint constraints.txt
NATIVE := CMakeLists.txt $(wildcard native/*.h native/*.cpp)
# The machine's own cmake, or else the one that `make test` installs.
CMAKE := $(if $(shell command -v cmake),,$(BIN)/)
# tests/conftest.py fixes the rest of the environment; the order of sets can be fixed only from outside.
PYTEST := PYTHONHASHSEED=0 $(BIN)/python -m pytest -n $(WORKERS) --durations 5
# The core: what attention is, how it is computed, layers, and the matrix.
QUICK := tests/spec tests/nn tests/inspection/matrix tests/test_layers.py tests/test_public.py tests/test_repository.py \
	$(addprefix tests/engine/test_,$(addsuffix .py,agreement conventions empty errors fuzz laws))
FUZZ := PYTHONHASHSEED=random $(BIN)/python -m pytest -n $(WORKERS) -m "hypothesis and not slow" --hypothesis-profile fuzz

.DEFAULT_GOAL := help
.PHONY: help demo quick test test-transformers versions slow fuzz check lint types format bench cuda wheel native-test asan ubsan tsan clean distclean asan-python ubsan-python

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-17s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.demo  ## a worked example, two experiments and a real model's attention, in under a minute once installed
	$(BIN)/regard explain --example
	$(BIN)/regard lab rows
	$(BIN)/regard lab scaling --quick
	$(BIN)/regard see "The cat sleeps on the mat"
	@echo
	@echo "$(BIN)/regard lab all --quick runs all experiments in three minutes; the report with every picture is then regard-lab/index.html"
	@echo "$(BIN)/regard play opens the playground, where attention can be dragged; it runs until Ctrl-C"

quick: $(VENV)/.dev  ## some of the fast tests, in two minutes: what to run while editing
	$(PYTEST) -m "not slow" $(QUICK) $(ARGS)

test: $(VENV)/.dev  ## all fast tests, with the same cases on every run
	$(PYTEST) -m "not slow" $(ARGS)

test-transformers: $(VENV)/.dev  ## the tests that use transformers, with another version of it: VERSION=5.23.0
	@test -n "$(VERSION)" || { echo "name the version: make test-transformers VERSION=5.23.0" >&2; exit 1; }
	$(BIN)/python -m pip install --no-deps --target build/transformers-$(VERSION) --upgrade transformers==$(VERSION)
	PYTHONPATH=build/transformers-$(VERSION) $(PYTEST) -m "not slow" tests/hf tests/oracles tests/inspection/capture tests/inspection/hooks \
		tests/inspection/interventions $(ARGS)

versions:  ## the tests with the oldest, the pinned and the newest versions, each in its own environment: ENVIRONMENTS="oldest newest"
	$(PYTHON) .github/versions.py $(VERSIONS) $(if $(ENVIRONMENTS),--only $(ENVIRONMENTS)) -- -n $(WORKERS) $(ARGS)

slow: $(VENV)/.dev  ## the long sweeps over generated cases
	$(PYTEST) -m slow $(ARGS)

# Each round has its seed; a failure also prints @reproduce_failure(...), which repeats that case alone.
fuzz: $(VENV)/.dev  ## other generated cases, for MINUTES=10; SEED=... repeats a round
	@end=$$(($$(date +%s) + 60 * $(MINUTES))); \
	while seed=$(or $(SEED),$$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')); do \
	  $(FUZZ) --hypothesis-seed $$seed $(ARGS) || { echo "make fuzz SEED=$$seed$(if $(ARGS), ARGS='$(ARGS)') repeats this round" >&2; exit 1; }; \
	  [ -z "$(SEED)" ] && [ $$(date +%s) -lt $$end ] || exit 0; \
	done

check: lint types test  ## everything a change must pass: format, lint, strict types, fast tests

lint: $(VENV)/.dev  ## format and lint, changing nothing
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(VENV)/.dev  ## strict types of src and tests
	$(BIN)/mypy

format: $(VENV)/.dev  ## format, and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/.dev  ## time and memory of the engines
	$(BIN)/regard bench $(ARGS)

cuda: SHELL := bash
cuda: $(VENV)/.dev  ## on a machine with a GPU: the tests that need one and the benchmark; the report is build/cuda.txt
	@$(BIN)/python -c 'import torch; from regard.bench.device import device; device("cuda")' 2>/dev/null || \
	  { $(BIN)/regard bench tiny --device cuda; echo "make cuda: there is no GPU here, so nothing was run and no report was written" >&2; exit 1; }
	@mkdir -p build; set -o pipefail; failed=0; \
	{ echo "regard $$(git describe --always --dirty 2>/dev/null)"; $(BIN)/python -m torch.utils.collect_env; } 2>&1 | tee build/cuda.txt; \
	PYTHONHASHSEED=0 $(BIN)/python -m pytest -m cuda --durations 5 2>&1 | tee -a build/cuda.txt || failed=1; \
	$(BIN)/regard bench --device cuda $(ARGS) 2>&1 | tee -a build/cuda.txt || failed=1; \
	$(BIN)/regard bench --device cuda --dtype bfloat16 $(ARGS) 2>&1 | tee -a build/cuda.txt || failed=1; \
	if [ $$failed = 0 ]; then echo "all of it passed"; else echo "something failed"; fi | tee -a build/cuda.txt; \
	echo "the report is build/cuda.txt"; exit $$failed

# zig is a Clang that brings the symbols of older C libraries: the wheel runs on any Linux that torch runs on (glibc 2.28).
WHEEL := build/wheel
ZIG := $(CURDIR)/$(WHEEL)/tools/bin/python -m ziglang c++ -target $(shell uname -m)-linux-gnu.2.28
# As on a machine with nothing but Python: no compiler, no other packages.
ALONE = cd $(WHEEL) && env -u PYTHONPATH -u REGARD_LIBRARY -u REGARD_ISA PATH=$(CURDIR)/$(WHEEL)/env/bin
wheel: $(WHEEL)/.tools  ## a wheel for Linux and the source archive in dist/, checked, installed and tried in an empty environment
	rm -rf dist $(WHEEL)/raw $(WHEEL)/env
	CXX="$(ZIG)" PIP_CONSTRAINT=$(CURDIR)/constraints.txt $(WHEEL)/tools/bin/python -m build --outdir $(WHEEL)/raw
	PATH="$(CURDIR)/$(WHEEL)/tools/bin:$$PATH" $(WHEEL)/tools/bin/auditwheel repair --wheel-dir dist $(WHEEL)/raw/*.whl
	mv $(WHEEL)/raw/*.tar.gz dist
	$(WHEEL)/tools/bin/twine check --strict dist/*
	$(WHEEL)/tools/bin/check-wheel-contents dist/*.whl
	$(PYTHON) -m venv $(WHEEL)/env
	$(WHEEL)/env/bin/python -m pip install --constraint constraints.txt --upgrade pip
	$(WHEEL)/env/bin/python -m pip install --constraint constraints.txt dist/*.whl
	$(ALONE) env/bin/python ../../.github/installed.py
	$(WHEEL)/tools/bin/mypy --config-file= --strict --python-executable $(WHEEL)/env/bin/python .github/typed.py
	$(WHEEL)/env/bin/python -m pip install --constraint constraints.txt "$$(ls dist/*.whl)[all]"
	$(ALONE) env/bin/python ../../.github/installed.py all
	@ls -l dist

native-test:  ## the tests of the native core, for each instruction set of this machine
	$(call ctest,native,)

asan:  ## the same under the address sanitizer
	$(call ctest,asan,$(ASAN))

ubsan:  ## the same under the undefined-behavior sanitizer
	$(call ctest,ubsan,$(UBSAN))

tsan:  ## the same under the thread sanitizer
	$(call ctest,tsan,$(TSAN))

asan-python: $(VENV)/.dev  ## the Python tests of the native engine under the address sanitizer
	$(call build,asan,$(ASAN))
	$(call sanitized-pytest,asan,asan stdc++)

ubsan-python: $(VENV)/.dev  ## the same under the undefined-behavior sanitizer
	$(call build,ubsan,$(UBSAN))
	$(call sanitized-pytest,ubsan,)

# Any report ends the program with an error. -O1 compiles in two thirds of the time that -O2 takes, and is fast enough; with
# -fexpensive-optimizations GCC fuses multiply-adds as -O2 does.
SANITIZED := -O1 -fexpensive-optimizations -g1 -fno-omit-frame-pointer -D_GLIBCXX_ASSERTIONS -DREGARD_SANITIZED
# Checks by calls: with checks in line GCC takes two and a half times as long for AVX-512.
ASAN = $(SANITIZED) -fsanitize=address $(if $(findstring clang,$(shell $(CXX) --version)),,--param asan-instrumentation-with-call-threshold=0)
UBSAN := $(SANITIZED) -fsanitize=undefined,float-cast-overflow -fno-sanitize-recover=all
TSAN := $(SANITIZED) -fsanitize=thread
# Without those that measure memory and time, and the one that forks while another thread allocates: a child then waits forever
# for a lock of the address sanitizer's own allocator.
SANITIZED_TESTS := tests/engine/native $(addprefix tests/engine/test_,agreement.py dropout.py empty.py fuzz.py hidden.py statistics.py strides.py) \
  $(addprefix --deselect tests/engine/native/,test_memory.py test_threads.py::test_ctrl_c_is_answered_at_once test_threads.py::test_ten_thousand_calls_leave_memory_flat test_threads.py::test_fork_while_another_thread_computes)

# A build of its own under build/: its name and its flags.
define build
	$(CMAKE)cmake -S . -B build/$(1) -DREGARD_TESTS=ON $(if $(2),-DCMAKE_BUILD_TYPE=Sanitized -DCMAKE_CXX_FLAGS="$(2)")
	$(CMAKE)cmake --build build/$(1) --parallel $(WORKERS)
endef
define ctest
	$(call build,$(1),$(2))
	TSAN_OPTIONS=halt_on_error=1:$(TSAN_OPTIONS) $(CMAKE)ctest --test-dir build/$(1) --parallel $(WORKERS) --output-on-failure $(ARGS)
endef
# Python with a build's library; the second argument names what has to be loaded before all else. Reports go to files: pytest
# may capture the process that writes one, and nobody may look at the exit code of a process that a test starts.
define sanitized-pytest
	rm -f build/$(1)/report.*
	LD_PRELOAD="$(foreach name,$(2),$(shell $(CXX) -print-file-name=lib$(name).so))" REGARD_LIBRARY=$(CURDIR)/build/$(1)/libregard.so \
	  ASAN_OPTIONS=detect_leaks=0:log_path=$(CURDIR)/build/$(1)/report UBSAN_OPTIONS=print_stacktrace=1:log_path=$(CURDIR)/build/$(1)/report \
	  $(PYTEST) -m "not slow" $(SANITIZED_TESTS) $(ARGS); \
	failed=$$?; for report in build/$(1)/report.*; do if test -e $$report; then cat $$report; failed=1; fi; done; exit $$failed
endef

clean:  ## remove caches and build results
	rm -rf build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache .rumdl_cache
	find src tests -name __pycache__ -prune -exec rm -rf {} +

distclean: clean  ## remove the environment as well
	rm -rf $(VENV) .models

# Stamps: each is made only after its step has succeeded, so an interrupted install is taken up again.
$(VENV)/.made: constraints.txt
	@test -n "$(PYTHON)" || { echo "regard needs Python 3.11 or newer: install it, or name it with PYTHON=..." >&2; exit 1; }
	$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --constraint constraints.txt --upgrade pip
	touch $@

$(WHEEL)/.tools: pyproject.toml constraints.txt
	@test "$$(uname -s)" = Linux || { echo "make wheel is for Linux: on other systems, python -m cibuildwheel" >&2; exit 1; }
	$(PYTHON) -m venv --clear $(WHEEL)/tools
	$(WHEEL)/tools/bin/python -m pip install --constraint constraints.txt --upgrade pip
	$(WHEEL)/tools/bin/python -m pip install --constraint constraints.txt --group wheel
	touch $@

$(VENV)/.demo: pyproject.toml constraints.txt $(NATIVE) $(VENV)/.made
	$(INSTALL) --editable '.[pictures,models,map]'
	touch $@

$(VENV)/.dev: pyproject.toml constraints.txt $(NATIVE) $(VENV)/.made
	$(INSTALL) --editable . --group dev --group oracles
	touch $@
