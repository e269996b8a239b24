# `make demo` and `make test` build what they need in .venv, from nothing but Python and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
READY_DEV := $(VENV)/.ready-dev

# Environments beside .venv, made anew each time.
OLDEST := .venv-oldest
NEWEST := .venv-newest
EMPTY := .venv-empty

.PHONY: browser demo test test-slow test-oldest test-newest wheel docs docs-serve lint lock torture bench bench-data bench-gpu bench-peers format fuzz clean

demo: $(READY)
	$(BIN)/pointdep demo

test: $(READY_DEV) lint browser
	$(BIN)/python -m pytest -q -n 2 --dist worksteal -m "not slow"

# Written to site/, which can be opened without a server.
docs: $(READY_DEV)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

docs-serve: $(READY_DEV)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

# The report page and the documentation are tested in Chromium, got where it can be; without it
# those tests are skipped. It is installed into the system, which is said before.
browser:
	@command -v chromedriver >/dev/null || { test -z "$$NO_BROWSER" && test "$$(id -u)" = 0 \
	  && command -v apt-get >/dev/null && echo "installing chromium and chromium-driver into this" \
	  "system with apt-get, to test the pages (make test NO_BROWSER=1 leaves that out)" \
	  && export DEBIAN_FRONTEND=noninteractive && { timeout 120 apt-get -qq update; \
	  timeout 300 apt-get -qq install -y --no-install-recommends chromium chromium-driver; } \
	  >/dev/null 2>&1; } || echo "no Chromium here: the tests of the pages in it are skipped"

# Damaged files of every format, and damaged models, indices and checkpoints: minutes.
fuzz: $(READY_DEV)
	cd tests && $(CURDIR)/$(BIN)/python -m fuzz $(FUZZ)

test-slow: $(READY_DEV)
	$(BIN)/python -m pytest -q -m slow

# The oldest versions of the main dependencies that are supported; torch is the pinned one. Some of
# them have no wheels for Python 3.13. What builds the documentation, and Ray, are left out; later
# versions of pyparsing warn of what old matplotlib calls.
test-oldest:
	@$(PYTHON) -c "import sys; sys.exit(sys.version_info >= (3, 13))" \
	  || { echo "test-oldest needs Python 3.10, 3.11 or 3.12: make test-oldest PYTHON=python3.12"; exit 1; }
	rm -rf $(OLDEST) && $(PYTHON) -m venv $(OLDEST)
	$(OLDEST)/bin/python -m pip install -q --disable-pip-version-check -c constraints.txt \
	  -c constraints-oldest.txt -e ".[pretrain]" pytest pytest-xdist hypothesis polars "pyparsing<3.3" \
	  pyyaml selenium
	$(OLDEST)/bin/python -m pytest -q -n 2 -m "not slow"

# The newest there are; torch stays the pinned one, because others come with gigabytes of CUDA.
test-newest:
	rm -rf $(NEWEST) && $(PYTHON) -m venv $(NEWEST)
	$(NEWEST)/bin/python -m pip install -q --disable-pip-version-check -U --upgrade-strategy eager \
	  -c constraints.txt -e ".[dev]"
	$(NEWEST)/bin/python -m pytest -q -n 2 -m "not slow"

wheel:
	rm -rf build dist $(EMPTY) && $(PYTHON) -m venv $(EMPTY)
	$(EMPTY)/bin/python -m pip install -q --disable-pip-version-check build
	$(EMPTY)/bin/python -m build --wheel
	rm -rf $(EMPTY) && $(PYTHON) -m venv $(EMPTY)
	$(EMPTY)/bin/python -m pip install -q --disable-pip-version-check -c constraints.txt dist/*.whl
	cd $(EMPTY) && bin/pointdep demo -o demo.html && bin/python ../benchmarks/first_use.py

lint: $(READY_DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(READY_DEV)
	$(BIN)/python benchmarks/replicas.py
	$(BIN)/python benchmarks/gaussians.py
	$(BIN)/python benchmarks/default_critic.py
	$(BIN)/python benchmarks/checks.py
	$(BIN)/python benchmarks/report_page.py
	$(BIN)/python benchmarks/faiss_search.py
	$(BIN)/python benchmarks/audit_speed.py
	$(BIN)/python benchmarks/ray_score.py
	$(BIN)/python benchmarks/adapters.py
	$(BIN)/python benchmarks/adapters_coverage.py
	$(BIN)/python benchmarks/plan.py
	$(BIN)/python benchmarks/coverage.py --jobs 2
	$(BIN)/python benchmarks/coverage.py --jobs 2 --part null
	$(BIN)/python benchmarks/figure1_quick.py

# On a GPU: minutes.
bench-gpu: $(READY_DEV)
	$(BIN)/python benchmarks/figure1_speed.py
	$(BIN)/python benchmarks/figure1_precision.py
	$(BIN)/python benchmarks/drfc_loss.py
	$(BIN)/python benchmarks/simclr_epoch.py
	$(BIN)/python benchmarks/amdim_step.py
	$(BIN)/python benchmarks/plan.py --gpu

# On data of your own copy: make bench-data WORDS=words.npz MNIST=mnist/ (folder of idx.gz files).
bench-data: $(READY_DEV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt cleanlab
	$(BIN)/python benchmarks/retrieval.py --words $(WORDS) --mnist $(MNIST)
	$(BIN)/python benchmarks/planted.py --words $(WORDS) --mnist $(MNIST)
	$(BIN)/python benchmarks/labels.py --mnist $(MNIST)
	$(BIN)/python benchmarks/linear_evaluation.py --mnist $(MNIST)
	for name in A B C; do $(BIN)/python benchmarks/public_mi.py $$name --data $(MNIST); done

# Other libraries, each in an environment of its own, and ours on the same arrays: hours.
bench-peers: $(READY_DEV)
	sh benchmarks/peers/setup.sh
	$(BIN)/python benchmarks/peers/run.py
	$(BIN)/python benchmarks/bmi_tasks.py --rows 10000 1000
	$(BIN)/python benchmarks/peers/compare.py
	benchmarks/peers/envs/bmi/bin/python benchmarks/peers/export_bmi.py --version 2
	$(BIN)/python benchmarks/public_mi.py D --data benchmarks/peers/data/v2 --seeds 0 1 2

format: $(READY_DEV)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e .
	touch $@

$(READY_DEV): pyproject.toml constraints.txt requirements-dev.lock .ci/install
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	.ci/install $(BIN)/python
	touch $(READY) $@

# The versions and hashes of the development environment, for this Python and system.
lock:
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python .ci/lock.py

# Ends processes that write at each of their calls to the file system: minutes, and needs cc.
torture: $(READY_DEV)
	$(BIN)/python tests/torture/sweep.py

clean:
	rm -rf $(VENV) build dist site .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
