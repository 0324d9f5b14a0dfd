# Two commands on a fresh machine: `make demo` and `make test`. Each makes .venv and installs what it needs.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed

# Where it is set, each of the hundreds of processes that tests start compiles all of elf.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test long check pytest docs lock install java wheel deb clean

demo: install java
	$(BIN)/elf demo

test: check pytest

# In five processes on two cores, since some tests wait; what takes longest begins first (tests/conftest.py).
pytest: install java
	$(BIN)/python -m pytest -q -n 5 --no-loadscope-reorder tests

# The same with many more random cases, for hours.
long: install java
	ELF_TEST_LONG=1 ELF_TEST_SEEDS=20 $(BIN)/python -m pytest -q -n 4 --no-loadscope-reorder --timeout 3600 \
		--replica-seeds 5000 --ql-rows 5000 tests

check: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo 2>/dev/null || $(BIN)/lint-imports

docs: install
	$(BIN)/python -m lab.reference
	$(BIN)/python -m lab.formats

# The versions, and the hashes of all files of each, that are installed; uv is in an environment of its own.
LOCK := .venv-lock/bin/uv pip compile --quiet --generate-hashes --universal --python-version 3.11 --no-header \
	--no-annotate --no-emit-index-url
lock:
	@$(PYTHON) -m venv .venv-lock && .venv-lock/bin/python -m pip install --quiet --disable-pip-version-check uv
	$(LOCK) --upgrade --extra spark --extra dev pyproject.toml --output-file deploy/requirements.lock
	sed '/^ /d; s/ *\\$$//' deploy/requirements.lock | \
		$(LOCK) --constraint - pyproject.toml --output-file deploy/runtime.lock
	echo 'setuptools>=77' | $(LOCK) --upgrade - --output-file deploy/build.lock
	echo 'ziglang>=0.13' | $(LOCK) --upgrade - --output-file deploy/compiler.lock

install: $(INSTALLED)

$(INSTALLED): pyproject.toml $(wildcard deploy/*.lock elf/native/*.[ch])
	@$(PYTHON) -c 'import sys; sys.exit("elf needs Python 3.11 or newer") if sys.version_info < (3, 11) else None'
	@$(PYTHON) -m venv .venv || { echo "elf needs the venv module: install your distribution's python3-venv" >&2; exit 1; }
	@sh deploy/install.sh $(BIN)/python
	@touch $@

# A wheel for this Python, in dist; what is installed beside it is in deploy/runtime.lock.
wheel:
	rm -rf build/lib* build/bdist*
	$(PYTHON) -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .

# A package for Debian and its kin, in dist.
deb:
	@sh deploy/deb.sh dist

java:
	@sh deploy/java.sh

clean:
	rm -rf .venv .venv-lock build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
