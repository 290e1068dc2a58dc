# Forward, Twice. Written for GNU make 3.81 (macOS ships no newer one) and sh.
PYTHON  ?= python3
PORT    ?= 8888
ONLY    ?=
PAGE    ?=
TIMEOUT ?= 180
WORKERS ?= 2
SELECT  ?=

TORCH := 2.13.0
PY    := .venv/bin/python

# A thread that waits yields its core instead of spinning: on a shared machine the notebooks run
# three times as fast, and compute the same.
export OMP_WAIT_POLICY := PASSIVE

.PHONY: help setup lab test lint unit learner solved browser notebooks studies matrix bench times workshop-check gpu-check reset pictures lock

help:
	@echo "make lab        install into .venv (once) and open JupyterLab on the first lesson"
	@echo "make test       run every check: lint, unit tests, all notebooks, browser tests"
	@echo "make notebooks  rebuild the notebooks from notebooks/source (ONLY=01 for one; TIMEOUT=180 seconds each)"
	@echo "make studies    train what lessons 04 and 05 show (many minutes; goes on where it was stopped)"
	@echo "make matrix     the checks under every torch, Python, thread count and CPU kernels (hours; goes on where it"
	@echo "                was stopped; SELECT='--torch 2.6.0 --threads 1' for a part, SELECT=--help for more)"
	@echo "make bench      measure what the lab's tools cost"
	@echo "make times      measure how long each notebook runs, and write it into notebooks/workshop.md (many minutes)"
	@echo "make workshop-check  is this machine ready to teach on? One page (ONLY=01 for one lesson; PAGE=file keeps it)"
	@echo "make gpu-check  does the lab hold on this machine's GPU? One page, a few minutes (ONLY=01 for one lesson)"
	@echo "make reset      take the lessons back to unsolved; what you wrote is kept in notebooks/my (ONLY=01 for one)"
	@echo "make lock       resolve requirements.lock anew (needs uv)"
	@echo "make pictures   photograph lesson 02's panel for the README (needs Chromium or Chrome)"
	@echo "Settings: PYTHON=python3.12 (3.11 to 3.14), PORT=8888, WORKERS=2 (tests side by side)"

setup:
	@sh tools/setup.sh "$(PYTHON)" $(TORCH)

# JupyterLab refuses to run as root unless told (containers), and would take
# another port than the one asked for without a word.
lab: setup
	@$(PY) tools/port.py "$(PORT)"
	@$(PY) -m jupyterlab --ServerApp.ip=127.0.0.1 --ServerApp.port=$(PORT) \
	    --ServerApp.port_retries=0 $$([ "$$(id -u)" != 0 ] || echo --allow-root) \
	    notebooks/00_start_here.ipynb

test: lint unit learner solved browser

lint: setup
	@$(PY) -m ruff check .

unit: setup
	@OMP_NUM_THREADS=4 $(PY) -m pytest -q -n $(WORKERS) --dist loadfile tests --ignore=tests/browser

# The fast part of the matrix (tools/matrix has all of it): what is stored must hold whatever the thread count and the
# CPU kernels are, so the three runs differ in both. One thread and torch's plain kernels; two and AVX2; the unit tests
# with four and the best that the processor has. A CPU without AVX2 must not be told to use it (torch would obey), so
# it runs the plain kernels twice. Each notebook has two rounds in one kernel, one of them in a random order: see
# tests/second_round.py.
NBVAL := -m pytest -q -n $(WORKERS) --dist loadfile -p no:cacheprovider -p second_round \
    --nbval --nbval-current-env --nbval-cell-timeout=120
unit learner solved: export MKL_DYNAMIC := FALSE # else MKL holds torch to as many threads as there are cores
learner solved: export PYTHONPATH := tests$(if $(PYTHONPATH),:$(PYTHONPATH))

learner: setup
	@OMP_NUM_THREADS=1 ATEN_CPU_CAPABILITY=default $(PY) $(NBVAL) --orders=in-order,shuffled notebooks/*.ipynb

solved: setup
	@OMP_NUM_THREADS=2 ATEN_CPU_CAPABILITY=$$($(PY) -c 'import torch; print("avx2" if \
	    torch.backends.cpu.get_cpu_capability().startswith("AVX") else "default")') \
	    $(PY) $(NBVAL) --orders=shuffled,in-order notebooks/solutions/*.ipynb

# REQUIRE_BROWSER=1 makes a missing browser a failure: the tests then run and say so.
browser: setup
	@if [ -n "$$REQUIRE_BROWSER" ] || $(PY) tests/browser/chromium.py >/dev/null; then \
	    $(PY) -m pytest -q -n $(WORKERS) --dist loadfile tests/browser; \
	else \
	    echo "Browser tests skipped: install Chromium or Chrome, or name one with CHROME=/path/to/it."; \
	fi

# What is stored and compared does not depend on anybody's own progress.
unit learner solved notebooks: export FORWARD_TWICE_PROGRESS := off

notebooks: setup
	@$(PY) notebooks/build.py --timeout $(TIMEOUT) $(if $(ONLY),--only $(ONLY))

studies: setup
	@PYTHONPATH=notebooks $(PY) notebooks/studies/dropout.py
	@PYTHONPATH=notebooks $(PY) notebooks/studies/batchnorm.py

# Gigabytes for each Python and torch, once; what has passed is not run again.
matrix: setup
	@$(PY) tools/matrix --jobs $(WORKERS) $(SELECT)

bench: setup
	@$(PY) tests/bench.py
	@PYTHONPATH=notebooks $(PY) tests/browser/bench.py
	@$(PY) tools/run_times.py

times: setup
	@$(PY) tools/run_times.py --rounds 3 --write

workshop-check: setup
	@$(PY) tools/workshop_check.py --port "$(PORT)" --jobs $(WORKERS) \
	    $(if $(ONLY),--pattern '$(ONLY)*') $(if $(PAGE),--page '$(PAGE)')

gpu-check: setup
	@$(PY) tools/gpu_check.py --jobs $(WORKERS) $(if $(ONLY),--pattern '$(ONLY)*')

reset: setup
	@$(PY) tools/reset.py $(if $(ONLY),--only '$(ONLY)')

# One version of each package for all Pythons and platforms. What torch brings
# for NVIDIA GPUs is left out of the lock: torch pins that itself, where it needs it.
lock:
	@command -v uv >/dev/null || { echo "make lock needs uv: install it with 'pip install uv'." >&2; exit 1; }
	@printf 'torch==$(TORCH)\nhatchling\neditables\n' | \
	    uv pip compile --quiet --no-header --no-annotate --universal --fork-strategy fewest \
	    --python-version 3.11 --extra dev --extra models pyproject.toml - > requirements.lock.new
	@{ echo "# Every package of the lab, pinned. Written by 'make lock' from pyproject.toml: not by hand."; \
	   grep -vE '^(nvidia|cuda|triton)' requirements.lock.new; } > requirements.lock
	@rm requirements.lock.new

pictures: setup
	@$(PY) tools/picture_panel.py
