# `make` alone says what there is. Everything lives in .venv; nothing here needs root.
#   PYTHON=python3.12   the Python that .venv is made from
#   ARGS="-k kv -x"     more arguments for pytest; "-n 0": all in one process, as --pdb needs it

PYTHON ?= python3
VENV ?= .venv
ARGS ?=

BIN := $(VENV)/bin
# Two clones of one commit get the same versions: those of the lock, whose files must have its hashes.
LOCK := recipe/locked.txt
LOCK_FOR_DEVELOPMENT := recipe/locked-dev.txt
# Each stamp is a copy of what was installed: as long as it is the same, nothing is installed again
# and no network is needed.
FOR_USE := $(VENV)/installed.toml
FOR_DEVELOPMENT := $(VENV)/installed-dev.toml
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet install

DEBIAN := apt-get install gcc libc6-dev make python3-venv
FEDORA := dnf install gcc make python3

.DEFAULT_GOAL := help
.PHONY: help investigate test test-slow test-numa test-arm test-all fuzz docs lab lint lint-style lint-format lint-types lint-c format reference lock clean compiler

help:
	@echo "make investigate   what is wrong with this machine, if anything?"
	@echo "make test          run the tests (ARGS='-k kv' for some)"
	@echo "make test-slow     run what 'make test' leaves out because it is long"
	@echo "make test-numa     boot guests with 2 and 4 NUMA nodes under qemu and run tests in them"
	@echo "make test-arm      boot an arm64 guest whose processor has counters, and check them in it"
	@echo "make test-all      all of them"
	@echo "make fuzz          fuzz what reads foreign files (FUZZ_S=600: seconds for each reader in C)"
	@echo "make lab           open the notebooks in JupyterLab"
	@echo "make docs          build the site into build/site, from recorded runs: nothing is measured"
	@echo "make lint          check style, types and formatting"
	@echo "make format        bring Python, notebooks and C into their format"
	@echo "make reference     write docs/reference.md and docs/reference from what the experiments declare"
	@echo "make lock          take the newest packages that pyproject.toml admits, with their hashes"
	@echo "make clean         remove .venv and what tools left behind; measured runs stay"

investigate: compiler $(FOR_USE)
	@$(BIN)/perflib investigate

lab: compiler $(FOR_USE)
	@$(BIN)/perflib lab

# In several processes: a file's tests stay together, those of one xdist_group, too.
PYTEST = @$(BIN)/python -m pytest -n auto --dist loadgroup

test: compiler $(FOR_DEVELOPMENT)
	$(PYTEST) -m 'not slow' $(ARGS)

test-slow: compiler $(FOR_DEVELOPMENT)
	$(PYTEST) -m slow $(ARGS)

test-numa: compiler $(FOR_DEVELOPMENT)
	@$(BIN)/python -m pytest -rA tests/numa/boot.py $(ARGS)

test-arm: compiler $(FOR_DEVELOPMENT)
	@$(BIN)/python -m pytest -rA -m "not slow" tests/arm/boot.py $(ARGS)

test-all: test-numa test-arm test-slow test

C_FILES = $(shell find kernels_c tests benchmarks -name '*.c' -o -name '*.h' -o -name '*.inc')

# The readers of foreign files in C under libFuzzer (clang and its libclang-rt), FUZZ_S seconds each;
# then a million mutations for those in Python.
FUZZ_S ?= 600
fuzz: compiler $(FOR_DEVELOPMENT)
	@$(BIN)/python -m tests.fuzz.readers --seconds $(FUZZ_S)
	@$(BIN)/python -m tests.fuzz.mutations --number 1000000

# From the checkout's root: links from documents to code hold. A warning is an error.
docs: $(FOR_DEVELOPMENT)
	$(BIN)/python -m sphinx -W --keep-going -q -j auto -c docs -b html . build/site
	@echo "open build/site/docs/index.html"

lint: lint-style lint-format lint-types lint-c # `make -k lint` goes on after the first complaint

