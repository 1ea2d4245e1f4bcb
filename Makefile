# Two commands: `make run` (environment, then the default study) and `make test`. `make help` lists the rest.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV_VERSION := 0.13.9
CORES ?= all
STUDY ?= default
export PYTHONPATH := src$(if $(PYTHONPATH),:$(PYTHONPATH))

.PHONY: help run smoke unlock test lint lock clean env sql

help:
	@echo "make run      environment, then the default study (STUDY=smoke, CORES=2 to change)"
	@echo "make unlock   after a run was killed; then the same command goes on"
	@echo "make test     environment, then the tests"
	@echo "make lint     types, style, import rules, workflow lint"
	@echo "make sql Q=\"select ...\"   ask the warehouse; \"copy (from recommendation) to 'mine.csv'\" writes a file"
	@echo "make lock     resolve requirements.lock anew"
	@echo "make clean    remove results"

env: $(VENV)/.ready

$(VENV)/.ready: requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed, this is " + sys.version)'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing the locked packages into $(VENV)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION) && \
	 $(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python --require-hashes -r requirements.lock || \
	 $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@touch $@

run: env
	$(BIN)/snakemake --cores $(CORES) --config study=$(STUDY)

smoke: env
	$(BIN)/snakemake --cores $(CORES) --config study=smoke

unlock: env
	$(BIN)/snakemake --unlock --config study=$(STUDY)

test: env
	$(BIN)/python -m pytest -n auto --dist loadfile $(ARGS)

lint: env
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/snakefmt --check Snakefile workflow
	@# all of Snakemake's lints but one: the environment is .venv, made from requirements.lock
	! $(BIN)/snakemake --lint --config study=smoke 2>&1 | grep '^ *\*' | grep -v 'conda environment or container'

# the query travels in the environment: neither make nor the shell sees its quotes and dollars
unexport Q
sql: export QUERY = $(value Q)
sql: env
	@$(BIN)/python workflow/scripts/sql.py

lock:
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
	  --extra dev pyproject.toml --output-file requirements.lock

clean:
	rm -rf results/* .snakemake
