# The wheels for this machine, and their installation into the environment; included by the Makefile.

# What each wheel is built from. Folders count too, so that a deleted file is noticed.
find_sources = $(shell find $(1) -not -path '*/__pycache__*' -not -name '*.so' 2>/dev/null | sort)
CORE_SOURCES := Cargo.toml Cargo.lock $(call find_sources,core/Cargo.toml core/src core/include) \
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
SERVING_SOURCES := $(call find_sources,$(addprefix adapters/serving/,pyproject.toml README.md python))
SGLANG_SOURCES := $(call find_sources,$(addprefix adapters/sglang/,pyproject.toml README.md python))
VLLM_SOURCES := $(call find_sources,$(addprefix adapters/vllm/,pyproject.toml README.md python))
TRAINERS_SOURCES := $(call find_sources,$(addprefix adapters/trainers/,pyproject.toml README.md python))

# Installed by `make setup`.
PACKAGES := torch-fl torch-fl-tools te-fl lightx2v-fl flagos-serving vllm-flagos sglang-flagos flagos-trainers

# Each a library with its manifest.
CHIPS := ascend metax
chip_sources = $(CORE_SOURCES) core/vendors/kit/vendor_wheel.py \
  $(call find_sources,$(addprefix core/vendors/$(1)/,Cargo.toml src pyproject.toml setup.py README.md python))

# Python alone: its Rust is linked into flagos.
TE_SOURCES := $(call find_sources,$(addprefix adapters/te/,pyproject.toml README.md python))

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

$(DIST)/.flagos-serving: $(SERVING_SOURCES) | $(STAMPS)/requirements
	@rm -f $(DIST)/flagos_serving-*.whl && mkdir -p $(DIST)
	"$(PY)" -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir $(DIST) adapters/serving
	@rm -rf adapters/serving/build adapters/serving/python/*.egg-info
	@touch "$@"

$(DIST)/.vllm-flagos: $(VLLM_SOURCES) | $(STAMPS)/requirements
	@rm -f $(DIST)/vllm_flagos-*.whl && mkdir -p $(DIST)
	"$(PY)" -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir $(DIST) adapters/vllm
	@rm -rf adapters/vllm/build adapters/vllm/python/*.egg-info
	@touch "$@"

$(DIST)/.sglang-flagos: $(SGLANG_SOURCES) | $(STAMPS)/requirements
	@rm -f $(DIST)/sglang_flagos-*.whl && mkdir -p $(DIST)
	"$(PY)" -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir $(DIST) adapters/sglang
	@rm -rf adapters/sglang/build adapters/sglang/python/*.egg-info
	@touch "$@"

$(DIST)/.flagos-trainers: $(TRAINERS_SOURCES) | $(STAMPS)/requirements
	@rm -f $(DIST)/flagos_trainers-*.whl && mkdir -p $(DIST)
	"$(PY)" -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir $(DIST) adapters/trainers
	@rm -rf adapters/trainers/build adapters/trainers/python/*.egg-info
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

$(STAMPS)/flagos-serving: $(DIST)/.flagos-serving $(STAMPS)/torch-fl
	$(call install_wheel,flagos_serving)

$(STAMPS)/vllm-flagos: $(DIST)/.vllm-flagos $(STAMPS)/flagos-serving
	$(call install_wheel,vllm_flagos)

$(STAMPS)/sglang-flagos: $(DIST)/.sglang-flagos $(STAMPS)/flagos-serving
	$(call install_wheel,sglang_flagos)

$(STAMPS)/flagos-trainers: $(DIST)/.flagos-trainers $(STAMPS)/torch-fl
	$(call install_wheel,flagos_trainers)
