# Portable wheels, which `make dist` builds; included by the Makefile.

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
  name=$${wheel##*/}; \
  ls "$(PORTABLE)/$${name%%-*}"-*-manylinux_2_28_$(1).whl >/dev/null || { \
    echo "$$name needs a newer system than manylinux_2_28: see '$(PY) -m auditwheel show $$wheel'" >&2; exit 1; }; \
done
@rm -r $(PORTABLE)/$(1)
endef

DIST_WHEELS := $(foreach processor,$(DIST_PROCESSORS),$(PORTABLE)/.$(processor))
$(DIST_WHEELS): $(PORTABLE)/.%: $(FLAGOS_SOURCES) $(TORCH_WHEEL_SOURCES) $(foreach chip,$(CHIPS),$(call chip_sources,$(chip))) | $(DIST_TOOLS)/.installed
	$(call portable_wheel,$*)
	@touch "$@"
$(foreach processor,$(DIST_PROCESSORS),$(eval $(PORTABLE)/.$(processor): \
  $(foreach minor,$(DIST_TORCHES),$(call shim_of,$(processor),$(minor)))))
