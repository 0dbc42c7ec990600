# Two commands do everything: `make reproduce` and `make test`. Neither needs any step before it but a Rust toolchain.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.ONESHELL:
CARGO ?= cargo
NARROWS := target/release/narrows
OUT ?= out/report
FUZZ_SECONDS ?= 10
export CARGO_TERM_COLOR ?= auto

.PHONY: reproduce test bench fidelity figures build tools lint unit deny fuzz verdicts packets pages clean

## Reproduces every paper and writes out/report/index.html.
reproduce: build
	$(NARROWS) reproduce -o $(OUT)

## Everything that must hold; what CI runs.
test: tools lint unit deny fuzz verdicts packets pages
	@echo "make test: all of it passed"

build: compiler kernel-tools
	$(CARGO) build --release --locked -p narrows $$(./.ci/without-kernel)

# A linker is all that Rust lacks on a fresh Debian machine.
.PHONY: compiler
compiler:
	@command -v cc >/dev/null || ./.ci/packages gcc libc6-dev

# What the programs for the Linux kernel are compiled with; where it cannot be had, the tool is built without `narrows kernel`.
.PHONY: kernel-tools
kernel-tools:
	@./.ci/packages clang libelf-dev zlib1g-dev pkg-config make gcc libc6-dev || true

tools: compiler kernel-tools
	@./.ci/packages tshark chromium g++ fonts-dejavu-core iperf3 iproute2 ethtool

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked $$(./.ci/without-kernel --workspace) -- -D warnings

# Behind the release build, beside which a test lays the debug build: the same run has one trace hash in both.
# What skipped itself is said at the end, and counted.
unit: build
	@log=$$(mktemp)
	trap 'rm -f "$$log"' EXIT
	$(CARGO) test --workspace --locked $$(./.ci/without-kernel --workspace) -- --show-output 2>&1 | tee "$$log"
	echo "Skipped by tests: $$(grep -c '^SKIPPED' "$$log" || true)"
	grep '^SKIPPED' "$$log" | sort | uniq -c || true

# Licences, duplicate and banned crates always; advisories where their database can be fetched.
deny:
	@command -v cargo-deny >/dev/null || [ -x .tools/bin/cargo-deny ] || $(CARGO) install --quiet --locked --root .tools cargo-deny
	PATH="$$PWD/.tools/bin:$$PATH"
	cargo-deny --log-level error check licenses bans sources
	cargo-deny --log-level error fetch db 2>/dev/null && cargo-deny --log-level error check advisories \
	  || { cargo-deny --log-level error --offline check advisories 2>/dev/null \
	  || echo "SKIPPED advisories: their database cannot be fetched from here"; }

fuzz: compiler
	./fuzz/run $(FUZZ_SECONDS)

# Every claim's verdict is the recorded one.
verdicts: build
	$(NARROWS) reproduce -o $(OUT)

# On real packets the intermittent transfer of 1997 stalls, and Linux's own does not: what the claims record.
packets: build
	@if [ "$$(id -u)" -eq 0 ]; then $(NARROWS) reproduce becc --on wire,linux --only becc.fig3 --jobs 2 -o $(OUT)-packets
	else echo "SKIPPED packets: network namespaces need root"; fi

# The pages open in a browser: no script error, every chart drawn.
pages: verdicts
	./.ci/pages $(OUT)

## The speed comparison with ns-3, and the micro-benchmarks.
bench: build
	./bench/run

## The simulator beside Linux: runs a grid of bottlenecks on both and writes docs/fidelity.md (root; ten minutes).
fidelity: build
	./bench/fidelity

clean:
	$(CARGO) clean
	rm -rf out .tools
