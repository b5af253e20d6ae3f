#!/usr/bin/env python3
"""Intake beside its peers, in one run: a look at JSON lines beside pyarrow's reader, tokenising beside Hugging Face's batch encoding.

Needs pyarrow and tokenizers (pip install pyarrow tokenizers) and a release build. Rows are made up of verses of the sample text.

    bench/intake.py [--anneal target/release/anneal] [--model MODEL] [--bytes 1073741824] [--rows 100000]
"""
import argparse, json, os, pathlib, random, statistics, subprocess, sys, tempfile, time

ROOT = pathlib.Path(__file__).resolve().parent.parent


def rows(verses, seed=1):
    """Questions and answers of one to forty verses, without end."""
    dice = random.Random(seed)
    number = 0
    while True:
        number += 1
        at = dice.randrange(len(verses) - 41)
        asked, told = dice.randint(1, 2), dice.randint(1, 4)
        yield {
            "instruction": f"Question {number}: what follows? " + " ".join(verses[at : at + asked]),
            "input": "" if dice.random() < 0.6 else verses[at + 40],
            "output": " ".join(verses[at + asked : at + asked + told]),
        }


def run(command, **more):
    """Seconds, peak resident MiB of the process and its children, and what it printed."""
    start = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.PIPE, **more)
    text = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    seconds = time.perf_counter() - start
    if status != 0:
        sys.exit(f"{command} ended with {status}: {text[:500]!r}")
    return seconds, usage.ru_maxrss / 1024, text


def inspect(args, folder, verses):
    path = folder / "rows.jsonl"
    with open(path, "w") as out:
        for row in rows(verses):
            out.write(json.dumps(row, ensure_ascii=False) + "\n")
            if out.tell() >= args.bytes:
                break
    size = path.stat().st_size
    peer = [sys.executable, "-c", "import pyarrow.json, sys; print(pyarrow.json.read_json(sys.argv[1]).num_rows)", str(path)]
    ours = [args.anneal, "--quiet", "inspect", str(path), "--json"]
    figures = {"pyarrow": [], "anneal": []}
    for _ in range(args.times):
        for name, command in [("pyarrow", peer), ("anneal", ours)]:
            figures[name].append(run(command))
    facts = json.loads(figures["anneal"][0][2])[0]["dataset"]
    counted = int(figures["pyarrow"][0][2])
    assert facts["rows"] == facts["usable_rows"] == counted, (facts["rows"], facts["usable_rows"], counted)
    told(figures, size / 1e6, "MB", f"inspect {size / 1e9:.2f} GB of JSON lines, {counted} rows")
    path.unlink()


def tokenise(args, folder, verses):
    from tokenizers import Tokenizer

    data = folder / "rows.jsonl"
    made = [row for row, _ in zip(rows(verses), range(args.rows))]
    data.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in made))
    tokenizer = Tokenizer.from_file(str(pathlib.Path(args.tokenizer)))
    system = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
    turn = "<|im_start|>{}\n{}<|im_end|>\n"
    texts = []
    for row in made:
        asked = row["instruction"] + ("\n" + row["input"] if row["input"] else "")
        texts.append(turn.format("system", system) + turn.format("user", asked) + turn.format("assistant", row["output"]))
    figures = {"tokenizers": [], "anneal": []}
    for time_ in range(args.times):
        start = time.perf_counter()
        tokens = sum(len(e.ids) for at in range(0, len(texts), 1000) for e in tokenizer.encode_batch(texts[at : at + 1000], add_special_tokens=False))
        figures["tokenizers"].append((time.perf_counter() - start, 0, b""))
        home, job = folder / f"home-{time_}", folder / "job.toml"
        job.write_text(f'stage = "sft"\n[model]\npath = "{args.model}"\n[data]\ntrain = ["{data}"]\nmax_length = 2048\n[run]\nsteps = 1\nglobal_batch = 1\n[machine]\ndevices = ["cpu"]\n')
        # The machine's own speeds are measured once and kept; they are no part of this.
        (folder / "warm.jsonl").write_text(json.dumps(made[0]) + "\n")
        run([args.anneal, "--home", str(home), "--quiet", "plan", str(job), "--set", f'data.train=["{folder / "warm.jsonl"}"]', "--json"])
        figures["anneal"].append(run([args.anneal, "--home", str(home), "--quiet", "plan", str(job), "--json"]))
    planned = json.loads(figures["anneal"][0][2])["data"]
    assert planned["row_tokens"] == tokens, (planned["row_tokens"], tokens)
    told(figures, args.rows, "rows", f"tokenise {args.rows} rows, {tokens} tokens: rendered, masked, packed and written against encoded alone")


def told(figures, amount, unit, what):
    print(what)
    middle = {name: statistics.median(seconds for seconds, *_ in all_) for name, all_ in figures.items()}
    for name, all_ in figures.items():
        peak = max(peak for _, peak, _ in all_)
        memory = f", {peak:.0f} MiB at most" if peak else ""
        print(f"  {name:10} {middle[name]:7.2f} s, {amount / middle[name]:9.0f} {unit}/s{memory}")
    peer = next(name for name in figures if name != "anneal")
    print(f"  anneal is {middle[peer] / middle['anneal']:.2f} times as fast as {peer}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--anneal", default=str(ROOT / "target/release/anneal"))
    parser.add_argument("--model", default=str(ROOT / "target/smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"))
    parser.add_argument("--tokenizer", default="", help="tokenizer.json of that model, for the peer")
    parser.add_argument("--bytes", type=int, default=1 << 30)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--times", type=int, default=3)
    args = parser.parse_args()
    verses = [line for line in (ROOT / "sample/kjv.txt").read_text().splitlines() if line.strip()]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        inspect(args, folder, verses)
        if args.tokenizer:
            tokenise(args, folder, verses)


if __name__ == "__main__":
    main()
