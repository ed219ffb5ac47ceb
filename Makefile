# One door: `make` alone lists the recipes. Each one makes its own environment first.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PREPARED := $(VENV)/.spark-prepared
RESULTS := build/features.json

# Two workers: the tests are to fit a machine of two cores.
WORKERS ?= 2
PYTEST := $(BIN)/pytest --feature-results=$(RESULTS) --durations=12 --durations-min=20

.PHONY: help install check format test test-spark test-crash mutants features features-update demo bench clean

help: ## this menu
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 25

install: $(READY) ## make .venv with the command orbitmq in it (done by the other recipes as needed)

$(READY): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) not found: install Python 3.11 or newer, or say make PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "OrbitMQ needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) -V 2>&1 | cut -d' ' -f2). Say: make PYTHON=python3.12" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { \
	    rm -rf $(VENV); echo "$(PYTHON) cannot make virtual environments: install its venv package (python3-venv)" >&2; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@echo "compiling the kernels, once"
	@$(BIN)/python -c 'from orbitmq.wire.fast.kernels import compiled; compiled()'
	@touch $(READY)

# The tests start Spark a hundred times; where Java cannot keep its classes, they take longer.
$(PREPARED): $(READY)
	@-$(BIN)/orbitmq spark prepare
	@touch $(PREPARED)

check: $(READY) ## format, lint, types, import contracts; tests that cannot fail, code that only tests call
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/unreached.py
	$(BIN)/python tools/lint_tests.py
	$(BIN)/python tools/mutants.py --check

format: $(READY) ## let ruff format and fix what it can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Spark, killing and Java tests use both cores themselves: they run alone, after the rest, and those of
# Spark in one process, for they share a JVM. (Side by side they save a minute in fifteen, and real clients miss their deadlines.)
# All parts always run, so that the summary is whole; the last failure decides the exit code.
QUICK := not crash and not compat and not spark
SPARK := spark and not crash and not compat
ALONE := crash or compat
test: $(READY) $(PREPARED) ## all tests; then what was skipped and why, and docs/FEATURES.md against the results
	@rm -f $(RESULTS)
	@status=0; \
	$(PYTEST) -q -n $(WORKERS) --dist worksteal -m '$(QUICK)' || status=$$?; \
	$(PYTEST) -q -m '$(SPARK)' || { part=$$?; [ $$part = 5 ] || status=$$part; }; \
	$(PYTEST) -q -m '$(ALONE)' || { part=$$?; [ $$part = 5 ] || status=$$part; }; \
	$(BIN)/python tools/features.py --results $(RESULTS) --summary --check || status=$$?; \
	exit $$status

test-spark: $(READY) ## the Spark tests alone, without those that kill or need Java clients
	$(BIN)/pytest -q -m '$(SPARK)' tests/spark

test-crash: $(READY) ## 1 000 kills and 200 power cuts (long)
	ORBITMQ_CRASH_ROUNDS=1000 ORBITMQ_POWER_CUT_ROUNDS=200 $(BIN)/pytest -q -m crash --timeout 0 tests/crash

mutants: $(READY) ## plant faults in copies of the tree: does a test notice each? (an hour)
	ORBITMQ_COMPAT_BUILD=$(CURDIR)/build/compat $(BIN)/python tools/mutants.py

$(RESULTS): $(READY)
	-$(PYTEST) -q -n $(WORKERS) --dist worksteal -m 'feature and $(QUICK)'
	-$(PYTEST) -q -m 'feature and $(SPARK)'
	-$(PYTEST) -q -m 'feature and ($(ALONE))'

features: $(RESULTS) ## the inventory: what the last `make test` proved, what fails, what is missing
	@$(BIN)/python tools/features.py --results $(RESULTS)

features-update: $(RESULTS) ## write the states of the last `make test` into docs/FEATURES.md
	@$(BIN)/python tools/features.py --results $(RESULTS) --write

demo: $(READY) ## a store and a broker killed and recovered, then the pipeline on Spark; every figure checked
	@$(BIN)/orbitmq demo

bench: $(READY) ## the store's figures, beside the Java store's where Java is there
	$(BIN)/python bench/bench_store.py

clean: ## remove what the recipes made
	rm -rf build $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache src/*.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
