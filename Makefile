# Each target makes the virtual environment that it needs; nothing is installed outside this folder.
#   make demo       validate a published OpenRLHF tree (TREE=path: one of your own)
#   make test       the tests
#   make lint       ruff and mypy
#   make check      the validator on this repository, and generated pages that went stale
#   make slow       the tests that take minutes
#   make benchmark  the validator's speed and memory, into reports/speed.md

SHELL := /bin/bash
PYTHON ?= python3
DEMO := .venv-demo
DEV := .venv
PIP := -m pip --disable-pip-version-check --quiet
CUDA := $(shell nvidia-smi -L 2>/dev/null | head -n 1)
# macOS wheels of torch hold no CUDA; Linux ones do unless the CPU build is asked for by name.
ifeq ($(CUDA)$(shell uname -s),Linux)
CONSTRAINT := constraints/cpu.txt
endif

.PHONY: demo installed test lint format check slow benchmark clean

demo: $(DEMO)/installed
	@tree='$(TREE)'; \
	if [ -n "$$tree" ] && [ ! -d "$$tree" ]; then echo "TREE=$$tree is not a folder" >&2; exit 2; fi; \
	if [ -z "$$tree" ]; then \
	  tree=$$($(DEMO)/bin/python tests/real/wheels.py 0.11.2) && tree="$$tree/openrlhf" \
	  || { echo "taking the small tree of this repository instead" >&2; tree=tests/data/demo; }; \
	fi; \
	echo "validating $$tree"; here=$$PWD; \
	(cd "$$tree" && "$$here/$(DEMO)/bin/meshproof" --isolated --exit-zero .) || exit; \
	echo "More: $(DEMO)/bin/meshproof PATH checks code of yours, $(DEMO)/bin/meshproof --explain CODE explains a rule."

installed: $(DEV)/installed

test: $(DEV)/installed
	$(DEV)/bin/python -m pytest $(ARGS)

lint: $(DEV)/installed
	$(DEV)/bin/ruff check .
	$(DEV)/bin/ruff format --check .
	$(DEV)/bin/mypy

format: $(DEV)/installed
	$(DEV)/bin/ruff check --fix-only .
	$(DEV)/bin/ruff format .

check: $(DEV)/installed
	$(DEV)/bin/python -m validator .
	$(DEV)/bin/python -m validator.docs --check
	$(DEV)/bin/python -m rules.constraints.page --check

slow: $(DEV)/installed
	$(DEV)/bin/python -m pytest -m slow $(ARGS)

benchmark: $(DEV)/installed
	$(DEV)/bin/python tests/benchmarks/validator_speed.py --report reports/speed.md $(ARGS)

clean:
	rm -rf $(DEV) $(DEMO) build dist

$(DEMO)/installed: pyproject.toml
	$(PYTHON) -m venv $(DEMO)
	$(DEMO)/bin/python $(PIP) install --editable .
	@touch $@

$(DEV)/installed: pyproject.toml $(CONSTRAINT)
	$(PYTHON) -m venv $(DEV)
	$(DEV)/bin/python $(PIP) install --editable '.[bench,dev]' $(if $(CONSTRAINT),--constraint $(CONSTRAINT)) \
	  || { echo "The installation failed. Without a GPU torch's CPU build is needed: where pip's sources do not" \
	       "hold it, set PIP_EXTRA_INDEX_URL to PyTorch's index of CPU wheels and try again." >&2; exit 1; }
	@for extra in ray trackers; do $(DEV)/bin/python $(PIP) install --editable ".[$$extra]" \
	  || echo "no $$extra for this Python: its tests will be skipped" >&2; done
	@touch $@
