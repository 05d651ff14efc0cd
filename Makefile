# make demo      shows a cluster on a real nats-server at work, and ends by itself
# make test      runs every test; does its own set-up
# make lint      checks format, clippy, documentation, dependencies and licences
# make bench     measures vendue on this machine
# make tools     fetches what the tests need into .tools/
# make engines   compares the fast engines with the plain one over many seeds (SEEDS=100000 FROM=0)
# make chaos     breaks clusters of real processes many times over and checks what runs (SEED=1 ROUNDS=200)
# make mutants   changes the code and counts what the tests notice (CRATE=rep FILE=rep/src/ledger.rs)

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DEFAULT_GOAL := help
.PHONY: help demo test lint bench tools compose-test engines chaos mutants

# CI builds exactly what Cargo.lock says
CARGO_FLAGS := $(if $(CI),--locked)
# tests run in the directory of their crate, where a relative path would not be found
ifneq ($(NATS_SERVER_BIN),)
export NATS_SERVER_BIN := $(abspath $(NATS_SERVER_BIN))
endif
OLD_SERVER := $(CURDIR)/.tools/nats-server-2.9
PYTHON := $(CURDIR)/.tools/venv/bin/python

# cargo-nextest where it is installed, else cargo's own test runner; both run the same tests
NEXTEST := $(shell command -v cargo-nextest)
TEST := cargo $(if $(NEXTEST),nextest run,test --no-fail-fast) $(CARGO_FLAGS)

help:
	@sed -n 's/^# make/make/p' Makefile

demo:
	@export NATS_SERVER_BIN=$$(scripts/get-nats-server.sh)
	cargo build --release $(CARGO_FLAGS) -p vendue
	"$${CARGO_TARGET_DIR:-target}/release/vendue" demo

# Parts that this machine cannot run are left out, and named at the start and at the end. With one of
# them left out, tests that would fail in CI for want of it are skipped (CI=false).
test:
	@scripts/setup.sh test
	trap 'scripts/setup.sh report test' EXIT
	left_out() { grep -q "^$$1	" .tools/left-out-test 2>/dev/null; }
	if [ -s .tools/left-out-test ]; then export CI=false; fi
	export VENDUE_TEST_PYTHON="$(PYTHON)"
	newest=$$(scripts/get-nats-server.sh)
	echo "== all tests, on nats-server $$("$$newest" --version)"
	NATS_SERVER_BIN=$$newest $(TEST) --workspace
	echo "== the examples in the documentation of the code"
	cargo test $(CARGO_FLAGS) --workspace --doc
	if ! left_out nats-server-2.9; then
	  echo "== the integration tests again, on nats-server $$("$(OLD_SERVER)" --version)"
	  NATS_SERVER_BIN="$(OLD_SERVER)" $(TEST) --workspace --test '*'
	fi
	if ! left_out compose; then
	  echo "== docker compose"
	  scripts/compose-test.sh
	fi
	echo "make test: everything that was run has passed"

compose-test: tools
	@scripts/compose-test.sh

lint:
	@scripts/setup.sh lint
	trap 'scripts/setup.sh report lint' EXIT
	left_out() { grep -q "^$$1	" .tools/left-out-lint 2>/dev/null; }
	set -x
	cargo fmt --all --check
	cargo clippy $(CARGO_FLAGS) --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc $(CARGO_FLAGS) --workspace --no-deps --document-private-items
	left_out cargo-machete || .tools/bin/cargo-machete --skip-target-dir
	left_out cargo-deny || .tools/bin/cargo-deny check bans licenses sources

bench:
	@export NATS_SERVER_BIN=$$(scripts/get-nats-server.sh)
	cargo build --release $(CARGO_FLAGS) -p vendue
	for policy in diego diego-bin-pack dea objective dapi rfd24; do
	  "$${CARGO_TARGET_DIR:-target}/release/vendue" bench place --plain --policy $$policy
	done
	for policy in dea diego; do
	  "$${CARGO_TARGET_DIR:-target}/release/vendue" bench cluster --cells 1000 --requests 1000 --policy $$policy
	done
	"$${CARGO_TARGET_DIR:-target}/release/vendue" bench apps
	"$${CARGO_TARGET_DIR:-target}/release/vendue" bench dea

tools:
	@scripts/setup.sh tools

SEEDS := 100000
FROM := 0
engines:
	FROM=$(FROM) SEEDS=$(SEEDS) cargo test $(CARGO_FLAGS) --release -p placement --test engines -- \
	  --ignored --exact --nocapture fast_is_plain_for_very_many_seeds

SEED := 1
ROUNDS := 200
chaos:
	@export NATS_SERVER_BIN=$$(scripts/get-nats-server.sh)
	SEED=$(SEED) ROUNDS=$(ROUNDS) cargo test $(CARGO_FLAGS) -p vendue --test faults -- \
	  --ignored --nocapture --test-threads 1 chaos::

mutants:
	@scripts/mutants.sh "$(CRATE)" "$(FILE)"
