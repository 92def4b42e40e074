# Every target sets itself up in .venv from Python >= 3.11, make and pip; nothing else is expected of the machine.
#
#   PYTHON   the interpreter that .venv is made from (default: the first of the names below that is new enough)
#   VENV     where the environment goes (default: .venv)
#   ARGS     passed on by `make demo` and `make test`
#   BENCH    the one bench file that `make bench` runs

.DEFAULT_GOAL := help
SHELL := /bin/sh
MAKEFLAGS += --no-print-directory

# What an activated environment or a user's settings leave behind must not reach the environment made here.
# ($(shell) does not obey `unexport` before make 4.4, hence the CLEAN in front of the search.)
LEAKY := VIRTUAL_ENV PYTHONHOME PYTHONPATH PYTHONSAFEPATH PIP_USER PIP_TARGET PIP_PREFIX PIP_REQUIRE_VIRTUALENV
unexport $(LEAKY)
CLEAN := env $(addprefix -u ,$(LEAKY))

VENV ?= .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check --quiet
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
NAMES := python3 python3.14 python3.13 python3.12 python3.11
ifndef PYTHON
PYTHON := $(shell for name in $(NAMES); do \
	$(CLEAN) $$name -c '$(NEW_ENOUGH)' >/dev/null 2>&1 && { command -v $$name; break; }; done)
endif

comma := ,

.NOTPARALLEL: # two targets at once would install into one environment
.PHONY: help demo test lint lint-rules lint-format lint-types lint-words bench peer-opencl docs clean

help: ## what there is to make (the default)
	@echo "usage: make TARGET [PYTHON=python3.x]"
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1|\2/p' $(firstword $(MAKEFILE_LIST)) | while IFS='|' read -r target says; do \
		printf '  %-13s %s\n' "$$target" "$$says"; done

demo: $(VENV)/.stamp-jit ## a working set four times the memory limit, on the host; ARGS="--limit 16MiB"
	$(VENV)/bin/lifetimes demo $(ARGS)

test: $(VENV)/.stamp-test ## every test that needs nothing but this machine; ARGS="-k name"
	$(PY) -m pytest $(ARGS)

lint: lint-rules lint-format lint-types lint-words ## ruff, mypy --strict, codespell; make -k lint goes on after a finding
lint-rules lint-format lint-types lint-words: $(VENV)/.stamp-lint-test
lint-rules:
	$(PY) -m ruff check .
lint-format:
	$(PY) -m ruff format --check .
lint-types:
	$(PY) -m mypy
lint-words:
	$(PY) -m codespell_lib

bench: $(VENV)/.stamp-bench ## ours against a peer, row by row, each with its bar; BENCH=lifetime runs one file
	$(PY) -m bench $(BENCH)

peer-opencl: $(VENV)/.stamp-test ## PyOpenCL's own tests of its arrays, on memory of ours; ARGS=--quick for half of the time
	@$(PIP) install mako
	$(PY) -m tests.opencl.peer $(ARGS)

docs: $(VENV)/.stamp-docs ## the manual, as pages under build/site
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict --quiet
	@echo "open build/site/index.html"

clean: ## remove what was built, the environment too
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks
	find . -name .git -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

# One stamp a set of extras: .stamp-lint-test stands for `pip install -e .[lint,test]`; a changed pyproject.toml renews it.
$(VENV)/.stamp-core: pyproject.toml $(VENV)/.stamp-venv
	@echo "installing lifetimes into $(VENV)"
	@$(PIP) install -e .
	@touch $@

$(VENV)/.stamp-%: pyproject.toml $(VENV)/.stamp-venv
	@echo "installing lifetimes[$(subst -,$(comma),$*)] into $(VENV)"
	@$(PIP) install -e ".[$(subst -,$(comma),$*)]"
	@touch $@

# Some systems split ensurepip off Python; a pip of the system then puts pip into the environment.  An environment that
# works is kept, one that was left half-made is made anew.
$(VENV)/.stamp-venv:
	@test -n "$(PYTHON)" || { echo "lifetimes needs Python 3.11 or newer and found none under the names: $(NAMES)." \
		"Say where it is: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c '$(NEW_ENOUGH)' || { echo "lifetimes needs Python 3.11 or newer; $(PYTHON) is not" >&2; exit 1; }
	@if $(PY) -c '$(NEW_ENOUGH)' >/dev/null 2>&1 && $(PY) -m pip --version >/dev/null 2>&1; then \
		echo "using the environment in $(VENV)"; \
	elif $(PYTHON) -c 'import ensurepip, venv' >/dev/null 2>&1; then \
		echo "making $(VENV) with $(PYTHON)" && $(PYTHON) -m venv --clear $(VENV); \
	elif $(PYTHON) -c 'import venv; from pip import __version__ as v; exit(tuple(map(int, v.split(".")[:2])) < (22, 3))' >/dev/null 2>&1; \
	then \
		echo "making $(VENV) with $(PYTHON) and its pip" && $(PYTHON) -m venv --clear --without-pip $(VENV) && \
		$(PYTHON) -m pip --disable-pip-version-check --quiet --python $(PY) install pip; \
	else \
		echo "$(PYTHON) can make no virtual environment: it has neither ensurepip nor a pip of 22.3 or newer." \
			"On Debian and Ubuntu install python3-venv, or say make PYTHON=/path/to/another/python3" >&2; exit 1; \
	fi
	@touch $@
