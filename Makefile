# Kafkaesque: `make help` lists the targets.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.setup-done
# Tests in parallel on the cores there are; each chooses its own ports and directories. Those with
# processes of their own wait more than they compute: two a core.
WORKERS ?= auto
WAITING_WORKERS ?= $(if $(filter auto,$(WORKERS)),$(shell echo $$((2 * $$(nproc)))),$(WORKERS))

# Where this is set, each of the hundreds of processes that tests start compiles all modules anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup clients up check format format-check lint types imports collect unit unit-pure test \
        compile native-check trace \
        conformance conformance-cluster conformance-services pipeline-slow kazoo-suite apache-kafka \
        zookeeper fuzz sim bench faults site lock clean

help: ## List the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

setup: $(STAMP) ## Make .venv with everything that `up` and `test` need (quick when done)

$(STAMP): pyproject.toml requirements/dev.lock hatch_build.py $(wildcard src/kafkaesque/*/*.c src/kafkaesque/*/*.h)
	@command -v $(PYTHON) >/dev/null || { echo "Python 3.11 or newer is needed: set PYTHON=..."; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Python 3.11 or newer is needed, $(PYTHON) is $$($(PYTHON) --version): set PYTHON=..."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --editable .
	@touch $@

# The modules on a record's way run compiled; from their sources if one was changed since.
compile: setup ## Compile what was changed of the modules that run compiled
	@$(BIN)/python hatch_build.py

clients: setup ## Fetch what tests use beside Python (kcat, Java, Go, Node, a browser, balancers)
	tools/setup-clients

up: setup ## Run the whole platform on this machine; Ctrl-C stops it (UP="--port 19092" for options)
	@$(BIN)/kafkaesque up $(UP)

check: format-check lint types imports unit ## Format, lint, types, imports, unit and script tests

format: setup ## Format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix --quiet .

format-check: setup
	$(BIN)/ruff format --check --quiet .

lint: setup
	$(BIN)/ruff check --quiet .

types: setup
	$(BIN)/mypy

imports: setup
	@$(BIN)/lint-imports --no-cache --config .importlinter >$(VENV)/imports.log || { cat $(VENV)/imports.log; exit 1; }

# Tests with brokers, clients, browsers, processes or many seeds of their own: `make test` runs them after
# the quick ones, so that `make check` takes about a minute.
REAL := $(addprefix tests/,stories cli conformance conformance_zookeeper pipeline sources client gateway \
          chat tasks console testing lab/sim lab/faults)
UNIT := tests $(REAL:%=--ignore=%)
# A test module that no longer imports is told here, in seconds, not in the midst of the others.
collect: setup
	@$(BIN)/python -m pytest $(REAL) --collect-only -qq >$(VENV)/collect.log 2>&1 || { cat $(VENV)/collect.log; exit 1; }

unit: setup
	$(BIN)/python -m pytest $(UNIT) -q -n $(WORKERS) -m "not story"

# The same without compiled code, as on a machine that has no compiler. Tests that replace functions
# of modules that are compiled run only here.
unit-pure: setup
	KAFKAESQUE_PURE=1 $(BIN)/python -m pytest $(UNIT) -q -n $(WORKERS) -m "not story"
	KAFKAESQUE_PURE=1 $(BIN)/python -m pytest tests/lab/sim -q -n $(WORKERS) -m pure

test: compile check unit-pure collect clients ## All that CI runs: check, stories, and conformance with every client
	$(BIN)/python -m pytest $(REAL) -q -n $(WAITING_WORKERS)
	$(BIN)/python -m pytest $(UNIT) -m story -q -n $(WAITING_WORKERS)

conformance: setup clients ## Real clients against our broker, or make conformance KAFKA=host:port
	KAFKA=$(KAFKA) $(BIN)/python -m pytest tests/conformance -q -n $(WORKERS)

conformance-cluster: setup clients ## Real clients against three brokers of ours
	KAFKA=cluster $(BIN)/python -m pytest $(addprefix tests/conformance/test_,round_trips.py groups.py transactions.py copy_loop.py) -q

conformance-services: setup clients ## Gateway and chat against KAFKA=host:port
	KAFKA=$(KAFKA) $(BIN)/python -m pytest tests/gateway tests/chat tests/edge -q -n $(WORKERS) --dist loadfile

pipeline-slow: setup ## What of the pipeline takes minutes: kills, a Spark cluster, Apache Kafka
	$(BIN)/python -m pytest tests/pipeline -m slow_spark -q --durations=0

apache-kafka: setup ## Run a real Apache Kafka from Maven artefacts on PORT (19092), for conformance
	$(BIN)/python -m kafkaesque.testing.apache_kafka --port $(or $(PORT),19092) \
	  --set group.initial.rebalance.delay.ms=0 --set group.min.session.timeout.ms=1000

fuzz: setup ## Feed mutated requests to the decoder for SECONDS (60)
	$(BIN)/python tests/fuzz/fuzz_wire.py --seconds $(or $(SECONDS),60)

bench: setup ## Measure, beside the floor and Apache Kafka; results in benchmarks/results/
	$(BIN)/kafkaesque bench all

kazoo-suite: setup ## kazoo's own tests against our coordination
	$(BIN)/python -m pytest -p tests.conformance_zookeeper.kazoo_suite -c /dev/null --pyargs kazoo.tests

zookeeper: setup ## Run a real Apache ZooKeeper from Maven artefacts on PORT (12181), for conformance
	$(BIN)/python -m kafkaesque.testing.zookeeper --port $(or $(PORT),12181)

native-check: setup ## The tests of compiled code: pure, and compiled under address sanitizer
	tools/native-check

trace: setup ## Count the functions that one acks=all record runs through (TRACE=--list names them)
	$(BIN)/python tools/trace_produce.py $(TRACE)

sim: setup ## Simulate clusters from SEEDS (20000) seeds, on all cores; then find every planted bug
	$(BIN)/kafkaesque sim --seeds $(or $(SEEDS),20000) --jobs $$(nproc) --keep tests/lab/sim/regression_seeds.txt
	$(BIN)/kafkaesque sim --planted

faults: setup ## Break real brokers in every way there is, under load
	$(BIN)/kafkaesque fault run all

site: setup ## Make HTML of the documents into site/
	$(BIN)/python tools/site.py

lock: setup ## Resolve the dependencies anew into requirements/*.lock
	$(BIN)/python tools/lock.py

clean: ## Remove what the other targets made
	rm -rf $(VENV) src/kafkaesque/_compiled .mypy_cache .ruff_cache .pytest_cache .hypothesis .cache build dist site
