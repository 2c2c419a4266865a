# Compiles csrc/ against one torch into a library with the functions of csrc/shim.h.
#
#   make -f adapters/torch/shim.mk TORCH=.venv/lib/python3.12/site-packages/torch OUT=target/shims/x86_64
#
# writes $(OUT)/torch_2_NN.so, and keeps the objects beside it, so that a change compiles what it meets: a folder of csrc/
# is compiled as one file, because most of a file's time are torch's headers. Of TORCH only
# the folders include and lib are read: one that was unpacked from a wheel for another processor will do.
#
# CXX=aarch64-linux-gnu-g++ compiles for that processor. PORTABLE=x86_64 or PORTABLE=aarch64 links for manylinux_2_28:
# against glibc 2.28, as ZIG knows it, and no newer libstdc++ than torch needs itself. The objects are the same, and the
# library is $(OUT)/portable/torch_2_NN.so.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.SUFFIXES:
MAKEFLAGS += --no-builtin-rules

HERE := $(patsubst %/,%,$(dir $(lastword $(MAKEFILE_LIST))))
# The compiler's lists of dependencies name the objects as they were named when these were compiled.
override OUT := $(abspath $(OUT))
ifeq ($(origin CXX),default)
CXX := g++
endif
ZIG ?= python3 -m ziglang

number = $(shell sed -n 's/^.define TORCH_VERSION_$(1) //p' $(TORCH)/include/torch/headeronly/version.h 2>/dev/null)
MINOR := $(call number,MAJOR)_$(call number,MINOR)
ifeq ($(MINOR),_)
$(error TORCH=$(TORCH) is not the folder of a torch: it has no include/torch/headeronly/version.h)
endif
SHIM := $(OUT)$(if $(PORTABLE),/portable)/torch_$(MINOR).so
OBJECTS := $(OUT)/torch_$(MINOR).$(call number,PATCH)
SOURCES := $(shell find $(HERE)/csrc -name '*.cc' | sort)
# csrc/aten/typed/*.cc → aten-typed.o
FOLDERS := $(sort $(patsubst %/,%,$(dir $(SOURCES))))
unit = $(subst /,-,$(or $(patsubst $(HERE)/csrc/%,%,$(filter-out $(HERE)/csrc,$(1))),csrc))
OBJECT_FILES := $(foreach folder,$(FOLDERS),$(OBJECTS)/$(call unit,$(folder)).o)

# torch itself is built with NDEBUG: without it torch's headers check every tensor and every device. With headers per
# operator its headers include the operators that they name and not all. GCC 12 takes the short strings of C++20 for arrays
# that are too small.
FLAGS := -std=c++20 -O2 -fPIC -fvisibility=hidden -fvisibility-inlines-hidden -fno-plt -ffunction-sections \
  -fdata-sections -Wall -Wextra -Wno-unused-parameter -Wno-array-bounds \
  -DNDEBUG -DUSE_DISTRIBUTED -DAT_PER_OPERATOR_HEADERS -D_GLIBCXX_USE_CXX11_ABI=1 \
  -I$(HERE)/csrc -I$(HERE)/../../core/include -I$(HERE)/../../comm/include \
  -isystem $(TORCH)/include -isystem $(TORCH)/include/torch/csrc/api/include

# What most files include, compiled once: that halves the time. ccache then finds nothing that it kept.
COMMON := $(if $(findstring ccache,$(CXX)),,$(OBJECTS)/common.h)

LINK_FLAGS := -shared -Wl,--gc-sections -Wl,-z,relro -Wl,-z,now -L$(TORCH)/lib -ltorch_cpu -lc10
ifdef PORTABLE
# zig has the stubs of every glibc. Of libstdc++ and libgcc it takes the compiler's own, not its libc++ and libunwind.
OBJECT_FILES += $(OBJECTS)/glibc_2_28.o
LINK := $(ZIG) cc -target $(PORTABLE)-linux-gnu.2.28
LINK_FLAGS += $(shell $(CXX) -print-file-name=libstdc++.so.6) $(shell $(CXX) -print-file-name=libgcc_s.so.1) -Wl,--strip-all
else
LINK := $(CXX)
LINK_FLAGS += -Wl,--strip-all -Wl,-z,defs
endif

$(SHIM): $(OBJECT_FILES) $(HERE)/shim.mk
	@mkdir -p $(@D)
	$(LINK) -o $@ $(OBJECT_FILES) $(LINK_FLAGS)

$(OBJECTS)/common.h: $(HERE)/shim.mk
	@mkdir -p $(@D)
	@printf '#include <%s>\n' ATen/core/Tensor.h ATen/core/dispatch/Dispatcher.h ATen/Operators.h torch/library.h >$@.new
	$(CXX) $(FLAGS) -x c++-header $@.new -o $@.gch
	@mv $@.new $@

# Names the files of a folder; written when there are others than at the last time.
define rule_of_unit
$(OBJECTS)/$(call unit,$(1)).cc: files
	@mkdir -p $$(@D)
	@printf '#include "%s"\n' \
	  $(patsubst $(HERE)/csrc/%,%,$(foreach file,$(SOURCES),$(if $(filter $(1)/,$(dir $(file))),$(file)))) >$$@.new
	@cmp -s $$@.new $$@ && rm $$@.new || mv $$@.new $$@
endef
.PHONY: files
files:
$(foreach folder,$(FOLDERS),$(eval $(call rule_of_unit,$(folder))))

$(OBJECTS)/%.o: $(OBJECTS)/%.cc $(HERE)/shim.mk $(COMMON)
	$(CXX) $(FLAGS) -MMD -MP $(if $(COMMON),-include $(COMMON)) -c $< -o $@

$(OBJECTS)/glibc_2_28.o: $(HERE)/portable/glibc_2_28.cc $(HERE)/shim.mk
	$(CXX) -O2 -fPIC -Wall -Wextra -c $< -o $@

# The files that meet what changes between the versions of torch, without code: the classes that torch calls.
RISKY := $(sort $(shell grep -rlE 'torch_version\.h|public (c10|c10d|at)::[A-Za-z0-9:]+ \{' $(HERE)/csrc --include='*.cc') \
  $(HERE)/csrc/distributed/process_group.cc)
.PHONY: check $(RISKY:%=check/%)
check: $(RISKY:%=check/%)
$(RISKY:%=check/%): check/%:
	$(CXX) $(FLAGS) -fsyntax-only $*

-include $(OBJECT_FILES:.o=.d)
