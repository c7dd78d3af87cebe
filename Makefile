# Everything on a fresh machine: `make demo` shows what this does, `make test` checks that it does it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test lint docs wheel bench install clean

demo: install
	$(BIN)/flexpredict demo

test: install
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal -q

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The documentation as a site, in docs/_build.
docs: install
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[docs]'
	$(BIN)/python -m sphinx -q -W -b html docs docs/_build

# Wheel and sdist in dist/, tried out in an environment of their own.
wheel: install
	rm -rf dist
	$(BIN)/python -m build -q
	.ci/try-wheel dist/*.whl

# Timings, as ratios against peers in the same run. Leave the machine alone meanwhile.
bench: export THP_MEM_ALLOC_ENABLE = 1
bench: install
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[bench]'
	$(BIN)/python benchmarks/step.py
	$(BIN)/python benchmarks/extraction.py
	$(BIN)/python benchmarks/stochastic_positions.py
	$(BIN)/python benchmarks/masking.py
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/linear_probe.py
	$(BIN)/python benchmarks/decoding.py
	$(BIN)/python benchmarks/listing.py
	$(BIN)/python benchmarks/davis_scores.py
	$(BIN)/python benchmarks/contexts_per_image.py
	$(BIN)/python benchmarks/threads.py
	$(BIN)/python benchmarks/threads.py --busy 2

install: $(VENV)/installed

$(VENV)/installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --upgrade pip
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) demo demo.[0-9]* .pytest_cache .mypy_cache .ruff_cache .hypothesis
