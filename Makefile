# Kafkaesque: `make help` lists the targets.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.setup-done
# Tests run in parallel, one worker per core; each test chooses its own ports and directories. Tests that start
# processes wait more than they compute: two workers per core.
WORKERS ?= auto
WAITING_WORKERS ?= $(if $(filter auto,$(WORKERS)),$(shell echo $$((2 * $$(nproc)))),$(WORKERS))

# If this were set, each of the hundreds of processes that tests start would compile all modules again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup clients up check format format-check lint types imports collect unit unit-pure test \
        compile native-check trace \
        conformance conformance-cluster conformance-services pipeline-slow kazoo-suite apache-kafka \
        zookeeper fuzz sim bench faults site lock clean

help: ## List the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

setup: $(STAMP) ## Create .venv with everything that `up` and `test` need (quick if it exists)

$(STAMP): pyproject.toml requirements/dev.lock hatch_build.py $(wildcard src/kafkaesque/*/*.c src/kafkaesque/*/*.h src/kafkaesque/*/layout.py)
	@command -v $(PYTHON) >/dev/null || { echo "Python 3.11 or newer is needed: set PYTHON=..."; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Python 3.11 or newer is needed, $(PYTHON) is $$($(PYTHON) --version): set PYTHON=..."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --editable .
	@touch $@

# The modules that every record passes through run compiled, or from source if one changed since the last build.
compile: setup ## Recompile the compiled modules that changed
	@$(BIN)/python hatch_build.py

clients: setup ## Install the tools that tests use besides Python (kcat, Java, Go, Node, a browser, load balancers)
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

# Tests that start brokers, clients, browsers or other processes, or run many seeds. `make test` runs them after
# the quick ones; `make check` leaves them out, so that it takes about a minute.
REAL := $(addprefix tests/,stories cli conformance conformance_zookeeper pipeline sources client gateway \
          chat tasks console testing lab/sim lab/faults)
UNIT := tests $(REAL:%=--ignore=%)
# Reports test modules that cannot be imported within seconds, before the long tests start.
collect: setup
	@$(BIN)/python -m pytest $(REAL) --collect-only -qq >$(VENV)/collect.log 2>&1 || { cat $(VENV)/collect.log; exit 1; }

unit: setup
	$(BIN)/python -m pytest $(UNIT) -q -n $(WORKERS) -m "not story"

# The same tests without compiled code, as on a machine without a compiler. Tests that replace functions
# of compiled modules run only here.
unit-pure: setup
	KAFKAESQUE_PURE=1 $(BIN)/python -m pytest $(UNIT) -q -n $(WORKERS) -m "not story"
	KAFKAESQUE_PURE=1 $(BIN)/python -m pytest tests/lab/sim -q -n $(WORKERS) -m pure

test: compile check unit-pure collect clients ## Everything that CI runs: check, stories, and conformance with every client
	$(BIN)/python -m pytest $(REAL) -q -n $(WAITING_WORKERS)
	$(BIN)/python -m pytest $(UNIT) -m story -q -n $(WAITING_WORKERS)

conformance: setup clients ## Real clients against our broker, or make conformance KAFKA=host:port
	KAFKA=$(KAFKA) $(BIN)/python -m pytest tests/conformance -q -n $(WORKERS)

conformance-cluster: setup clients ## Real clients against a cluster of three of our brokers
	KAFKA=cluster $(BIN)/python -m pytest $(addprefix tests/conformance/test_,round_trips.py groups.py transactions.py copy_loop.py) -q

conformance-services: setup clients ## Gateway and chat against KAFKA=host:port
	KAFKA=$(KAFKA) $(BIN)/python -m pytest tests/gateway tests/chat tests/edge -q -n $(WORKERS) --dist loadfile

pipeline-slow: setup ## Pipeline tests that take minutes: kills, a Spark cluster, Apache Kafka
	$(BIN)/python -m pytest tests/pipeline -m slow_spark -q --durations=0

apache-kafka: setup ## Run a real Apache Kafka from Maven artefacts on PORT (19092), for conformance
	$(BIN)/python -m kafkaesque.testing.apache_kafka --port $(or $(PORT),19092) \
	  --set group.initial.rebalance.delay.ms=0 --set group.min.session.timeout.ms=1000

fuzz: setup ## Feed mutated requests to the decoder for SECONDS (60)
	$(BIN)/python tests/fuzz/fuzz_wire.py --seconds $(or $(SECONDS),60)

bench: setup ## Run every benchmark, also with the floor and Apache Kafka as peers; results in benchmarks/results/
	$(BIN)/kafkaesque bench all

kazoo-suite: setup ## Run kazoo's own tests against our ZooKeeper-compatible coordination
	$(BIN)/python -m pytest -p tests.conformance_zookeeper.kazoo_suite -c /dev/null --pyargs kazoo.tests

zookeeper: setup ## Run a real Apache ZooKeeper from Maven artefacts on PORT (12181), for conformance
	$(BIN)/python -m kafkaesque.testing.zookeeper --port $(or $(PORT),12181)

native-check: setup ## Test the compiled modules: from source, and compiled with AddressSanitizer
	tools/native-check

trace: setup ## Count the functions called for one acks=all record (TRACE=--list names them)
	$(BIN)/python tools/trace_produce.py $(TRACE)

sim: setup ## Simulate clusters from SEEDS (20000) seeds on all cores, then check that every planted bug is found
	$(BIN)/kafkaesque sim --seeds $(or $(SEEDS),20000) --jobs $$(nproc) --keep tests/lab/sim/regression_seeds.txt
	$(BIN)/kafkaesque sim --planted

faults: setup ## Run every fault run: break real brokers under load
	$(BIN)/kafkaesque fault run all

site: setup ## Build the documents as HTML in site/
	$(BIN)/python tools/site.py

lock: setup ## Resolve the dependencies again and write requirements/*.lock
	$(BIN)/python tools/lock.py

clean: ## Remove everything that the other targets created
	rm -rf $(VENV) src/kafkaesque/_compiled .mypy_cache .ruff_cache .pytest_cache .hypothesis .cache build dist site
