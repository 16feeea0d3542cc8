# Python 3.11+ and a JDK 17+ are all that most of this needs; what needs more (Docker, Chromium, compilers) says so.

SHELL := /bin/bash
.DEFAULT_GOAL := help

# The Python that .venv is made with; how many tests run at a time: one a core, and two more where
# some of them start Spark or Kafka, which wait for a third of their time (2 GB of memory each): with
# one more, two cores had nothing to do for a fifth of the run; with three more it took longer.
PYTHON ?= python3
WORKERS ?= $(shell nproc 2>/dev/null || getconf _NPROCESSORS_ONLN)
TEST_WORKERS ?= $(shell echo $$(( $(WORKERS) + 2 )))
HANDED_OUT := --dist load --maxschedchunk 1

# How long `make test-stalest` and `make campaign` run.
MINUTES ?= 20

# What docker/Dockerfile begins with; `docker/make-base.sh NAME` makes one of Debian's packages.
BASE_IMAGE ?= python:3.11-slim-bookworm

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
READY_TEST := $(VENV)/.ready-test
READY_DEV := $(VENV)/.ready-dev
KERNELS := $(VENV)/.kernels
PIP := $(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt
PYTEST := $(BIN)/python -m pytest
SIMULATE := $(BIN)/python -m streamydb.cli sim --seeds 4 --first 1 --jobs 1 > /dev/null
FOLLOW := $(BIN)/python -m streamydb.read_model.warmup
ALONE := not docker and not browser and not clients and not connect and not stores
SHORT := not long and $(ALONE)

# `make up` does not wait for what only tests need. All other targets install that at once.
ONLY_RUN := $(if $(MAKECMDGOALS),$(if $(filter-out up down jars,$(MAKECMDGOALS)),,yes))
EXTRAS := server sql $(if $(ONLY_RUN),,alchemy test)

# Images often tell Python to keep no bytecode; then every process of ours would compile everything
# that it imports, Spark's and pandas' packages, too.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: up
up: $(READY) jars ## Start the database in the background: broker, pipeline, read model and facade
	@$(BIN)/streamydb up

.PHONY: down
down: $(READY) ## Stop what `make up` started
	@$(BIN)/streamydb down

.PHONY: venv
venv: $(READY_TEST) ## Make .venv with the tested versions of everything

.PHONY: jars
jars: $(READY) ## Fetch the jars of ivy.xml into the user's cache (once)
	@$(BIN)/python -m streamydb.local.jars

# The kernels are compiled once for the source, and not by every test process at once.
.PHONY: kernels
kernels: $(KERNELS)
$(KERNELS): $(shell find streamydb simulator -name '*.py') | $(READY_TEST)
	@$(SIMULATE)
	@$(FOLLOW)
	@touch $@

# An archive of what Spark's and Kafka's JVMs load is used if it is there, but not made: that takes 47
# seconds of processor time, and would spare the starts of a run 30.
.PHONY: test
test: venv ## Run all tests that take minutes: unit, simulation, docs, Spark, Kafka, short faults
	@$(MAKE) --no-print-directory -j 2 jars test-short

.PHONY: test-short
test-short: kernels
	$(PYTEST) -n $(TEST_WORKERS) $(HANDED_OUT) -m "$(SHORT)"

.PHONY: test-unit
test-unit: kernels ## Run the tests that need neither Spark nor Kafka
	$(PYTEST) -n $(WORKERS) $(HANDED_OUT) -m "not (spark or kafka) and $(SHORT)"

.PHONY: test-faults
test-faults: venv jars ## Run all tests marked long: faults under load, and the long ones of tests/spark and tests/kafka
	$(PYTEST) -m "long and not docker" --record-long

# A test that nobody runs grows old, and does not tell it.
.PHONY: test-stalest
test-stalest: venv jars ## Of the long tests, run those that passed longest ago, for MINUTES=20
	$(PYTEST) -n $(WORKERS) $(HANDED_OUT) --record-long --stalest $(MINUTES) -m "long and $(ALONE)"

.PHONY: reliability
reliability: venv jars ## Inject every fault there is a test for; write the table of docs/reliability.md
	$(PYTEST) -m "fault and not docker and not browser" --record-faults

# The seed of a campaign's choices (empty: by chance).
SEED ?=
.PHONY: campaign
campaign: venv jars ## Random faults over a loaded database for MINUTES=20; adds to docs/reliability.md
	$(BIN)/python -m tests.campaign --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

HISTORIES ?= 3
.PHONY: histories
histories: venv jars ## HISTORIES=3 of 10,000 operations under kills, by all ways; adds to docs/reliability.md
	$(BIN)/python -m tests.campaign.histories --histories $(HISTORIES) $(if $(SEED),--seed $(SEED))

SIM_MINUTES ?= 60
.PHONY: sim-long
sim-long: kernels ## Run seeds of the simulator that were never run for SIM_MINUTES=60; adds to docs/reliability.md
	$(BIN)/python -m tools.seeds --minutes $(SIM_MINUTES)

ROUNDS ?= 10
.PHONY: test-random
test-random: kernels ## Run Hypothesis' tests ROUNDS=10 times with examples that were never drawn
	for round in $$(seq $(ROUNDS)); do \
		STREAMYDB_SIM_SEEDS=400 $(PYTEST) -q -n $(WORKERS) -m "hypothesis and not long" \
			--hypothesis-profile=drawn tests/unit tests/layers || exit; \
	done

.PHONY: proof
proof: kernels ## Run the randomized tests; write what they execute into docs/proof.md
	rm -f bench/results/proof.json
	STREAMYDB_SIM_SEEDS=400 $(PYTEST) -q -n $(WORKERS) $(HANDED_OUT) -m "not (spark or kafka or long)" --record-modules \
		tests/unit tests/simulation tests/layers

.PHONY: test-docker
test-docker: venv ## Build and start the images in a Docker daemon
	STREAMYDB_TEST_BASE_IMAGE=$(BASE_IMAGE) TESTCONTAINERS_RYUK_DISABLED=true $(PYTEST) -m docker --record-long

SPARK ?= 4.1.4
CONNECTOR ?= 4.1.3
.PHONY: test-spark-version
test-spark-version: venv ## Run a test of the pipeline with another PySpark and connector: SPARK=4.1.4 CONNECTOR=4.1.3
	PYTHON=$(abspath $(BIN))/python tools/spark_version.sh $(SPARK) $(CONNECTOR)

.PHONY: test-browser
test-browser: venv jars ## Click through the console in Chromium (Debian: apt-get install chromium chromium-driver)
	$(PYTEST) -m browser --record-long

.PHONY: test-clients
test-clients: venv ## Generate clients for five languages, compile and run them (Maven, Go, Node, a JDK)
	$(PYTEST) -m clients --record-long

.PHONY: test-connect
test-connect: venv jars ## Follow the changes with a Kafka Connect worker into PostgreSQL, with Spark, Python and Node
	$(PYTEST) -m connect --record-long

.PHONY: test-stores
test-stores: venv jars ## Keep a checkpoint in an object store (moto's S3), kill and halt its pipelines (Maven)
	$(PYTEST) -m stores --record-long

.PHONY: test-typescript
test-typescript: venv ## Compile and test the TypeScript client (Node 18 or newer)
	$(PYTEST) -m clients tests/clients/test_typescript_package.py

SOAK_MINUTES ?= 30
.PHONY: soak
soak: venv jars ## Run SOAK_MINUTES=30 at half load and compare with the first minute
	$(BIN)/streamydb bench soak --seconds $$(( $(SOAK_MINUTES) * 60 ))

.PHONY: bench
bench: venv jars ## Measure throughput and latency on real Kafka and Spark
	$(BIN)/streamydb bench bank

.PHONY: bench-literature
bench-literature: venv jars ## Run the five benchmarks of the literature; keep their answers, write their table
	$(BIN)/streamydb bench literature --results bench/results
	$(BIN)/python -m bench.table --write

.PHONY: figures
figures: venv jars ## Measure docs/figures.md again, beside PostgreSQL, in 25 minutes; keep the answers, write the tables
	$(BIN)/python -m bench.figures

.PHONY: lint
lint: $(READY_DEV) ## Check style, format, types, imports, sizes and subjects of commits
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(PYTEST) -q tests/test_tidy.py
	$(BIN)/python tools/subjects.py

VERSION ?=
.PHONY: release
release: $(READY_DEV) ## Check, build the wheels into dist/ and tag VERSION=1.2.3; pushes nothing
	@$(BIN)/python -m tools.release $(VERSION)

.PHONY: audit
audit: $(READY_DEV) ## Look the pinned packages up in a database of known vulnerabilities (2: out of reach)
	@$(BIN)/python tools/audit.py

.PHONY: sbom
sbom: $(READY) jars ## Write sbom.json: Python packages and jars, CycloneDX
	@$(BIN)/python tools/sbom.py

.PHONY: clean
clean: ## Remove .venv and what tools leave behind; data and cached jars stay
	rm -rf $(VENV) build dist *.egg-info layers/build layers/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): setup.cfg layers/setup.cfg pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "$(PYTHON) is older than Python 3.11, or missing. Name a newer one: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "$(PYTHON) cannot make a virtual environment. On Debian and Ubuntu: apt-get install python3-venv"; exit 1; }
	@echo "Making $(VENV) (a minute or a few the first time: PySpark is 480 MB) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(MAKE) --no-print-directory -j 5 install-pyspark install-this install-others install-kernels \
	  $(if $(JARS_TOO),install-jars) EXTRAS="$(EXTRAS)"
	@touch $@ $(if $(ONLY_RUN),,$(READY_TEST))

