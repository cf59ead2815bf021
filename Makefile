# One entry for people and for CI. `make` alone lists the targets.
#
# What a target needs and the machine lacks is installed with the machine's package manager (apt, dnf, apk or brew);
# rustup and that package manager are all that must be there before.

CARGO ?= cargo
SEEDS ?= 2000
SOAK_MINUTES ?= 10

.DEFAULT_GOAL := help
.PHONY: help dev test test-etcd-matrix cases lint deny bench simulate mutants soak etcd protoc

help: ## lists the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{ printf "  make %-16s %s\n", $$1, $$2 }' Makefile

dev: protoc ## both planes in one process, with a demo route to try; ARGS="--etcd host:port" for a real etcd
	$(CARGO) run --locked -p headwater-cli --bin headwater -- dev $(ARGS)

test: protoc ## every test, against a real etcd; ARGS goes to the test runner
	@set -eu; settings="$$(tools/etcd.sh)"; eval "$$settings"; export ETCD_BIN ETCDUTL_BIN; \
	set -x; \
	$(CARGO) build --locked -p headwater-control-plane -p headwater-data-plane -p headwater-cli --bins; \
	$(CARGO) test --workspace --locked $(ARGS)

test-etcd-matrix: protoc ## releases of etcd under faults, resumable; writes docs/etcd-matrix.md; ARGS="--help" teaches
	@tools/etcd-matrix.sh
	$(CARGO) run --locked -p headwater-tests --bin matrix -- --write docs/etcd-matrix.md $(ARGS)

cases: protoc ## the cases of docs/cases.md in full, one after another; hours: ARGS=c07 chooses
	@set -eu; settings="$$(tools/etcd.sh)"; eval "$$settings"; export ETCD_BIN ETCDUTL_BIN; \
	export HEADWATER_FULL_CASES=1; set -x; \
	$(CARGO) build --locked -p headwater-control-plane -p headwater-data-plane -p headwater-cli --bins; \
	$(CARGO) test --locked -p headwater-tests --test cases -- --test-threads=1 --nocapture $(ARGS)

lint: protoc ## formatting, clippy, crate edges and purity, documentation; warnings are errors
	$(CARGO) fmt --all --check
	$(CARGO) run --locked --quiet -p headwater-lint
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked

deny: ## licences, sources and advisories of all dependencies; needs cargo-deny
	$(CARGO) deny --all-features check

bench: protoc ## a fleet of 1,000 nodes on a real etcd; one JSON line; ARGS over the defaults
	@set -eu; settings="$$(tools/etcd.sh)"; eval "$$settings"; export ETCD_BIN ETCDUTL_BIN; \
	set -x; $(CARGO) run --release --locked -p headwater-tests --bin bench -- fleet --json $(ARGS)

simulate: protoc ## the simulated world over SEEDS seeds (2000); one JSON line
	$(CARGO) run --release --locked -p headwater-tests --bin simulate -- --seeds $(SEEDS) --json $(ARGS)

mutants: protoc ## proves that the simulation finds every planted fault within SEEDS seeds
	CARGO="$(CARGO)" SEEDS="$(SEEDS)" tools/mutants.sh $(ARGS)

soak: protoc ## real processes under faults for SOAK_MINUTES (10), compared with etcd again and again; one JSON line
	@set -eu; settings="$$(tools/etcd.sh)"; eval "$$settings"; export ETCD_BIN ETCDUTL_BIN; \
	set -x; $(CARGO) run --locked -p headwater-tests --bin soak -- --minutes $(SOAK_MINUTES) $(ARGS)

etcd: ## provides a real etcd and prints which
	@tools/etcd.sh

protoc:
	@tools/protoc.sh
