# `make demo` and `make test` also work as the very first command: they build the environment they need.

VENV ?= .venv
WORKERS ?= 2
ARGS ?=
BIN := $(VENV)/bin

# The first of these that is Python 3.11 or newer; PYTHON=... chooses another.
PYTHONS := python3.11 python3 python3.12 python3.13 python3.14
PYTHON ?= $(firstword $(foreach p,$(PYTHONS),$(shell $(p) -c 'import sys; print("$(p)" if sys.version_info >= (3, 11) else "")' 2>/dev/null)))

INSTALL := $(BIN)/python -m pip install --constraint constraints.txt --build-constraint constraints.txt
NATIVE := CMakeLists.txt $(wildcard native/*.h native/*.cpp)
# The machine's own cmake, or else the one that `make test` installs.
CMAKE := $(if $(shell command -v cmake),,$(BIN)/)
# One thread per worker: the workers share the cores.
PYTEST := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --durations 5

.DEFAULT_GOAL := help
.PHONY: help demo test slow check lint types format bench native-test asan ubsan tsan clean distclean

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.demo  ## a worked example, two experiments and a real model's attention, in under a minute once installed
	$(BIN)/regard explain --example
	$(BIN)/regard lab rows
	$(BIN)/regard lab scaling --quick
	$(BIN)/regard see "The cat sleeps on the mat"
	@echo
	@echo "$(BIN)/regard lab all --quick runs all experiments in three minutes; the report with every picture is then regard-lab/index.html"

test: $(VENV)/.dev  ## all fast tests
	$(PYTEST) -m "not slow" $(ARGS)

slow: $(VENV)/.dev  ## the long sweeps over generated cases
	$(PYTEST) -m slow $(ARGS)

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

native-test:  ## the tests of the native core, for each instruction set of this machine
	$(call ctest,native,)

asan:  ## the same under the address sanitizer
	$(call ctest,asan,-fsanitize=address -fno-omit-frame-pointer)

ubsan:  ## the same under the undefined-behavior sanitizer
	$(call ctest,ubsan,-fsanitize=undefined -fno-sanitize-recover=all)

tsan:  ## the same under the thread sanitizer
	$(call ctest,tsan,-fsanitize=thread)

# A build of its own under build/, with the tests of native/tests.
define ctest
	$(CMAKE)cmake -S . -B build/$(1) -DREGARD_TESTS=ON -DCMAKE_CXX_FLAGS="$(if $(2),-g1 $(2))"
	$(CMAKE)cmake --build build/$(1) --parallel $(WORKERS)
	$(CMAKE)ctest --test-dir build/$(1) --output-on-failure $(ARGS)
endef

clean:  ## remove caches and build results
	rm -rf build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache .rumdl_cache
	find src tests -name __pycache__ -prune -exec rm -rf {} +

distclean: clean  ## remove the environment as well
	rm -rf $(VENV)

# Stamps: each is made only after its step has succeeded, so an interrupted install is taken up again.
$(VENV)/.made: constraints.txt
	@test -n "$(PYTHON)" || { echo "regard needs Python 3.11 or newer: install it, or name it with PYTHON=..." >&2; exit 1; }
	$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --constraint constraints.txt --upgrade pip
	touch $@

$(VENV)/.demo: pyproject.toml constraints.txt $(NATIVE) $(VENV)/.made
	$(INSTALL) --editable '.[pictures,models,map]'
	touch $@

$(VENV)/.dev: pyproject.toml constraints.txt $(NATIVE) $(VENV)/.made
	$(INSTALL) --editable . --group dev --group oracles
	touch $@
