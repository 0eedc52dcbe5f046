# Every target does its own set-up: a virtual environment with the exact versions of constraints.txt.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test test-all test-slow bench-peers check format setup lock clean

demo: setup  ## real models write a story, code and an edit, with proof and bill
	$(BIN)/python examples/demo.py

test: setup  ## the suite of a few minutes
	$(BIN)/python -m pytest

test-all: test test-slow  ## that and the slow rest

test-slow: setup
	$(BIN)/python -m pytest -m "slow and not gpu"

check: setup  ## format, lint, types, import layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/basedpyright
	$(BIN)/lint-imports

bench-peers: setup  ## other engines beside this one, each in an environment of its own; an hour
	$(BIN)/python -m benchmarks.peers build
	$(BIN)/python -m benchmarks.peers run

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev,openvino]'
	touch $(READY)

lock:  ## write constraints.txt anew from the ranges of pyproject.toml, keeping torch's pin
	rm -rf $(VENV)/lock && $(PYTHON) -m venv $(VENV)/lock
	grep '^torch==' constraints.txt > $(VENV)/lock/torch.txt
	$(VENV)/lock/bin/python -m pip install --quiet --constraint $(VENV)/lock/torch.txt '.[dev,openvino]'
	$(VENV)/lock/bin/python -m pip freeze --exclude draftwise | sed 's/+cpu$$//' > constraints.txt
	rm -rf $(VENV)/lock

clean:
	rm -rf $(VENV)
