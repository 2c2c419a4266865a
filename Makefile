# The commands a person has to know. Each works on a fresh clone, and is fast when there is nothing to do. `make` alone
# lists them, and those of make/*.mk by subject.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.SUFFIXES:
MAKEFLAGS += --no-builtin-rules --no-print-directory

# The torch that is installed and built for: `TORCH=2.15.0 make setup`, in an environment and a dist/ of its own.
TORCH ?= 2.11.0
OLDEST_TORCH := 2.11
TORCH_MINOR := $(word 1,$(subst ., ,$(TORCH))).$(word 2,$(subst ., ,$(TORCH)))
CONSTRAINTS := requirements/torch-$(TORCH_MINOR).txt
ifeq ($(wildcard $(CONSTRAINTS)),)
$(error TORCH=$(TORCH) is not supported: $(patsubst requirements/torch-%.txt,%,$(sort $(wildcard requirements/torch-*.txt))) are)
endif
VENV ?= .venv$(if $(filter-out $(OLDEST_TORCH),$(TORCH_MINOR)),-torch-$(TORCH_MINOR))
DIST ?= dist$(if $(filter-out $(OLDEST_TORCH),$(TORCH_MINOR)),/torch-$(TORCH_MINOR))
# More arguments for the command behind a target: make demo ARGS="--steps 20".
ARGS ?=

ROOT := $(CURDIR)
PY := $(abspath $(VENV))/bin/python
STAMPS := $(abspath $(VENV))/.flagos
# One at a time, because an environment is not made for two.
PIP = flock "$(abspath $(VENV))" "$(PY)" -m pip

# One interpreter for every build, named the same way each time: the torch shim is compiled once.
export VIRTUAL_ENV := $(abspath $(VENV))
export PYO3_PYTHON := $(PY)
export PATH := $(VIRTUAL_ENV)/bin:$(PATH)
# No test and no demonstration fetches anything.
export HF_HUB_OFFLINE := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1

include $(addprefix make/,environment.mk wheels.mk portable.mk test.mk conformance.mk torches.mk chips.mk fuzz.mk \
  bench.mk gpu.mk lint.mk docs.mk release.mk)

.PHONY: help
help: ## list these commands
	@awk -F ':.*## ' '/^##@ / { printf "\n%s\n", substr($$0, 5) } \
	  /^[a-z0-9-]+:.*## / { printf "  make %-28s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

##@ Every day

# Two at a time: packages are fetched while cargo compiles.
.PHONY: setup setup-dev
setup: ## virtual environment, dependencies, the wheels of flagos and its adapters built and installed
	@"$(MAKE)" -j2 $(PACKAGES:%=$(STAMPS)/%)

setup-dev: ## make setup, the wheels of chips, and the tools for tests and lint
	@"$(MAKE)" -j2 $(PACKAGES:%=$(STAMPS)/%) $(CHIPS:%=$(STAMPS)/flagos-%) $(STAMPS)/requirements-dev

.PHONY: demo
demo: setup ## train a small Qwen3 on device="flagos", let it write, compare with the CPU
	@"$(VENV)/bin/flagos" demo $(ARGS)

.PHONY: demo-ddp
demo-ddp: setup ## the same training by two processes under torchrun, compared with one process
	@"$(PY)" -m torch.distributed.run --nproc-per-node=2 -m torch_fl_cli.demo_ddp $(ARGS)

.PHONY: test test-all
test: ## check that a change is sound: the inner circle of tests, at most 20 minutes
	@begun=$$(date +%s); "$(MAKE)" setup-dev; $(CIRCLES) run --since $$begun $(PARTS)
test-all: ## run every test that needs no accelerator: both circles, about two hours
	@begun=$$(date +%s); "$(MAKE)" setup-dev; $(CIRCLES) run --since $$begun --all

.PHONY: lint
lint: setup-dev $(STAMPS)/bindings ## run rustfmt, clippy, ruff, mypy and clang-format, and accept no warning
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --release --locked -- -D warnings
	"$(PY)" -m ruff check .
	"$(PY)" -m ruff format --check .
	"$(PY)" -m mypy
	"$(VENV)/bin/clang-format" --dry-run -Werror $(CXX_SOURCES)

.PHONY: format
format: setup-dev ## format all sources as `make lint` requires
	cargo fmt --all
	"$(PY)" -m ruff check --fix .
	"$(PY)" -m ruff format .
	"$(VENV)/bin/clang-format" -i $(CXX_SOURCES)

.PHONY: bench
bench: setup ## operator overhead over cpu, allocator, import and start-up times; ARGS=--write saves the report
	"$(PY)" -m tests.bench.overhead $(ARGS)

.PHONY: wheels
wheels: $(DIST)/.flagos $(CHIPS:%=$(DIST)/.flagos-%) $(DIST)/.torch-fl $(DIST)/.torch-fl-tools $(DIST)/.te-fl $(DIST)/.lightx2v-fl $(DIST)/.flagos-serving $(DIST)/.vllm-flagos $(DIST)/.sglang-flagos $(DIST)/.flagos-trainers ## build all wheels into dist/
	@ls -l $(DIST)/*.whl

.PHONY: dist
dist: $(DIST_WHEELS) $(DIST)/.torch-fl-tools $(DIST)/.te-fl $(DIST)/.lightx2v-fl $(DIST)/.flagos-serving $(DIST)/.vllm-flagos $(DIST)/.sglang-flagos $(DIST)/.flagos-trainers ## portable wheels for DIST_PROCESSORS, with shims for DIST_TORCHES, into dist/portable/
	@cp $(DIST)/torch_fl_tools-*.whl $(DIST)/te_fl-*.whl $(DIST)/lightx2v_fl-*.whl $(DIST)/flagos_serving-*.whl $(DIST)/vllm_flagos-*.whl $(DIST)/sglang_flagos-*.whl $(DIST)/flagos_trainers-*.whl $(PORTABLE)
	@ls -l $(PORTABLE)/*.whl

.PHONY: docs
docs: $(STAMPS)/docs ## build the documentation site into site/; RUST=1 adds the reference of Rust
	$(if $(RUST),cargo doc --quiet --no-deps --locked -p flagos-core -p flagos-comm -p flagos-vendor-kit)
	$(MKDOCS) build --quiet --config-file website/mkdocs.yml
	@echo "site/index.html; make docs-serve shows it with its search"

.PHONY: clean
clean: ## remove everything that was built, except the virtual environment
	rm -rf target core/fuzz/target $(DIST) site .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -not -path './$(VENV)/*' -prune -exec rm -rf {} +
