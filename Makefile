# make run and make test are all a fresh machine needs; both set themselves up.
SHELL := /bin/bash
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: run test check bench bench-quick setup lock clean

run: setup ## serve on http://127.0.0.1:8080 from ./slipstream-data
	$(BIN)/slipstream serve $(ARGS)

test: setup ## everything, slow tests too, in parallel
	$(BIN)/pytest $(ARGS)

check: setup ## lint and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: setup ## measure here and now; ARGS=--update-readme puts the table into the README
	$(BIN)/python -m bench $(ARGS)

bench-quick: setup ## without the five million messages
	$(BIN)/python -m bench --quick $(ARGS)

setup: $(STAMP)

$(STAMP): pyproject.toml requirements.lock
	python3 -c 'import sys; sys.exit("Slipstream needs Python 3.11 or newer, this is " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	@echo 'setting up $(VENV), once: this takes about half a minute'
	# Debian keeps venv in a package of its own.
	test -x $(BIN)/pip || python3 -m venv $(VENV) || { apt-get update -q && apt-get install -yq python3-venv && python3 -m venv --clear $(VENV); }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

lock: ## after changing dependencies in pyproject.toml
	uv pip compile --universal --generate-hashes --no-header --no-annotate --no-emit-index-url --group dev --python-version 3.11 pyproject.toml -o requirements.lock

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache
