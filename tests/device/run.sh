#!/usr/bin/env bash
# Tests and measures the CUDA backend on a machine with a card, or on the virtual one: no network, no Rust; the programs come
# from tests/device/pack.sh. Usage: tests/device/run.sh PROGRAMS OUT [PART...]
#
#   probe        libraries and cards that are found; what doctor says
#   conformance  every operation against its reference (the test program that also runs on the virtual card)
#   golden       models, training curves and generation against reference values, in f32 and bf16
#   memory       bytes the plan lists, bytes allocated, bytes the driver counts
#   speed        tokens a second of nano and of SmolLM2-135M's shape; beside PyTorch where a Python has it
#
# Without parts all are run. Each takes at most five minutes (ANNEAL_DEVICE_SECONDS), a failed one does not stop the others.
# ANNEAL_DEVICE_VIRTUAL=1 says that the card is the virtual one; the other ANNEAL_DEVICE_ variables make parts smaller.
# OUT/report.json tells everything; the exit status is 0 where every part passed.
set -uo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
programs=$(cd "${1:?usage: tests/device/run.sh PROGRAMS OUT [PART...]}" && pwd)
mkdir -p "${2:?usage: tests/device/run.sh PROGRAMS OUT [PART...]}"
out=$(cd "$2" && pwd)
shift 2
parts=${*:-probe conformance golden memory speed}
seconds=${ANNEAL_DEVICE_SECONDS:-300}
python=${PYTHON:-python3}
export ANNEAL_HOME=$out/home ANNEAL_KERNEL_CACHE=$out/kernels ANNEAL_GOLDEN=${ANNEAL_GOLDEN:-$programs/golden}
[ -d "$ANNEAL_GOLDEN" ] || ANNEAL_GOLDEN=$root/tests/golden
# PyTorch brings NVIDIA's libraries in packages of its own.
site=$("$python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])' 2>/dev/null || true)
if [ -n "$site" ] && [ -d "$site/nvidia" ]; then
    found=$(find "$site/nvidia" -maxdepth 2 -name lib -type d | paste -sd:)
    export ANNEAL_CUDA_LIBRARIES=${ANNEAL_CUDA_LIBRARIES:+$ANNEAL_CUDA_LIBRARIES:}$found
fi
# Tests install the virtual card unless they are told that there is a real one.
[ -n "${ANNEAL_DEVICE_VIRTUAL:-}" ] || export ANNEAL_GPU=real

program() { # NAME: the packed test program, or the newest that was built here
    if [ -x "$programs/$1-tests" ]; then echo "$programs/$1-tests"; else ls -t "$programs"/deps/"$1"-* 2>/dev/null | grep -v '\.' | head -1; fi
}
anneal() { "$programs/anneal" "$@"; }
tests() { # NAME FILTER...: a test program, which must not have skipped for lack of a card
    local name=$1 log=$out/$1-tests.txt
    shift
    # On the virtual card each test program brings its own.
    (
        [ -n "${ANNEAL_DEVICE_VIRTUAL:-}" ] && unset LD_LIBRARY_PATH
        timeout "$seconds" "$(program "$name")" --nocapture --test-threads 2 "$@"
    ) >"$log" 2>&1
    local status=$?
    grep -c '^test .* ok$' "$log" | sed 's/^/passed /'
    grep -q 'skipped: no CUDA device' "$log" && { grep -m1 'skipped: no CUDA' "$log"; return 1; }
    [ $status = 0 ] || grep -E 'panicked|FAILED' -A3 "$log" | head -40
    return $status
}
train() { # SHAPE METHOD PRECISION BATCH LENGTH STEPS: one measurement as a line of JSON
    timeout "$seconds" "$programs/anneal" --json bench train --device cuda:0 --shape "$1" --method "$2" --precision "$3" --batch "$4" --length "$5" --steps "$6"
}

probe() {
    anneal --json doctor >"$out/doctor.json"
    anneal doctor
    # Cards are needed here; what stands in their way has been said.
    grep -q '"name":"cards","state":"good"' "$out/doctor.json"
}
conformance() { tests kernels ${ANNEAL_DEVICE_OPERATIONS:-}; }
golden() { tests trainer ${ANNEAL_DEVICE_GOLDEN:-card model:: generation:: ranks::}; }
memory() {
    local failed=0
    for precision in f32 bf16; do
        train "${ANNEAL_DEVICE_SHAPE:-smollm2-135m}" full "$precision" "${ANNEAL_DEVICE_BATCH:-4}" 256 2 >"$out/memory-$precision.json" || failed=1
        "$python" - "$out/memory-$precision.json" "$precision" <<'PY' || failed=1
import json, sys
it = json.load(open(sys.argv[1]))
planned, held, used = it["device_bytes_planned"], it["device_bytes_peak"], it["device_bytes_used"]
print(f"{sys.argv[2]}: planned {planned >> 20} MiB, allocated {held >> 20}, the driver counts {used >> 20 if used else None}")
# Beside the plan's lines: context, kernels, the libraries' rooms.
assert held <= planned, "more was allocated than was planned"
assert used is None or used <= planned * 1.2 + (1 << 30), "the driver counts far more than was planned"
PY
    done
    return $failed
}
speed() {
    local failed=0
    : >"$out/speed.jsonl"
    for precision in f32 bf16; do
        train nano full $precision "${ANNEAL_DEVICE_ROWS:-32}" 128 "${ANNEAL_DEVICE_STEPS:-20}" | tr -d '\n' >>"$out/speed.jsonl" || failed=1
        echo >>"$out/speed.jsonl"
        [ -n "${ANNEAL_DEVICE_VIRTUAL:-}" ] && continue
        for method in full lora; do
            train smollm2-135m $method $precision 16 512 10 | tr -d '\n' >>"$out/speed.jsonl" || failed=1
            echo >>"$out/speed.jsonl"
        done
    done
    if [ -z "${ANNEAL_DEVICE_VIRTUAL:-}" ] && "$python" -c 'import torch, transformers; assert torch.cuda.is_available()' 2>/dev/null; then
        for precision in f32 bf16; do
            timeout "$seconds" "$python" "$root/bench/torch_train.py" --device cuda --precision $precision --rows 16 --length 512 --warm 3 --steps 10 |
                tail -1 | tee "$out/torch-$precision.json" || failed=1
        done
    else
        echo "skipped: no Python with torch, transformers and a card"
    fi
    cat "$out/speed.jsonl"
    return $failed
}

status=0
rm -f "$out"/part-*.json
for part in $parts; do
    case $part in probe | conformance | golden | memory | speed) ;; *) echo "there is no part \"$part\"" >&2; exit 2 ;; esac
    echo "== $part"
    begin=$(date +%s)
    if $part >"$out/$part.txt" 2>&1; then word=passed; else word=failed status=1; fi
    cat "$out/$part.txt"
    echo "== $part $word"
    "$python" - "$out" "$part" "$word" $(($(date +%s) - begin)) <<'PY'
import json, sys
out, part, word, seconds = sys.argv[1:]
text = open(f"{out}/{part}.txt", errors="replace").read()
json.dump({"part": part, "result": word, "seconds": int(seconds), "text": text[-20000:]}, open(f"{out}/part-{part}.json", "w"))
PY
done
"$python" - "$out" <<'PY'
import glob, json, os, sys
out = sys.argv[1]
def load(path):
    try:
        return json.load(open(path))
    except Exception:
        return None
parts = [load(p) for p in sorted(glob.glob(f"{out}/part-*.json"), key=os.path.getmtime)]
speed = [json.loads(line) for line in open(f"{out}/speed.jsonl") if line.strip()] if os.path.exists(f"{out}/speed.jsonl") else []
memory = {p: load(f"{out}/memory-{p}.json") for p in ("f32", "bf16")}
torch = {p: load(f"{out}/torch-{p}.json") for p in ("f32", "bf16")}
report = {"parts": parts, "doctor": load(f"{out}/doctor.json"), "speed": speed, "memory": memory, "torch": torch}
json.dump(report, open(f"{out}/report.json", "w"), indent=1)
print(json.dumps({p["part"]: p["result"] for p in parts if p}))
PY
exit $status
