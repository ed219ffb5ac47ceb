# One door: `make` alone lists the recipes. Each one makes its own environment first.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
READY := $(VENV)/.ready
PREPARED := $(VENV)/.spark-prepared
BROWSER := $(VENV)/.browser
RESULTS := build/features.json

# The tests start Python hundreds of times: what it compiled is kept, even where the surroundings forbid that.
export PYTHONDONTWRITEBYTECODE :=

# Two workers: the tests are to fit a machine of two cores.
WORKERS ?= 2
# One more for the quick tests: some of them wait, for a deadline or a process.
QUICK_WORKERS ?= 3
PYTEST := $(BIN)/pytest --feature-results=$(RESULTS) --durations=12 --durations-min=20

.PHONY: help install check format test test-spark test-crash test-lake-readers mutants features features-update demo bench clean

help: ## this menu
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 25

install: $(READY) ## make .venv with the command orbitmq in it (done by the other recipes as needed)

# uv takes a quarter of pip's time; where it cannot be had or fails, pip does it.
UV := uv==0.13.8
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
PACKAGES := -c constraints.txt -e '.[dev]'
$(INSTALLED): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) not found: install Python 3.11 or newer, or say make PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "OrbitMQ needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) -V 2>&1 | cut -d' ' -f2). Say: make PYTHON=python3.12" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { \
	    rm -rf $(VENV); echo "$(PYTHON) cannot make virtual environments: install its venv package (python3-venv)" >&2; exit 1; }
	@echo "installing the packages of constraints.txt"
	@$(PIP) $(UV) && $(BIN)/uv pip install --quiet --native-tls --python $(BIN)/python $(PACKAGES) || $(PIP) $(PACKAGES)
	@touch $(INSTALLED)

# Those of `format` first, for the others call them; then both others side by side.
$(READY): $(INSTALLED)
	@echo "compiling the kernels, once"
	@$(BIN)/python -c 'from orbitmq.format.kernels import compiled; compiled()'
	@$(BIN)/python -c 'from orbitmq.sql92.fast.kernels import compiled; compiled()' & filters=$$!; \
	$(BIN)/python -c 'from orbitmq.wire.fast.kernels import compiled; compiled()'; wait $$filters
	@touch $(READY)

# The tests start Spark a hundred times; where Java cannot keep its classes, they take longer.
$(PREPARED): $(READY)
	@-$(BIN)/orbitmq spark prepare
	@touch $(PREPARED)

# One test shows the page of an audit to a browser: Debian's is installed where that can be done, else it is skipped.
BROWSERS := chromium-headless-shell chromium chromium-browser google-chrome
APT := DEBIAN_FRONTEND=noninteractive apt-get -qq
INSTALL_BROWSER := $(APT) install --yes --no-install-recommends $(firstword $(BROWSERS))
$(BROWSER): | $(INSTALLED)
	@for browser in $(BROWSERS); do ! command -v $$browser >/dev/null || exit 0; done; \
	[ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null || exit 0; \
	echo "installing Debian's $(firstword $(BROWSERS)), once"; \
	{ $(INSTALL_BROWSER) || { $(APT) update && $(INSTALL_BROWSER); }; } >/dev/null 2>&1 || true
	@touch $(BROWSER)

# Each check is a recipe of its own, so that they run side by side; what takes longest begins first. None of
# them needs kernels, so a new environment gets these meanwhile, and `make check test` what the tests of Spark need.
CHECKS := check-types check-imports check-unreached check-tests check-mutants check-format check-lint
check: $(INSTALLED) ## format, lint, types, import contracts; tests that cannot fail, code that only tests call
	@$(MAKE) --no-print-directory --keep-going --jobs $(WORKERS) --output-sync=target $(READY) $(CHECKS) \
	    $(if $(filter test,$(MAKECMDGOALS)),$(PREPARED) $(BROWSER))

.PHONY: $(CHECKS)
check-types:
	$(BIN)/mypy
check-imports:
	$(BIN)/lint-imports
check-unreached:
	$(BIN)/python tools/unreached.py
check-tests:
	$(BIN)/python tools/lint_tests.py
check-mutants:
	$(BIN)/python tools/mutants.py --check
check-format:
	$(BIN)/ruff format --check .
check-lint:
	$(BIN)/ruff check .

format: $(INSTALLED) ## let ruff format and fix what it can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Those that wait for Java's brokers and clients run beside those of Spark, in two lanes (tests/lanes.py). Both parts
# always run, so that the summary is whole; the last failure decides the exit code.
# Tests of Spark and Java are in these folders: to collect all the others once more takes its time.
HEAVY := tests/bench tests/cli tests/compat tests/spark
QUICK := not compat and not spark
SPARK := spark and not compat
IN_LANES := -n $(WORKERS) --dist loadscope --no-loadscope-reorder
test: $(READY) $(PREPARED) $(BROWSER) ## all tests; then what was skipped and why, and docs/FEATURES.md against the results
	@rm -f $(RESULTS); mkdir -p build
	@status=0; \
	$(PYTEST) -q -n $(QUICK_WORKERS) --dist worksteal -m '$(QUICK)' || status=$$?; \
	$(PYTEST) -q $(IN_LANES) -m 'compat or spark' $(HEAVY) || { part=$$?; [ $$part = 5 ] || status=$$part; }; \
	$(BIN)/python tools/features.py --results $(RESULTS) --summary --check || status=$$?; \
	exit $$status

test-spark: $(READY) ## the Spark tests alone, without those that kill or need Java clients
	$(BIN)/pytest -q -m '$(SPARK) and not crash' tests/spark

# Files whose inputs are drawn; `make test` draws fewer.
DRAWN = $(shell grep -rlE "(hypothesis|rounds) import" tests --include='test_*.py')
KILLED_JOBS = JOB EXPORT SINK REPLAY LOAD STREAM
test-crash: $(READY) ## 1 000 kills and 200 power cuts, 200 kills amid transactions, timers and pops each, 20 of each job of Spark (long)
	ORBITMQ_TIMER_KILLS=200 ORBITMQ_POP_KILLS=200 ORBITMQ_FAILOVER_KILLS=200 ORBITMQ_CRASH_ROUNDS=1000 ORBITMQ_POWER_CUT_ROUNDS=200 $(BIN)/pytest -q -m crash --timeout 0 tests/crash
	$(foreach job,$(KILLED_JOBS),ORBITMQ_$(job)_KILLS=20) $(BIN)/pytest -q -s -m 'crash and spark' --timeout 0 tests/spark/test_*_kills.py
	ORBITMQ_FUZZ=whole ORBITMQ_HOSTILE_FRAMES=100000 $(BIN)/pytest -q -n $(WORKERS) --dist worksteal --timeout 0 -m '$(QUICK)' tests/broker/test_hostile.py $(DRAWN)

test-lake-readers: $(READY) ## lakes as Spark 4.2 with Delta and Spark 4.1 with Iceberg read them (fetches a gigabyte)
	ORBITMQ_FOREIGN_SPARK=1 $(BIN)/pytest -q tests/spark/test_lake_readers.py

mutants: $(READY) ## plant faults in copies of the tree: does a test notice each? (long)
	ORBITMQ_COMPAT_BUILD=$(CURDIR)/build/compat $(BIN)/python tools/mutants.py

$(RESULTS): $(READY)
	-$(PYTEST) -q -n $(QUICK_WORKERS) --dist worksteal -m 'feature and $(QUICK)'
	-$(PYTEST) -q $(IN_LANES) -m 'feature and (compat or spark)' $(HEAVY)

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
