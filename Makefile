# The commands of the README. Each one sets up what it needs, so that a fresh clone needs nothing else.
CARGO ?= cargo
.DEFAULT_GOAL := test
# Names the real model for the tests over it, where scripts/smollm2 could make it.
REAL = if [ -z "$$ANNEAL_SMOLLM2" ] && [ -f target/smollm2/complete ]; then export ANNEAL_SMOLLM2="$(CURDIR)/target/smollm2"; fi;
.PHONY: run test bench soak package setup

run: setup ## trains a small model on a built-in text, then lets it write
	$(CARGO) build --release --locked -p engine -p trainer
	scripts/run-sample

test: setup ## what continuous integration runs
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(CARGO) build --workspace --bins --tests --locked
	@scripts/smollm2
	$(REAL) $(CARGO) test --workspace --locked

bench: setup ## measures training, matrix products and the optimizer beside the machine's limit, and beside PyTorch where it is
	$(CARGO) build --release --locked -p engine -p trainer
	scripts/bench

soak: setup ## the tests with their figures raised: more kills, faults and seeds, for hours
	$(CARGO) build --release --workspace --bins --locked
	@scripts/smollm2
	$(REAL) ANNEAL_SOAK=1 PROPTEST_CASES=5000 $(CARGO) test --release --workspace --locked

package: setup ## dist/anneal-VERSION-x86_64.tar.gz: both programs and the licences of all that is in them
	$(CARGO) build --profile dist --locked -p engine -p trainer
	scripts/package

setup:
	@scripts/setup
