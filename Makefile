# The commands of the README. Each one sets up what it needs, so that a fresh clone needs nothing else.
CARGO ?= cargo
NPM = npm --prefix ui
.DEFAULT_GOAL := test
SMOLLM2 = SmolLM2-135M-Instruct.Q4_1.gguf
# Names the real model for the tests over it, where scripts/smollm2 could make it.
REAL = if [ -z "$$ANNEAL_SMOLLM2" ] && [ -f target/smollm2/$(SMOLLM2) ]; then export ANNEAL_SMOLLM2="$(CURDIR)/target/smollm2/$(SMOLLM2)"; fi;
.PHONY: run test bench bench-window soak package setup ui

run: setup ui ## opens the window; without a display trains a small model in the terminal and lets it write
	$(CARGO) build --release --locked -p engine -p trainer -p anneal-desktop
	scripts/run

test: setup ui ## what continuous integration runs
	$(NPM) run check
	$(NPM) run test
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(CARGO) build --workspace --bins --tests --locked
	@scripts/smollm2
	@scripts/nvrtc
	$(REAL) $(CARGO) test --workspace --locked

bench: setup ## measures training, matrix products and the optimizer beside the machine's limit, and beside PyTorch where it is
	$(CARGO) build --release --locked -p engine -p trainer
	scripts/bench

bench-window: setup ui ## how fast the window is with ten thousand jobs and a million steps; needs Xvfb and WebKitWebDriver
	$(CARGO) build --profile soak --workspace --bins --tests --locked
	ANNEAL_BENCH_WINDOW=1 $(CARGO) test --profile soak --workspace --locked -- --nocapture the_window_beside_its_limits

soak: setup ui ## the tests with their figures raised: more kills, faults and seeds, for hours
	$(CARGO) build --profile soak --workspace --bins --tests --locked
	@scripts/smollm2
	@scripts/nvrtc
	$(REAL) ANNEAL_SOAK=1 PROPTEST_CASES=5000 $(CARGO) test --profile soak --workspace --locked

package: setup ui ## dist/: a Debian package and a tarball of the programs, with the licences of all that is in them
	$(CARGO) build --profile dist --locked -p engine -p trainer -p anneal-desktop
	scripts/package

setup:
	@scripts/setup

# The window packs ui/dist, so it comes before every build.
ui: setup
	@[ ui/node_modules/.package-lock.json -nt ui/package-lock.json ] || $(NPM) ci --no-audit --no-fund
	$(NPM) run build