lint-style: $(FOR_DEVELOPMENT)
	$(BIN)/ruff check .

lint-format: $(FOR_DEVELOPMENT)
	$(BIN)/ruff format --check .

lint-types: $(FOR_DEVELOPMENT)
	$(BIN)/mypy

lint-c: $(FOR_DEVELOPMENT)
	$(BIN)/clang-format --dry-run -Werror $(C_FILES)

format: $(FOR_DEVELOPMENT)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(C_FILES)

# By way of a second file: the page stays as it is where the experiments cannot be imported.
reference: $(FOR_USE)
	@$(BIN)/python docs/_ext/reference_pages.py docs

clean:
	rm -rf $(VENV) .nox dist .coverage .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find benchmarks notebooks perflib tests -name __pycache__ -prune -exec rm -rf {} +

compiler:
	@[ -n "$$PERFLIB_CC$$PERFLIB_KERNELS" ] || command -v gcc cc clang > /dev/null || { \
	  echo "No C compiler was found. Install one:"; \
	  echo "  Debian, Ubuntu: $(DEBIAN)"; \
	  echo "  Fedora, RHEL:   $(FEDORA)"; \
	  exit 1; } >&2

# What the lock holds, then perflib itself, which has no hash: what builds it is in the lock.
INSTALL = $(PIP) --require-hashes -r $(1) && $(PIP) --no-deps --no-build-isolation --editable .

$(FOR_USE): pyproject.toml $(LOCK) | $(BIN)/pip
	@cat pyproject.toml $(LOCK) | cmp -s - $@ || { \
	  echo "Installing perflib and what it needs into $(VENV) (once, a minute or two) ..."; \
	  $(call INSTALL,$(LOCK)) && cat pyproject.toml $(LOCK) > $@; }
	@touch $@

$(FOR_DEVELOPMENT): pyproject.toml $(LOCK_FOR_DEVELOPMENT) | $(BIN)/pip
	@cat pyproject.toml $(LOCK_FOR_DEVELOPMENT) | cmp -s - $@ || { \
	  echo "Installing perflib and its development tools into $(VENV) (once, a minute or two) ..."; \
	  $(call INSTALL,$(LOCK_FOR_DEVELOPMENT)) \
	    && cat pyproject.toml $(LOCK) > $(FOR_USE) \
	    && cat pyproject.toml $(LOCK_FOR_DEVELOPMENT) > $@; }
	@touch $@

# The newest versions that pyproject.toml admits, for every Python and processor, with their hashes.
LOCKED = build/uv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
  --no-annotate --no-header --no-emit-index-url pyproject.toml recipe/build.in
lock: | $(BIN)/pip
	@$(PYTHON) -m venv build/uv && build/uv/bin/pip --quiet install uv
	@$(LOCKED) --upgrade --extra dev -o $(LOCK_FOR_DEVELOPMENT)
	@$(LOCKED) --upgrade --extra lab -c $(LOCK_FOR_DEVELOPMENT) -o $(LOCK)

# pip is the last thing that venv makes: an environment without it is not whole.
$(BIN)/pip:
	@command -v $(PYTHON) > /dev/null || { \
	  echo "There is no '$(PYTHON)' on PATH. Install Python:"; \
	  echo "  Debian, Ubuntu: $(DEBIAN)"; \
	  echo "  Fedora, RHEL:   $(FEDORA)"; \
	  exit 1; } >&2
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "'$(PYTHON)' is $$($(PYTHON) --version 2>&1), but perflib needs Python 3.11 or newer."; \
	  echo "If you have one under another name, say so: make PYTHON=python3.12 ..."; \
	  exit 1; } >&2
	@$(PYTHON) -c 'import ensurepip, venv' 2> /dev/null || { \
	  echo "'$(PYTHON)' cannot make a virtual environment (no venv or ensurepip). Install it:"; \
	  echo "  Debian, Ubuntu: $(DEBIAN)"; \
	  exit 1; } >&2
	@$(PYTHON) -m venv $(VENV)
