# Each target sets up what it needs; `make demo` and `make test` are all one has to know.
# The demonstration needs little: `make test` adds the developers' tools to the same environment.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
LIGHT  := $(VENV)/.light
READY  := $(VENV)/.ready
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: setup demo test lint docs bench clean

setup: $(READY)

# The environment is rebuilt when what it was built from changes. What is never imported need not be compiled.
$(LIGHT): pyproject.toml constraints.txt
	@echo "Setting up $(VENV): PyTorch, marsrec and its server, 1.5 GB. This takes a minute or so, once."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) --no-compile --editable ".[plot,serve]"
	@touch $@

$(READY): $(LIGHT)
	@echo "Adding the developers' tools to $(VENV)."
	@$(PIP) --editable ".[dev]"
	@touch $@

demo: $(LIGHT)
	@$(BIN)/marsrec demo --out demo

test: lint
	$(BIN)/python -m pytest

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The site, in site/; notebooks are executed, so that it shows what they print.
docs: $(READY)
	NO_MKDOCS_2_WARNING=1 EXECUTE_NOTEBOOKS=true $(BIN)/mkdocs build --strict

bench: $(READY)
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) demo site .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src benchmarks -name '*.nb[ic]' -delete  # compiled kernels
