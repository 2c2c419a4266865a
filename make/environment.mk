# The virtual environment and what is installed into it; included by the Makefile.

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

# With an older transformers than the environment's, in a folder of its own, too. Each release is for one torch.
SGLANG := $(abspath $(VENV))/sglang
SGLANG_REQUIREMENTS := $(wildcard requirements/sglang-torch-$(TORCH_MINOR).txt)
$(STAMPS)/sglang: $(SGLANG_REQUIREMENTS) requirements/sglang.txt $(STAMPS)/requirements
	@[ -n "$(SGLANG_REQUIREMENTS)" ] || { \
	  echo "no release of SGLang that flagos serves is for torch $(TORCH_MINOR): these have one:" \
	    $(patsubst requirements/sglang-torch-%.txt,TORCH=%,$(wildcard requirements/sglang-torch-*.txt)) >&2; exit 1; }
	@rm -rf "$(SGLANG)"
	$(PIP) install --quiet --no-deps --target "$(SGLANG)" -r $(SGLANG_REQUIREMENTS)
	@touch "$@"

# DeepSpeed is built from its sources without kernels: it compiles those that it needs at their first use.
TRAINERS := $(abspath $(VENV))/trainers
$(STAMPS)/trainers: requirements/trainers.txt $(STAMPS)/requirements
	@rm -rf "$(TRAINERS)"
	DS_BUILD_OPS=0 TORCH_DEVICE_BACKEND_AUTOLOAD=0 $(PIP) install --quiet --no-deps --no-build-isolation \
	  --target "$(TRAINERS)" -r requirements/trainers.txt
	@touch "$@"

# Never in the environment: it has the same files as `triton`. The tests run it in a Python 3.11, and say if there is none.
ASCEND_TRITON := $(abspath $(VENV))/ascend-triton
$(STAMPS)/ascend-triton: requirements/ascend-triton.txt $(STAMPS)/requirements
	@rm -rf "$(ASCEND_TRITON)"
	$(PIP) install --quiet --no-deps --target "$(ASCEND_TRITON)" --python-version 3.11 --only-binary=:all: \
	  -r requirements/ascend-triton.txt
	@touch "$@"
