# make demo    set up, then run the main job on real examples
# make test    set up, then lint, types and tests
# make bench   set up, then print the tables of the README
#
# Set-up happens once, in .venv; it is repeated when the build files or the C sources change.
# Choose the interpreter with PYTHON=, another torch with TORCH=.

SHELL := /bin/sh
.SHELLFLAGS := -ec
.DEFAULT_GOAL := help

PYTHON ?= $(shell for p in python3.11 python3 python; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' >/dev/null 2>&1 && { echo "$$p"; exit; }; \
	done; echo python3)
TORCH ?= torch==2.13.0
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.framecap-installed
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input
C_SOURCES := $(wildcard src/*/*.c src/*/*.h)
# Tests that work the C extensions directly: run once more with CPython's checked allocator.
C_TESTS := $(wildcard tests/test_hook*.py tests/guards/test_*.py tests/test_lifetimes.py)

.PHONY: help demo test bench setup lint types unit memory clean

help:
	@sed -n 's/^# \{0,1\}\(make .*\)/\1/p' Makefile

setup: $(STAMP)

$(STAMP): pyproject.toml setup.py tools/check_host.py $(C_SOURCES)
	@command -v "$(PYTHON)" >/dev/null 2>&1 || { \
		echo "framecap: no Python found as '$(PYTHON)'; install CPython 3.11 or name it: make PYTHON=/path/to/python3.11" >&2; \
		exit 1; }
	@"$(PYTHON)" tools/check_host.py
	@[ -x $(BIN)/python ] || { echo "== Making a virtual environment in $(VENV) with $(PYTHON)"; "$(PYTHON)" -m venv $(VENV); }
	@echo "== Installing $(TORCH)"
	@$(PIP) install --quiet "$(TORCH)"
	@echo "== Building and installing framecap with its test tools"
	@$(PIP) install --quiet --editable ".[test,models,export,dev]"
	@touch $(STAMP)

demo: setup
	@echo "== framecap report examples/report_demo.py: where the graph breaks, and why"
	@$(BIN)/framecap report examples/report_demo.py
	@echo
	@echo "== examples/resnet50.py: framecap.optimize on a ResNet-50"
	@$(BIN)/python examples/resnet50.py
	@echo
	@echo "== examples/train_loop.py: framecap.optimize around a training loop"
	@$(BIN)/python examples/train_loop.py
	@echo
	@echo "== examples/capture.py: framecap.capture, one whole graph to work on"
	@$(BIN)/python examples/capture.py

test: setup lint types unit memory

lint: setup
	@echo "== Lint (ruff)"
	@$(BIN)/ruff check .

# The mapping of folders to package names exists only in an installed copy, so that is what mypy reads. Building
# it also proves that the list of packages in pyproject.toml is whole.
types: setup
	@echo "== Types (mypy, on an installed copy)"
	@rm -rf build/typecheck build/lib*
	@$(PIP) install --quiet --no-deps --target build/typecheck .
	@MYPYPATH=build/typecheck $(BIN)/mypy -p framecap

unit: setup
	@echo "== Tests (pytest)"
	@FRAMECAP_STRICT=1 $(BIN)/python -m pytest

memory: setup
	@echo "== Tests of the C extensions with the checked allocator"
	@FRAMECAP_STRICT=1 PYTHONMALLOC=debug $(BIN)/python -X dev -m pytest -q $(C_TESTS)

bench: setup
	@$(BIN)/python -m benchmarks.import_time
	@$(BIN)/python -m benchmarks.coverage
	@$(BIN)/python -m benchmarks.side_by_side

clean:
	rm -rf $(VENV) build dist *.egg-info
	find src -name '*.so' -delete
