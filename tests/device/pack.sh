#!/usr/bin/env bash
# Packs what tests/device/run.sh needs on a machine with a card and nothing built: the programs, the test programs of kernels
# and trainer, and the reference values they look at. Usage: tests/device/pack.sh FOLDER (at most 64 MiB come out).
set -euo pipefail
cd "$(dirname "$0")/../.."
to=${1:?usage: tests/device/pack.sh FOLDER}
cargo=${CARGO:-cargo}
"$cargo" build --workspace --bins --tests --locked
mkdir -p "$to/golden"
test_program() {
    "$cargo" test --workspace --locked --lib --no-run --message-format json 2>/dev/null |
        python3 -c '
import json, sys
for line in sys.stdin:
    it = json.loads(line)
    if it.get("executable") and it.get("profile", {}).get("test") and it["target"]["name"] == sys.argv[1]:
        print(it["executable"])
' "$1" | tail -1
}
for name in kernels trainer; do
    strip -o "$to/$name-tests" "$(test_program $name)"
done
for name in anneal anneal-trainer; do
    strip -o "$to/$name" "target/debug/$name"
done
for part in models/llama models/llama_sharded models/llama_bf16 models/llama_tied train optim; do
    mkdir -p "$to/golden/$part"
    cp -r "tests/golden/$part/." "$to/golden/$part/"
done
bytes=$(du -sb "$to" | cut -f1)
echo "$to: $((bytes >> 20)) MiB"
[ "$bytes" -le $((64 << 20)) ] || { echo "more than 64 MiB" >&2; exit 1; }
