# demo, test and check make and fill .venv first, if it is not there or older than what it holds.

VENV := .venv
PYTHON := $(VENV)/bin/python
FILLED := $(VENV)/.filled
# The first of these that suits makes the environment.
WITH := python3 python3.13 python3.12 python3.11
# The files with tests that need a broker or models; to collect the others too takes 9 s a process.
# In this order, not by the number of tests of a file: the longest ones are alone in theirs. Short
# ones fill the end. Three at once, for they wait for half of their time.
MARKED = $(foreach folder,integration contract unit,$(sort \
  $(shell grep -lrE --include='test_*.py' 'mark\.(kafka|models)' tests/$(folder))))
BROKER := "(kafka or models) and not alone and not slow"
# Files of which a run without broker and models selects nothing: they are a sixth of the collecting.
WITHOUT = $(addprefix --ignore=,$(shell \
  grep -lrE --include='test_*.py' '^pytestmark = .*mark\.(kafka|models|interop)' tests))
ALONE = $(sort $(shell grep -lr --include='*.py' pytest.mark.alone tests/integration))
# The processes that tests start would compile Headrace anew each time, and pytest its tests.
unexport PYTHONDONTWRITEBYTECODE
SUITS := import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))

.PHONY: demo test soak interop check pythons types imports docs site reference compiled pure kcat lock clean

demo: $(FILLED)
	$(VENV)/bin/headrace demo $(ARGS)

test: $(FILLED)
	@$(MAKE) --no-print-directory kcat
	$(PYTHON) -m pytest -q -n 3 -m "not kafka and not models and not slow" $(WITHOUT) tests
	@echo "tests with a broker or models, three at a time; then those that run alone"
	@$(PYTHON) -m pytest -q -n 3 --dist loadfile --no-loadscope-reorder -m $(BROKER) $(MARKED) || { \
	  [ $$? = 1 ] || exit 1; \
	  echo "these failed beside other tests; they run again with nothing beside them"; \
	  $(PYTHON) -m pytest -q --last-failed --last-failed-no-failures none -m $(BROKER) $(MARKED); }
	@$(PYTHON) -m pytest -q -m "alone and not slow" $(ALONE)

# What takes minutes: faults by chance, model servers, faults of the dispatcher, compiled
# nodes, a certificate, two pipelines that go up and down, simulations of many policies.
soak: $(FILLED)
	$(PYTHON) -m pytest -q -m "slow and not interop" tests

# Against other projects' clients and servers, each in an environment of its own, since they ask for
# other releases of protobuf and numpy than we do; not part of `make test`. A part whose program this
# machine lacks (go, chromium) fails; HEADRACE_INTEROP_SKIP=1 skips it. The summary names each.
interop: $(FILLED)
	$(PYTHON) -m tests.interop.environments
	$(PYTHON) -m tests.interop.go_programs
	$(PYTHON) -m pytest -q -m interop tests/interop

# Types, imports, the site and, in a fresh clone, the compiling of the tests take one core each: two
# of them at a time, the longest first.
check: $(FILLED)
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	@$(MAKE) --no-print-directory -j 2 types imports site tests/__pycache__
	$(PYTHON) -m pytest -q -n 3 --hypothesis-profile check $(WITHOUT) \
	  -m "not kafka and not models and not compiled and not slow and not thorough" tests

# The same on the newer Pythons that PATH has, each with an environment of its own in build/ (6 GB).
pythons:
	@for name in python3.12 python3.13; do ! command -v $$name >/dev/null || \
	  $(MAKE) --no-print-directory VENV=build/$$name WITH=$$name check || exit 1; done

# Otherwise each of the three processes that run the tests would compile all of them, and collect
# their constants for Hypothesis. Those processes report what is wrong with a test.
tests/__pycache__: | $(FILLED)
	@$(PYTHON) -m pytest -q --collect-only $(WITHOUT) tests >/dev/null || true

types: $(FILLED)
	$(VENV)/bin/mypy

imports: $(FILLED)
	$(VENV)/bin/lint-imports

# The site of docs/, in build/docs, with what docs/reference shows of the code written anew.
docs: reference site

# A link that breaks is an error.
site: $(FILLED)
	$(PYTHON) -m sphinx -q -W --keep-going -b html docs build/docs

reference: $(FILLED)
	PYTHONPATH=. $(PYTHON) docs/generate_reference.py
	PYTHONPATH=. $(PYTHON) docs/generate_monitoring.py

# What a query passes through, compiled next to its source (docs/decisions/0007); needs a C compiler.
compiled: $(FILLED) pure
	HEADRACE_COMPILE=3 $(PYTHON) setup.py --quiet build_ext --inplace

pure:
	rm -rf build/lib.* build/temp.*
	rm -f headrace__mypyc*.so
	find control operators streams -name '*.so' -delete

# An example is written for kcat and tested with it. Only root may install it, and whoever is not
# root is told how; without it that one test fails.
kcat:
	@command -v kcat >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	  echo "installing kcat, for whose example there is a test" && apt-get -qq update && \
	  DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends install kcat \
	  >/dev/null; } || echo "kcat is missing, so the test of its example will fail; install it:" \
	  "apt install kcat, or brew install kcat" >&2

# Of each package one release that suits every Python, where there is one.
LOCKED := --universal --python-version 3.11 --fork-strategy fewest --generate-hashes
lock: $(FILLED)
	echo uv | $(PYTHON) -m uv pip compile $(LOCKED) \
	  --custom-compile-command "make lock" -o requirements-bootstrap.lock -
	$(PYTHON) -m uv pip compile $(LOCKED) --extra dev \
	  --custom-compile-command "make lock" -o requirements.lock pyproject.toml

clean: pure
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis \
	  .import_linter_cache .coverage

# uv installs the 6 GB several times faster than pip does; where it fails (a proxy with a
# certificate of its own, say), pip has the last word. Compiled here once, as pip does, the libraries
# need not be compiled by the first process of each kind, or by every one where Python may not write.
$(FILLED): requirements.lock requirements-bootstrap.lock pyproject.toml
	@$(PYTHON) -c 'import pip; $(SUITS)' 2>/dev/null || { \
	  for name in $(WITH); do \
	    if $$name -c '$(SUITS)' 2>/dev/null; then \
	      echo "making $(VENV) with $$name"; exec $$name -m venv --clear $(VENV); fi; done; \
	  echo "Headrace needs Python 3.11, 3.12 or 3.13, but PATH has none of them as" \
	    "$(WITH); install one and run make again" >&2; exit 1; }
	$(PYTHON) -m pip install --quiet --require-hashes -r requirements-bootstrap.lock
	$(PYTHON) -m uv pip sync --python $(PYTHON) --compile-bytecode --require-hashes \
	  requirements.lock || \
	  $(PYTHON) -m pip install --require-hashes -r requirements.lock
	$(PYTHON) -m pip install --quiet --no-deps --no-build-isolation --editable .
	touch $(FILLED)
