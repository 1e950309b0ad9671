# One command each: make demo, make test, make check. All of them set up .venv first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Compiled files are kept, whatever the environment says: tests start many processes.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help setup demo test test-fast check docs dist dist-test bench clean

help:  ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /	/'

setup: $(READY)  ## create .venv and install the pinned versions

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $(READY)

demo: setup  ## the headline result: table, figure and HTML report in about a minute
	$(BIN)/extremal demo

test: setup  ## all tests, on 2 cores
	@DEBIAN_FRONTEND=noninteractive sh tools/install_chromium.sh
	$(BIN)/python -m pytest

test-fast: setup  ## most tests of the mathematics, in less than two minutes: no processes, no browser, no other library
	$(BIN)/python -m pytest tests/data tests/models tests/attack tests/measure tests/certify tests/train tests/evaluate tests/theory --ignore tests/attack/test_adapters.py --ignore tests/certify/test_scip.py --ignore tests/certify/test_reduced_networks.py --ignore tests/certify/test_holds.py --ignore tests/attack/test_contract.py --ignore tests/certify/test_sound.py --ignore tests/attack/test_exact_radii.py --ignore tests/measure/test_direction_set.py --ignore tests/train/test_adversarial_training.py

check: setup  ## ruff, strict type check, import directions
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -n 0 tests/project/test_imports.py

docs: setup  ## the documentation site in build/site, offline, with warnings as errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "build/site/index.html (search needs a server: python3 -m http.server -d build/site)"

dist: setup  ## sdist and wheel in dist/
	rm -rf dist
	$(BIN)/python -m build --no-isolation --outdir dist

dist-test: dist  ## the wheel in an empty environment, with its declared dependencies: the demo
	$(BIN)/python tools/try_wheel.py dist

bench: setup  ## every benchmark, as JSON
	@for name in $$(cd bench && ls [a-z]*.py | sed 's/\.py$$//'); do $(BIN)/extremal bench $$name --json || exit 1; done

clean:  ## remove the environment and caches (runs/ stays)
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
