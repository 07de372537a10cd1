# Two commands matter: `make demo` runs Flashloom, `make test` proves it. Both install what they need.

CARGO ?= cargo

MINUTES ?= 10

.PHONY: demo test soak check install packages library install-library fio-engine

PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib

## Build, then serve a demonstration array under ./flashloom-data until Ctrl-C.
demo:
	$(CARGO) run --release --locked --package flashloom -- demo

# What the tests of the same command build, for the tests with other systems: a release build for them alone takes minutes.
# It has what users' programs never have: planted bugs, none of which happens unless a test's thread asks for it, and counters
# of atomic operations. What users have is built, looked at (`cargo xtask planted`) and measured apart; without FLASHLOOM_BIN the
# tests with real hosts build and try a release.
TARGET = $(or $(CARGO_TARGET_DIR),$(CURDIR)/target)
BUILT = $(TARGET)/debug
test: export FLASHLOOM_BIN ?= $(BUILT)/flashloom
test: export FLASHLOOM_LIBRARY ?= $(BUILT)/deps/libflashloom.so

## Every test: units, properties, wire, and real Linux kernels in a virtual machine.
test:
	$(CARGO) test --workspace --locked --no-fail-fast
	tests/openapi.sh
	python3 tests/metrics.py
	tests/packages.sh
	RUSTFLAGS="--cfg loom" $(CARGO) test --package reactor --lib --locked --target-dir target/loom -- loom

## Fresh seeds of every workload of the simulator, for MINUTES. Those that fail are kept in target/soak/failed-seeds.txt.
soak:
	$(CARGO) run --release --locked --package sim -- --minutes $(MINUTES) --keep target/soak/failed-seeds.txt

## House rules: format, lints, floors, sizes, licences, documents.
check:
	$(CARGO) xtask check

## Install the program and what its service needs (PREFIX, DESTDIR).
install:
	$(CARGO) build --release --locked --package flashloom
	PREFIX=$(PREFIX) DESTDIR=$(DESTDIR) packaging/install.sh $(TARGET)/release/flashloom

## A .deb, a .rpm, a container image and a list of what is in them, in target/packages/out. Paths of this machine are in none of them.
packages: export CARGO_TARGET_DIR = $(CURDIR)/target/packages/build
packages: export RUSTFLAGS = --remap-path-prefix=$(CURDIR)=flashloom --remap-path-prefix=$(or $(CARGO_HOME),$(HOME)/.cargo)=cargo
packages:
	$(CARGO) build --release --locked --package flashloom
	packaging/packages.sh target/packages/build/release/flashloom target/packages/out
	$(CARGO) xtask sbom > target/packages/out/flashloom.cdx.json

## libflashloom: shared in target/release, static in target/release/static, where it exports nothing but its own functions.
library:
	$(CARGO) build --release --locked --package capi
	ln -sf libflashloom.so target/release/libflashloom.so.0
	mkdir -p target/release/static
	packaging/own-symbols.sh target/release/libflashloom.so target/release/libflashloom.a target/release/static/libflashloom.a

## Install libflashloom, its header, its example and what pkg-config reads (PREFIX, LIBDIR, DESTDIR).
install-library: library
	install -D -m 755 target/release/libflashloom.so $(DESTDIR)$(LIBDIR)/libflashloom.so.0
	ln -sf libflashloom.so.0 $(DESTDIR)$(LIBDIR)/libflashloom.so
	install -D -m 644 target/release/static/libflashloom.a $(DESTDIR)$(LIBDIR)/libflashloom.a
	install -D -m 644 crates/capi/include/flashloom.h $(DESTDIR)$(PREFIX)/include/flashloom.h
	install -D -m 644 crates/capi/examples/write_and_read.c $(DESTDIR)$(PREFIX)/share/doc/flashloom/examples/write_and_read.c
	mkdir -p $(DESTDIR)$(LIBDIR)/pkgconfig
	sed -e 's#@PREFIX@#$(PREFIX)#' -e 's#@LIBDIR@#$(LIBDIR)#' packaging/flashloom.pc.in > $(DESTDIR)$(LIBDIR)/pkgconfig/flashloom.pc

## fio's engine, packaging/fio/flashloom.so: make fio-engine FIO_SOURCE=/path/to/fio (see packaging/fio/Makefile).
fio-engine: library
	$(MAKE) -C packaging/fio FIO_SOURCE="$(FIO_SOURCE)"
