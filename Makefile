# make demo and make test set everything up themselves; see README.md.
PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed

.PHONY: setup demo test soak check fix bench bench-quick docs site clean
.DELETE_ON_ERROR:

setup: $(STAMP)

# A virtual environment that is missing, half-made or broken is made anew; one that is merely old is brought up to date.
$(STAMP): pyproject.toml constraints.txt $(if $(shell $(PY) -c 'import hcarec' 2>/dev/null && echo ok),,FORCE)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "hcarec needs Python 3.11 or newer; give one with make PYTHON=/path/to/python3"; exit 1; }
	@echo "setting up $(VENV) (a few minutes, once)"
	@$(PY) -c 'import pip' 2>/dev/null || $(PYTHON) -m venv --clear $(VENV)
	@$(PY) -m pip install -qq --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

FORCE:

demo: setup
	@$(PY) -m hcarec demo

test: setup
	$(PY) -m pytest -n auto -m 'not soak'

soak: setup
	$(PY) -m pytest -n 2 --dist worksteal -m 'soak and not alone'
	$(PY) -m pytest -m 'soak and alone'

check: setup
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	$(PY) -m pytest -q tests/test_architecture.py

fix: setup
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

BENCHMARKS = $(filter-out $(addprefix benchmarks/,fine_tuning.py kernels_gpu_hca.py kernels_gpu_loss.py kernels_gpu_rank.py machine.py open_loop.py peer.py planned_runs.py quiet.py recipe_trials.py serve_floors.py),$(wildcard benchmarks/*.py))

bench: setup
	for each in $(BENCHMARKS); do $(PY) $$each --output benchmarks/results/$$(basename $$each .py).json || exit 1; done

bench-quick: setup
	for each in $(BENCHMARKS); do $(PY) $$each --quick || exit 1; done

docs: setup
	$(PY) docs/make_commands.py
	$(PY) docs/make_python.py
	$(PY) docs/make_http.py
	$(PY) docs/make_benchmarks.py
	$(PY) docs/make_exploration.py
	$(PY) docs/make_reliability.py
	$(PY) docs/make_drawings.py
	$(PY) docs/make_parts.py
	$(PY) docs/make_tutorial.py

# A broken link or a page that is missing ends it.
site: setup
	$(PY) docs/make_site.py

clean:
	rm -rf $(VENV) build dist site .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis
