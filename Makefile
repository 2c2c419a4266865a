# The commands a person has to know; `make` alone lists them. Each works on a fresh clone, and is
# fast when there is nothing to do.
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

# What each wheel is built from. Folders count too, so that a deleted file is noticed.
find_sources = $(shell find $(1) -not -path '*/__pycache__*' -not -name '*.so' 2>/dev/null | sort)
CORE_SOURCES := Cargo.toml Cargo.lock $(call find_sources,core/Cargo.toml core/build.rs core/src core/include) \
  $(call find_sources,$(addprefix core/vendors/kit/,Cargo.toml src))
FLAGOS_SOURCES := $(CORE_SOURCES) $(call find_sources,$(addprefix core/vendors/cuda/,Cargo.toml src)) \
  $(call find_sources,comm/Cargo.toml comm/src adapters/te/Cargo.toml adapters/te/src) \
  $(call find_sources,python/Cargo.toml python/module python/pyproject.toml python/README.md python/src python/flagos)
# The shim knows the core by its C headers alone.
SHIM_SOURCES := adapters/torch/shim.mk $(call find_sources,core/include comm/include adapters/torch/csrc)
TORCH_WHEEL_SOURCES := Cargo.toml Cargo.lock \
  $(call find_sources,$(addprefix adapters/torch/,add_shims.py Cargo.toml pyproject.toml README.md src python))
TOOLS_SOURCES := $(call find_sources,$(addprefix adapters/torch-tools/,pyproject.toml README.md python))
LIGHTX2V_SOURCES := $(call find_sources,$(addprefix adapters/lightx2v/,pyproject.toml README.md python))

VLLM_SOURCES := $(call find_sources,$(addprefix adapters/vllm/,pyproject.toml README.md python))

# Each a library with its manifest.
CHIPS := ascend metax
chip_sources = $(CORE_SOURCES) core/vendors/kit/vendor_wheel.py \
  $(call find_sources,$(addprefix core/vendors/$(1)/,Cargo.toml src pyproject.toml setup.py README.md python))

# Python alone: its Rust is linked into flagos.
TE_SOURCES := $(call find_sources,$(addprefix adapters/te/,pyproject.toml README.md python))

.PHONY: help
help: ## list these commands
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-28s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# ---------------------------------------------------------------------------------------- set-up

# Prints the first Python that starts, is of a supported version, and can make a virtual
# environment. A pyenv shim exists for versions that are not selected and then only prints an error,
# so each candidate is tried.
define find_python
for version in 3.12 3.13 3.14 3.11 3.10; do
  for candidate in "python$$version" \
      "$${PYENV_ROOT:-$$HOME/.pyenv}"/versions/"$$version".*/bin/python; do
    if "$$candidate" -c "import sys, venv, ensurepip; sys.exit('%d.%d' % sys.version_info[:2] != '$$version')" \
        >/dev/null 2>&1; then
      echo "$$candidate"; exit 0
    fi
  done
done
echo "No Python 3.10-3.14 with venv was found on PATH or under pyenv." \
     "Install one (on Debian: apt-get install python3 python3-venv), or name it: make setup PYTHON=..." >&2
exit 1
endef
export find_python

define require_build_tools
for tool in cargo g++; do
  command -v "$$tool" >/dev/null || {
    echo "$$tool was not found on PATH: building flagos needs a Rust toolchain (cargo) and a C++20 compiler (g++ 11)" >&2
    exit 1; }
done
endef
export require_build_tools

# Two at a time: packages are fetched while cargo compiles.
.PHONY: setup
setup: ## virtual environment, dependencies, all wheels built and installed
	@"$(MAKE)" -j2 $(STAMPS)/torch-fl $(STAMPS)/torch-fl-tools $(STAMPS)/te-fl $(STAMPS)/lightx2v-fl $(STAMPS)/vllm-flagos

.PHONY: setup-dev
setup-dev: ## the same, and what tests and lint need
	@"$(MAKE)" -j2 $(STAMPS)/torch-fl $(STAMPS)/torch-fl-tools $(STAMPS)/te-fl $(STAMPS)/lightx2v-fl $(STAMPS)/vllm-flagos $(CHIPS:%=$(STAMPS)/flagos-%) $(STAMPS)/requirements-dev

# The environment may exist already: then it is used as it is.
$(STAMPS)/venv:
	@bash -euo pipefail -c "$$require_build_tools"
	@if [ ! -x "$(PY)" ]; then \
	  python="$(PYTHON)"; \
	  [ -n "$$python" ] || python="$$(bash -c "$$find_python")"; \
	  echo "virtual environment $(VENV) from $$("$$python" --version)"; \
	  env -u VIRTUAL_ENV "$$python" -m venv "$(VENV)"; \
	fi
	@mkdir -p "$(STAMPS)" && touch "$@"

# An environment changes its torch when another one is asked for.
$(STAMPS)/torch-$(TORCH_MINOR): $(STAMPS)/venv
	@rm -f "$(STAMPS)"/torch-[0-9]* && touch "$@"

# The one package that cargo's part of a build needs, before all others.
$(STAMPS)/maturin: requirements/base.txt $(STAMPS)/venv
	$(PIP) install --quiet "$$(grep ^maturin== requirements/base.txt)"
	@touch "$@"

$(STAMPS)/requirements: requirements/base.txt $(CONSTRAINTS) $(STAMPS)/torch-$(TORCH_MINOR)
	$(PIP) install --quiet -r requirements/base.txt -c $(CONSTRAINTS)
	@touch "$@"

$(STAMPS)/requirements-dev: requirements/dev.txt $(STAMPS)/requirements
	$(PIP) install --quiet -r requirements/dev.txt -c $(CONSTRAINTS)
	@touch "$@"

# In a folder of its own, so that everything else is tested without FlagGems.
FLAGGEMS := $(abspath $(VENV))/flaggems
$(STAMPS)/flaggems: requirements/flaggems.txt $(STAMPS)/requirements
	@rm -rf "$(FLAGGEMS)"
	$(PIP) install --quiet --no-deps --target "$(FLAGGEMS)" -r requirements/flaggems.txt
	@touch "$@"

# Built from its sources without kernels: pip would fetch its wheel for CUDA otherwise. The variable for the version makes
# it the one that pip asked for; the build's own needs are in a folder beside it. Each release is for one torch.
VLLM := $(abspath $(VENV))/vllm
VLLM_REQUIREMENTS := $(wildcard requirements/vllm-torch-$(TORCH_MINOR).txt)
TORCHES_OF_VLLM = $(patsubst requirements/vllm-torch-%.txt,TORCH=%,$(wildcard requirements/vllm-torch-*.txt))
$(STAMPS)/vllm: $(VLLM_REQUIREMENTS) requirements/vllm.txt requirements/vllm-build.txt $(STAMPS)/requirements
	@[ -n "$(VLLM_REQUIREMENTS)" ] || { \
	  echo "no release of vLLM that flagos serves is for torch $(TORCH_MINOR): these have one: $(TORCHES_OF_VLLM)" >&2; exit 1; }
	@rm -rf "$(VLLM)" "$(VLLM)-build"
	$(PIP) install --quiet --no-deps --target "$(VLLM)-build" -r requirements/vllm-build.txt
	PYTHONPATH="$(VLLM)-build" VLLM_TARGET_DEVICE=empty VLLM_VERSION_OVERRIDE="$$(sed -n 's/^vllm==//p' $(VLLM_REQUIREMENTS))" \
	  $(PIP) install --quiet --no-deps --no-build-isolation --no-binary vllm --target "$(VLLM)" -r $(VLLM_REQUIREMENTS)
	@rm -rf "$(VLLM)-build"
	@touch "$@"

# Never in the environment: it has the same files as `triton`. The tests run it in a Python 3.11, and say if there is none.
ASCEND_TRITON := $(abspath $(VENV))/ascend-triton
$(STAMPS)/ascend-triton: requirements/ascend-triton.txt $(STAMPS)/requirements
	@rm -rf "$(ASCEND_TRITON)"
	$(PIP) install --quiet --no-deps --target "$(ASCEND_TRITON)" --python-version 3.11 --only-binary=:all: \
	  -r requirements/ascend-triton.txt
	@touch "$@"

# torch's libraries stay outside the wheel: `--auditwheel skip` keeps maturin from copying them in.
define build_wheel
@rm -f $(DIST)/$(2)-*.whl
"$(PY)" -m maturin build --release --locked --auditwheel skip --interpreter "$(PY)" \
  --manifest-path $(1)/Cargo.toml --out $(DIST)
@touch "$@"
endef
define install_wheel
$(PIP) install --quiet --force-reinstall --no-deps $(DIST)/$(1)-*.whl
@touch "$@"
endef

$(DIST)/.flagos: $(FLAGOS_SOURCES) | $(STAMPS)/maturin
	$(call build_wheel,python/module,flagos)

# The shim is compiled against the environment's torch, which is found without an import: that would load this very
# extension if it is installed. Objects are kept, for each version of torch.
SHIMS := $(CURDIR)/target/shims
NATIVE_SHIMS := $(SHIMS)/$(shell uname -m)
FIND_TORCH := "$(PY)" -c 'import importlib.util as u, os; print(os.path.dirname(u.find_spec("torch").origin))'
make_shim = MAKEFLAGS= "$(MAKE)" --no-print-directory -s -j "$$(nproc)" -f adapters/torch/shim.mk TORCH="$$($(FIND_TORCH))" OUT=$(NATIVE_SHIMS)

# All of the wheel but the shim, which is the only part that has to wait for torch.
$(DIST)/.torch-fl-without-shim: $(TORCH_WHEEL_SOURCES) | $(STAMPS)/maturin
	$(call build_wheel,adapters/torch,torch_fl)

$(DIST)/.torch-fl: $(DIST)/.torch-fl-without-shim $(SHIM_SOURCES) $(STAMPS)/torch-$(TORCH_MINOR) | $(STAMPS)/requirements
	$(make_shim)
	"$(PY)" adapters/torch/add_shims.py $(DIST)/torch_fl-*.whl $(NATIVE_SHIMS)/torch_$(subst .,_,$(TORCH_MINOR)).so
	@touch "$@"

$(DIST)/.te-fl: $(TE_SOURCES) | $(STAMPS)/requirements
	@rm -f $(DIST)/te_fl-*.whl
	"$(PY)" -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir $(DIST) adapters/te
	@rm -rf adapters/te/build adapters/te/python/te_fl.egg-info
	@touch "$@"

# Python alone: nothing to compile.
$(DIST)/.torch-fl-tools: $(TOOLS_SOURCES) | $(STAMPS)/requirements
	@rm -f $(DIST)/torch_fl_tools-*.whl && mkdir -p $(DIST)
	"$(PY)" -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir $(DIST) adapters/torch-tools
	@rm -rf adapters/torch-tools/build adapters/torch-tools/python/*.egg-info
	@touch "$@"

# Python alone, too.
$(DIST)/.lightx2v-fl: $(LIGHTX2V_SOURCES) | $(STAMPS)/requirements
	@rm -f $(DIST)/lightx2v_fl-*.whl && mkdir -p $(DIST)
	"$(PY)" -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir $(DIST) adapters/lightx2v
	@rm -rf adapters/lightx2v/build adapters/lightx2v/python/*.egg-info
	@touch "$@"

$(DIST)/.vllm-flagos: $(VLLM_SOURCES) | $(STAMPS)/requirements
	@rm -f $(DIST)/vllm_flagos-*.whl && mkdir -p $(DIST)
	"$(PY)" -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir $(DIST) adapters/vllm
	@rm -rf adapters/vllm/build adapters/vllm/python/*.egg-info
	@touch "$@"

# The wheel of a chip: into this folder, and with what cargo is to make it of.
define chip_wheel
@rm -f $(2)/flagos_$(1)-*$(3)*.whl && mkdir -p $(2)
$(4) "$(PY)" -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir $(2) core/vendors/$(1)
@rm -rf core/vendors/$(1)/build core/vendors/$(1)/python/*.egg-info
endef
define rules_of_chip
$(DIST)/.flagos-$(1): $(call chip_sources,$(1)) | $(STAMPS)/requirements
	$$(call chip_wheel,$(1),$(DIST))
	@touch "$$@"
$(STAMPS)/flagos-$(1): $(DIST)/.flagos-$(1) $(STAMPS)/flagos
	$$(call install_wheel,flagos_$(1))
endef
$(foreach chip,$(CHIPS),$(eval $(call rules_of_chip,$(chip))))

$(STAMPS)/flagos: $(DIST)/.flagos $(STAMPS)/requirements
	$(call install_wheel,flagos)

$(STAMPS)/torch-fl: $(DIST)/.torch-fl $(STAMPS)/flagos
	$(call install_wheel,torch_fl)

$(STAMPS)/torch-fl-tools: $(DIST)/.torch-fl-tools $(STAMPS)/torch-fl
	$(call install_wheel,torch_fl_tools)

$(STAMPS)/te-fl: $(DIST)/.te-fl $(STAMPS)/flagos
	$(call install_wheel,te_fl)

$(STAMPS)/lightx2v-fl: $(DIST)/.lightx2v-fl $(STAMPS)/torch-fl
	$(call install_wheel,lightx2v_fl)

$(STAMPS)/vllm-flagos: $(DIST)/.vllm-flagos $(STAMPS)/torch-fl
	$(call install_wheel,vllm_flagos)

.PHONY: wheels
wheels: $(DIST)/.flagos $(CHIPS:%=$(DIST)/.flagos-%) $(DIST)/.torch-fl $(DIST)/.torch-fl-tools $(DIST)/.te-fl $(DIST)/.lightx2v-fl $(DIST)/.vllm-flagos ## build all wheels into dist/
	@ls -l $(DIST)/*.whl

# ---------------------------------------------------------------------------- for other machines

# Wheels for every machine of a processor with glibc 2.28 or newer, with a shim for each torch. zig links, because it has
# the stubs of that glibc; the shims for another processor need its g++ (on Debian: apt-get install g++-aarch64-linux-gnu).
DIST_PROCESSORS ?= x86_64 aarch64
TORCHES := $(patsubst requirements/torch-%.txt,%,$(sort $(wildcard requirements/torch-*.txt)))
DIST_TORCHES ?= $(TORCHES)
PORTABLE := $(DIST)/portable
DIST_TOOLS := $(abspath target/dist-tools)
torch_of = target/torches/$(1)/$(2)/torch
shim_of = $(SHIMS)/$(1)/portable/torch_$(subst .,_,$(2)).so

$(DIST_TOOLS)/.installed: requirements/dist.txt | $(STAMPS)/requirements
	"$(PY)" -m pip install --quiet --upgrade --target $(DIST_TOOLS) -r requirements/dist.txt
	@touch "$@"

define rules_of_shim
$(call torch_of,$(1),$(2)): requirements/torch-$(2).txt | $(STAMPS)/requirements
	"$(PY)" adapters/torch/fetch_torch.py "$$$$(grep ^torch== $$<)" $(1) $$(@D)
	@touch "$$@"
$(call shim_of,$(1),$(2)): $(SHIM_SOURCES) adapters/torch/portable/glibc_2_28.cc $(call torch_of,$(1),$(2)) | $(DIST_TOOLS)/.installed
	PYTHONPATH=$(DIST_TOOLS) "$(MAKE)" -s -j "$$$$(nproc)" -f adapters/torch/shim.mk TORCH=$(call torch_of,$(1),$(2)) \
	  OUT=$(SHIMS)/$(1) PORTABLE=$(1) ZIG='"$(PY)" -m ziglang' CXX="$(if $(filter-out $(shell uname -m),$(1)),$(1)-linux-gnu-)g++"
endef
$(foreach processor,$(DIST_PROCESSORS),$(foreach minor,$(DIST_TORCHES),$(eval $(call rules_of_shim,$(processor),$(minor)))))

# auditwheel knows by name the platforms of this processor alone, so it finds the platform itself: it adds a newer one to
# the name of a wheel that needs newer symbols. torch's own libraries are those of the torch that is installed.
define portable_wheel
@rm -rf $(PORTABLE)/$(1) && mkdir -p $(PORTABLE)/$(1)
for project in python/module adapters/torch; do \
  PYTHONPATH=$(DIST_TOOLS) "$(PY)" -m maturin build --release --locked --zig --target $(1)-unknown-linux-gnu \
    --compatibility manylinux_2_28 --manifest-path $$project/Cargo.toml --out $(PORTABLE)/$(1); \
done
$(foreach chip,$(CHIPS),$(call chip_wheel,$(chip),$(PORTABLE)/$(1),,PYTHONPATH=$(DIST_TOOLS) \
  CARGO_BUILD="$(DIST_TOOLS)/bin/cargo-zigbuild zigbuild" CARGO_BUILD_TARGET=$(1)-unknown-linux-gnu.2.28)
)
"$(PY)" adapters/torch/add_shims.py $(PORTABLE)/$(1)/torch_fl-*.whl $(foreach minor,$(DIST_TORCHES),$(call shim_of,$(1),$(minor)))
@rm -f $(PORTABLE)/*_$(1).whl
for wheel in $(PORTABLE)/$(1)/*.whl; do \
  PYTHONPATH=$(DIST_TOOLS) PATH="$(DIST_TOOLS)/bin:$$PATH" "$(PY)" -m auditwheel repair --plat auto \
    --exclude 'libtorch*' --exclude 'libc10*' --wheel-dir $(PORTABLE) $$wheel; \
  [ -f "$(PORTABLE)/$${wheel##*/}" ] || { \
    echo "$${wheel##*/} needs a newer system than manylinux_2_28: see '$(PY) -m auditwheel show $$wheel'" >&2; exit 1; }; \
done
@rm -r $(PORTABLE)/$(1)
endef

DIST_WHEELS := $(foreach processor,$(DIST_PROCESSORS),$(PORTABLE)/.$(processor))
$(DIST_WHEELS): $(PORTABLE)/.%: $(FLAGOS_SOURCES) $(TORCH_WHEEL_SOURCES) $(foreach chip,$(CHIPS),$(call chip_sources,$(chip))) | $(DIST_TOOLS)/.installed
	$(call portable_wheel,$*)
	@touch "$@"
$(foreach processor,$(DIST_PROCESSORS),$(eval $(PORTABLE)/.$(processor): \
  $(foreach minor,$(DIST_TORCHES),$(call shim_of,$(processor),$(minor)))))

.PHONY: dist
dist: $(DIST_WHEELS) $(DIST)/.torch-fl-tools $(DIST)/.te-fl $(DIST)/.lightx2v-fl $(DIST)/.vllm-flagos ## portable wheels for DIST_PROCESSORS, with shims for DIST_TORCHES, into dist/portable/
	@cp $(DIST)/torch_fl_tools-*.whl $(DIST)/te_fl-*.whl $(DIST)/lightx2v_fl-*.whl $(DIST)/vllm_flagos-*.whl $(PORTABLE)
	@ls -l $(PORTABLE)/*.whl

# Another processor is emulated by qemu, as a user's machine; torch's wheel and what it needs are some 4 GB for each torch.
SMOKE_TORCHES ?= $(DIST_TORCHES)
.PHONY: dist-smoke
dist-smoke: | $(STAMPS)/requirements ## dist/portable's wheels on an emulated aarch64, with SMOKE_TORCHES: import, core, training steps
	"$(PY)" -m tests.emulated $(SMOKE_TORCHES) --wheels $(PORTABLE) $(ARGS)

# ------------------------------------------------------------------------------------------- run

.PHONY: demo
demo: setup ## train a small Qwen3 on device="flagos", let it write, compare with the CPU
	@"$(VENV)/bin/flagos" demo $(ARGS)

.PHONY: demo-ddp
demo-ddp: setup ## the same training by two processes under torchrun, compared with one process
	@"$(PY)" -m torch.distributed.run --nproc-per-node=2 -m torch_fl_cli.demo_ddp $(ARGS)

include make/test.mk
include make/docs.mk
include make/release.mk

# ------------------------------------------------------------------------- on an NVIDIA machine

# Such a machine needs no cargo: what is built elsewhere is carried there in dist/, and put into an environment of its
# own, which finds the packages of the interpreter too. That interpreter has a CUDA build of torch 2.11.
GPU_PYTHON ?= $(if $(wildcard $(PY)),$(PY),python3)
GPU_SITE := $(abspath $(DIST))/site
GPU_RUN := "$(GPU_SITE)/bin/python"
GPU_WHEELS := $(addprefix $(DIST)/,$(addsuffix -*.whl,flagos flagos_metax torch_fl torch_fl_tools te_fl lightx2v_fl vllm_flagos))
CORE_CUDA_TESTS := $(DIST)/vendor_conformance_cuda
# Opened by the program, from beside it.
EXPORTED_CUDA := $(addprefix $(DIST)/libflagos_,exported_cuda.so cudalib.so)
# Where the report of `make gpu-bench` goes.
GPU_REPORTS ?= docs/benchmarks
# Processes of the conformance sweep that share the device.
GPU_JOBS ?= 8
# What runs on whatever vendor is there.
GPU_ADAPTER_TESTS ?= adapters/torch/tests tests/models

.PHONY: gpu-kit
gpu-kit: wheels $(CORE_CUDA_TESTS) $(CUDALIB) ## what the next two need, into dist/: the wheels, the core's CUDA tests, the vendor as a library

$(CORE_CUDA_TESTS): $(CORE_SOURCES) $(call find_sources,core/vendors/cuda core/vendors/kit) | $(STAMPS)/venv
	@mkdir -p $(DIST)
	program="$$(cargo test --release --no-run --locked -p flagos-cuda --test conformance \
	  --message-format=json | sed -n 's/.*"name":"conformance".*"executable":"\([^"]*\)".*/\1/p')"; \
	cp $(foreach library,$(notdir $(EXPORTED_CUDA)),"$${program%/*}/$(library)") $(DIST); cp "$$program" $@

# Built here where there is cargo; where there is none, dist/ has to be there.
.PHONY: gpu-site
gpu-site: $(if $(shell command -v cargo 2>/dev/null),gpu-kit)
	@ls $(GPU_WHEELS) $(CORE_CUDA_TESTS) $(EXPORTED_CUDA) >/dev/null || { \
	  echo "there is no cargo here: run 'make gpu-kit' where there is one, and bring $(DIST)/" >&2; exit 1; }
	@rm -rf "$(GPU_SITE)"
	"$(GPU_PYTHON)" -m venv --without-pip "$(GPU_SITE)"
	@# Read after what is in the environment itself, so that our packages come first.
	"$(GPU_PYTHON)" -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' \
	  >"$$($(GPU_RUN) -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/beside.pth"
	"$(GPU_PYTHON)" -m pip --python "$(GPU_SITE)/bin/python" install --quiet --no-deps --ignore-installed \
	  $(GPU_WHEELS)
	@$(GPU_RUN) -c 'import torch; assert torch.flagos.get_device_properties(0).vendor == "cuda"'

.PHONY: gpu-metax
gpu-metax: gpu-site ## on an NVIDIA machine: the vendor metax by dist/metax_forwarder/, beside the vendor cuda
	$(GPU_RUN) -m tests.gpu.metax $(ARGS)

GPU_TESTS := gpu-test-core gpu-test-programs gpu-test-adapter gpu-test-conformance
.PHONY: gpu-test $(GPU_TESTS)
gpu-test: $(GPU_TESTS) ## on an NVIDIA machine: core, programs, adapter and sampled conformance over CUDA
$(GPU_TESTS): gpu-site
gpu-test-core:
	FLAGOS_REQUIRE_CUDA=1 $(CORE_CUDA_TESTS) --test-threads=1
gpu-test-programs:
	$(GPU_RUN) -m pytest tests/gpu $(ARGS)
gpu-test-adapter:
	$(GPU_RUN) -m pytest $(GPU_ADAPTER_TESTS) --vendor cuda $(ARGS)
gpu-test-conformance:
	$(GPU_RUN) -m tests.conformance --reference cuda --device flagos --ci --ci-seed $(CI_SEED) -j $(GPU_JOBS)

.PHONY: gpu-te
gpu-te: gpu-site ## on an NVIDIA machine: TransformerEngine's operators beside torch, eager and compiled
	$(GPU_RUN) -m tests.gpu.te $(ARGS)

.PHONY: gpu-bench-comm
gpu-bench-comm: gpu-site ## on a machine with several NVIDIA devices: collectives beside ProcessGroupNCCL
	$(GPU_RUN) -m tests.gpu.distributed $(ARGS)

.PHONY: gpu-bench
gpu-bench: gpu-site ## on an NVIDIA machine: operators and whole models beside CUDA; keeps the report
	$(GPU_RUN) -m tests.gpu.submit --json $(DIST)/submit.json
	@# What failed is told in the report too.
	failed=0; $(GPU_RUN) -m tests.gpu.models --json $(DIST)/models.json $(ARGS) || failed=1; \
	$(GPU_RUN) -m tests.gpu.report --submit $(DIST)/submit.json --models $(DIST)/models.json --folder $(GPU_REPORTS); \
	exit $$failed

# ----------------------------------------------------------------------------------------- bench

.PHONY: bench-te
bench-te: setup ## calls of TransformerEngine's operators, beside TransformerEngine-FL where TEFL_PATH names it
	"$(PY)" -m tests.bench.te_calls $(ARGS)

.PHONY: bench
bench: setup ## operator overhead over cpu, allocator, import and start-up times; --write keeps them
	"$(PY)" -m tests.bench.overhead $(ARGS)

.PHONY: bench-ascend
bench-ascend: setup simulated-ascend ## what a call of CANN costs on the host, with phases that compute nothing
	$(ON_ASCEND) SIMULATED_ASCEND_COMPUTE=0 SIMULATED_ASCEND_WORKSPACE=0 "$(PY)" -m tests.bench.vendor_library $(ARGS)

.PHONY: bench-vendor-library
bench-vendor-library: setup example-vendor ## what a call of the example chip's kernel costs, part by part
	$(ON_CHIP) "$(PY)" -m tests.bench.vendor_library $(ARGS)

.PHONY: bench-comm
bench-comm: setup ## collectives of 2, 4 and 8 processes beside gloo; --write keeps the report
	"$(PY)" -m tests.bench.collectives $(ARGS)

# ----------------------------------------------------------------------------------------- clean

.PHONY: clean
clean: ## remove what was built; the virtual environment stays
	rm -rf target core/fuzz/target $(DIST) site .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -not -path './$(VENV)/*' -prune -exec rm -rf {} +
