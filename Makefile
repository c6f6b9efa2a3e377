# make run and make test are all a fresh machine needs; both set themselves up.
SHELL := /bin/bash
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
AS_ROOT = $(shell test "$$(id -u)" = 0 && echo env || { sudo -n true 2>/dev/null && echo sudo -n; } || echo false)
APT = $(AS_ROOT) env DEBIAN_FRONTEND=noninteractive apt-get
GO_PACKAGES = golang-go golang-google-cloud-dev
INSTALL_GO = { $(APT) install -yq $(GO_PACKAGES) || { $(APT) update -q && $(APT) install -yq $(GO_PACKAGES); }; } >/dev/null 2>&1
BUILD_PUBSUB_SERVER = $(BIN)/python -m tests.bus.sites.pubsub_server.build
DOWNLOAD_NGINX = (cd .cache/nginx && { apt-get download -q nginx || { $(APT) update -q && apt-get download -q nginx; }; } && dpkg -x nginx_*.deb .) >/dev/null 2>&1
# The shell has no window around the page, and takes half the time.
BROWSERS = chromium-headless-shell chromium
INSTALL_BROWSER = { $(APT) install -yq $(browser) || { $(APT) update -q && $(APT) install -yq $(browser); }; } >/dev/null 2>&1

# Hundreds of processes that the tests start import the same modules: they keep what one has compiled.
unexport PYTHONDONTWRITEBYTECODE

PIP = $(BIN)/python -m pip install --disable-pip-version-check
# Two terminals may begin at the same time; whoever comes second waits, and finds it done.
ONE_AT_A_TIME = $(shell command -v flock >/dev/null && echo flock --close Makefile)
# There while libraries are being installed: what was interrupted is half there, and pip stumbles over it.
HALF = $(VENV)/.half

.PHONY: help run demo test test-fast test-long coverage check bench bench-quick docs docs-serve setup test-servers pubsub-server nginx browser screenshots proto lock clean

run: setup ## everything, on http://127.0.0.1:8080 from ./slipstream-data; ARGS='--without pipeline' for a light start
	@$(BIN)/slipstream up $(ARGS)

demo: setup ## what it does, in a minute; beside make run, or alone
	@$(BIN)/slipstream demo $(ARGS)

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

test: setup test-servers browser ## all tests: eight minutes on two cores
	-$(BIN)/slipstream pipeline prepare # Spark starts sooner with it
	$(BIN)/pytest $(ARGS)

test-fast: setup test-servers ## the tests that need neither Spark nor a browser: two and a half minutes
	$(BIN)/pytest -n 8 --ignore tests/console/browser -m 'not long and not spark and not browser' $(ARGS) # more than cores: tests also wait

test-long: setup test-servers ## the long versions of the tests that kill processes, for at most 30 minutes
	timeout --signal=INT --kill-after=60 30m $(BIN)/pytest -m long -n 1 -s --timeout 1800 $(ARGS)

coverage: setup test-servers browser ## make test with the lines of src/ that it runs, those of other processes too
	$(BIN)/pytest --cov --cov-report=term:skip-covered $(ARGS)

check: setup ## lint and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: setup ## measure here and now; ARGS=--update-readme puts the table into the README
	$(BIN)/python -m bench $(ARGS)

bench-quick: setup ## without the five million messages
	$(BIN)/python -m bench --quick $(ARGS)

docs: setup ## the site of docs/, into site/; a link that leads nowhere is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --clean --quiet

docs-serve: setup ## the site at http://127.0.0.1:8000, made anew while you write
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve --strict

setup: ## install what is needed into .venv; the others do that by themselves
	@$(ONE_AT_A_TIME) $(MAKE) --silent --no-print-directory $(STAMP)

$(STAMP): pyproject.toml requirements.lock
	@python3 -c 'import sys; sys.exit("Slipstream needs Python 3.11 or newer, this is " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	@echo 'setting up $(VENV), once: this takes a minute or two'
	@test ! -e $(HALF) || { echo '  the last time it did not come to its end: beginning anew'; rm -rf $(VENV); }
# Debian keeps venv in a package of its own.
	@test -x $(BIN)/pip || python3 -m venv $(VENV) || { apt-get update -q && apt-get install -yq python3-venv && python3 -m venv --clear $(VENV); }
	@touch $(HALF)
	@set -o pipefail; $(PIP) --progress-bar off --require-hashes -r requirements.lock 2>&1 | python3 scripts/install_progress.py requirements.lock \
		|| { echo '  the libraries are not installed, see above; with a network to a registry of Python packages, try again'; exit 1; }
	@$(PIP) --quiet --no-deps --no-build-isolation -e .
	@rm $(HALF)
	@echo '  slipstream is $(BIN)/slipstream'
	@touch $@

pubsub-server: setup ## what the tests of the pubsub driver talk to: Google's own fake, built with Go, where it can be had
	@$(BUILD_PUBSUB_SERVER) 2>/dev/null || { \
		echo 'installing Go, for the Pub/Sub server of the tests'; \
		$(INSTALL_GO); \
		$(BUILD_PUBSUB_SERVER) || echo 'so the tests of the pubsub driver will be skipped'; }

test-servers: pubsub-server nginx

nginx: ## what the tests put in front of a server: Debian's, unpacked and not installed, where it can be had
	@command -v nginx >/dev/null || test -x .cache/nginx/usr/sbin/nginx || { \
		echo 'getting nginx, for the tests of proxies'; \
		mkdir -p .cache/nginx; \
		$(DOWNLOAD_NGINX) || echo 'so the tests behind nginx will be skipped'; }

browser: ## what the tests look at the console with: Chromium, where it can be had
	@command -v $(BROWSERS) >/dev/null || { \
		echo 'installing Chromium, for the tests of the console'; \
		$(foreach browser,$(BROWSERS),$(INSTALL_BROWSER) ||) \
		echo 'so the tests of the console in a browser will be skipped'; }

screenshots: setup browser ## the pictures of the console in docs/images
	$(BIN)/pytest -n 0 -p no:randomly tests/console/browser/test_pictures*.py -k "not dark and not phone" --screenshots docs/images

proto: setup ## after changing proto/jobs.proto
	$(BIN)/python -m grpc_tools.protoc -I proto --python_out=src/slipstream/jobs --pyi_out=src/slipstream/jobs proto/jobs.proto

lock: ## after changing dependencies in pyproject.toml
	uv pip compile --universal --generate-hashes --no-header --no-annotate --no-emit-index-url --group dev --python-version 3.11 pyproject.toml -o requirements.lock

clean: ## remove what setup and the tools have made; data stays
	rm -rf $(VENV) .cache .mypy_cache .ruff_cache .pytest_cache