$(READY_TEST): $(READY)
	@! test $(READY) -nt $@ || $(PIP) $$($(BIN)/python tools/requirements.py alchemy test)
	@touch $@

# The unpacking of PySpark takes half a minute on one core, so does the compilation of the kernels,
# which needs a few packages only; the other packages come meanwhile. The kernels of what follows are
# compiled beside those of the engine: one after the other, they left a core idle for 20 seconds.
# The engine's take longest, so all else gives way to them, but for the jars, which mostly wait.
NEEDED_BY_KERNELS := ^(numba|numpy|msgspec|lmdb|confluent-kafka|typer|rich|pydantic-settings|psutil)\b
# PySpark comes as a source, of which pip makes an archive that it opens again: not to compress its
# jars once more saves 13 seconds.
# pip takes ten seconds to build our own two packages, so it does that beside the others; those include
# py4j, which PySpark needs.
# Ivy comes with PySpark, so that one goes first; the jars come while the rest is installed. Without
# a network they are missed later, with a message.
JARS_TOO := $(filter up test,$(MAKECMDGOALS))
AFTER := nice -n 10
.PHONY: install-pyspark install-first install-others install-kernels install-this install-jars
install-pyspark:
	@printf '[bdist_wheel]\ncompression = stored\n' > $(VENV)/stored.cfg
	@DIST_EXTRA_CONFIG="$$PWD/$(VENV)/stored.cfg" $(PIP) --no-deps pyspark
install-first:
	@$(AFTER) $(PIP) $$($(BIN)/python tools/requirements.py server | grep -E '$(NEEDED_BY_KERNELS)')
install-others: install-first
	@$(AFTER) $(PIP) py4j $$($(BIN)/python tools/requirements.py $(EXTRAS) | grep -v '^pyspark')
install-kernels: install-first
	-@export PYTHONPATH=.:layers; $(SIMULATE) & simulated=$$!; \
	  $(AFTER) $(FOLLOW); followed=$$?; wait $$simulated && test $$followed = 0 && touch $(KERNELS)
install-jars: install-pyspark
	-@PYTHONPATH=. $(BIN)/python -m streamydb.local.jars
install-this: install-first install-pyspark
	@$(AFTER) $(PIP) --no-deps -e . -e ./layers

$(READY_DEV): $(READY)
	@$(PIP) -e '.[server,sql,test,dev]' -e './layers[sql,alchemy,test]'
	@touch $@
