# Everything runs in .venv, which the first target that needs it makes. `make help` lists them.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PYTEST ?= $(BIN)/python -m pytest
WORKERS ?= 2
# loadfile keeps a file's tests in one process: they share compiled steps; the processes share
# Warp's kernel cache on disk.
PYTEST_ARGS ?= -n $(WORKERS) --dist loadfile
# The CUDA build of JAX that the driver can run; empty where there is no NVIDIA GPU.
DRIVER := $(shell nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | head -1 | grep -oE '^[0-9]+')
CUDA ?= $(if $(DRIVER),$(if $(filter 1,$(shell test $(DRIVER) -ge 580 && echo 1)),cuda13,cuda12))
comma := ,
WITH_CUDA := $(if $(CUDA),$(comma)$(CUDA))
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help demo test test-all test-x64 test-oldest test-newest smoke lint format docs bench build clean

help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo 'Python 3.11 or newer is needed: make PYTHON=python3.12 ...' >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: pyproject.toml | $(BIN)/python
	$(INSTALL) -e '.[demo$(WITH_CUDA)]'
	@touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	$(INSTALL) -e '.[dev$(WITH_CUDA)]'
	@touch $@ $(VENV)/.demo

$(VENV)/.docs: pyproject.toml | $(BIN)/python
	$(INSTALL) -e '.[docs$(WITH_CUDA)]'
	@touch $@

$(VENV)/.notebooks: pyproject.toml | $(BIN)/python
	$(INSTALL) -e '.[notebooks$(WITH_CUDA)]'
	@touch $@

demo: $(VENV)/.demo ## hundreds of humanoids fall, checked against C MuJoCo; writes demo.png
	$(BIN)/python -m mjx_warp_ffi.cli.demo

lint: $(VENV)/.dev ## format, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/python tests/support/typecheck.py

format: $(VENV)/.dev ## format in place and apply the safe fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

test: $(VENV)/.dev lint demo ## lint, the demo, and every test that is not slow
	$(PYTEST) $(PYTEST_ARGS) -m 'not slow'

test-all: $(VENV)/.dev lint demo ## the same with the slow tests
	$(PYTEST) $(PYTEST_ARGS)

test-x64: $(VENV)/.dev ## every test that is not slow with JAX_ENABLE_X64=1
	JAX_ENABLE_X64=1 $(PYTEST) $(PYTEST_ARGS) -m 'not slow'

test-oldest: ## the tests on the oldest versions that pyproject.toml allows
	PYTHON='$(PYTHON)' .ci/versions oldest

test-newest: ## the tests on the newest versions that pyproject.toml allows
	PYTHON='$(PYTHON)' .ci/versions newest

smoke: ## build the wheel, install it elsewhere and use it from an empty folder
	PYTHON='$(PYTHON)' .ci/smoke

docs: $(VENV)/.docs ## the documentation, into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench: $(VENV)/.dev ## the benchmarks against the peers, as JSON and Markdown
	$(BIN)/python benchmarks/step.py --out build/bench
	$(BIN)/python benchmarks/gradient.py --out build/bench
	$(BIN)/python benchmarks/scaling.py --out build/bench
	$(BIN)/python benchmarks/options.py --out build/bench
	$(BIN)/python benchmarks/step_parts.py --out build/bench

build: $(BIN)/python ## the wheel and the sdist, into dist/
	$(INSTALL) build
	$(BIN)/python -m build

clean: ## remove what these targets made, but the kernel cache
	rm -rf $(VENV) build dist site demo.png
