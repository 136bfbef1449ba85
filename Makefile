# Each target sets up .venv with the tested versions by itself; all it needs is Python 3.11 or newer.
PYTHON ?= python3
BIN := .venv/bin
ARGS ?=
# Versions to install: those that are tested; /dev/null for the newest.
CONSTRAINTS ?= constraints.txt

EXTRAS_core :=
EXTRAS_test := [benchmark,images,test]
EXTRAS_docs := [docs]
EXTRAS_dev := [dev]
EXTRAS_tutorials := [benchmark,docs]

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test fuzz lint docs tutorials clean

help: ## show this list
	@sed -nE 's/^([a-z]+):.*## (.*)/  make \1\t\2/p' Makefile | expand -t 18

demo: .venv/.stamp-core ## train and impute on bundled data, write table, figure and .h5ad into demo/
	$(BIN)/sccountsdiff demo --output demo --overwrite $(ARGS)

test: .venv/.stamp-test .venv/.stamp-forest ## run the tests; options for pytest through ARGS="..."
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 $(ARGS)

fuzz: .venv/.stamp-test ## try 12,000 random inputs, and save what became of them
	OMP_NUM_THREADS=1 FUZZ_PROFILE=long FUZZ_RESULT=docs/benchmarks/results/fuzz.csv $(BIN)/python -m pytest tests/properties $(ARGS)

lint: .venv/.stamp-dev ## check style, formatting, the direction of imports, and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache --no-logo
	$(BIN)/mypy

docs: .venv/.stamp-docs ## build the documentation into docs/_build/html, warnings are errors
	PYTHONWARNINGS=ignore::DeprecationWarning $(BIN)/python -m sphinx -W --keep-going -n -b html docs docs/_build/html

tutorials: .venv/.stamp-tutorials ## execute all notebooks in tutorials/ in place, fail on an error
	set -e; for notebook in tutorials/*.ipynb; do \
		$(BIN)/python -m nbconvert --to notebook --execute --ExecutePreprocessor.record_timing=False --inplace $$notebook; \
	done

clean: ## remove what the other targets made, but for .venv
	rm -rf demo dist docs/_build docs/_generated docs/generated docs/tutorials/*.ipynb .coverage .mypy_cache .pytest_cache .ruff_cache lightning_logs

$(BIN)/python:
	$(PYTHON) -m venv .venv

# Forest-Diffusion asks for the full xgboost with its CUDA libraries, but runs with the xgboost-cpu of the benchmark.
.venv/.stamp-forest: .venv/.stamp-test
	$(BIN)/python -m pip install -qq --disable-pip-version-check -c $(CONSTRAINTS) --no-deps ForestDiffusion lightgbm catboost
	touch $@

.venv/.stamp-%: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install -qq --disable-pip-version-check -c $(CONSTRAINTS) -e ".$(EXTRAS_$*)"
	touch $@
