# Two commands matter: `make demo` runs Flashloom, `make test` proves it. Both install what they need.

CARGO ?= cargo

.PHONY: demo test check hosts install

## Build, then serve a demonstration array under ./flashloom-data until Ctrl-C.
demo:
	$(CARGO) run --release --locked --package flashloom -- demo

## Every test: units, properties, wire, and real Linux kernels in a virtual machine.
test:
	$(CARGO) test --workspace --locked --no-fail-fast

## House rules: format, lints, floors, sizes, licences, documents.
check:
	$(CARGO) xtask check

## Install the program for this user.
install:
	$(CARGO) install --locked --path crates/flashloom
