#!/usr/bin/env python3
"""Makes ten_thousand.json: the ids that Hugging Face's `tokenizers` gives for 10,000 strings, as a hash of each hundred.

    ten_thousand.py FOLDER_OF_SMOLLM2      (pip install tokenizers==0.23.3)

The strings are drawn from PIECES by a linear congruential generator, so that they need not be kept.
"""
import json, pathlib, sys
import tokenizers

PIECES = [
    " ", "  ", "    ", "\n", "\n\n", "\r\n", "\t", "\u00a0", "\u3000", "\u2028", "\u200b", "\u200d", "\ufeff", "'s", "'LL", "'re", "don't",
    "a", "A", "the", " the", " quick", "brown", "Fox", "naïve", "Zoë", "e\u0301", "é", "ÅNGSTRÖM", "ß", "ﬁ", "Ǆ", "가", "한국어", "世界", "中文分词",
    "日本語", "मन", "ไทย", "שלום", "مرحبا", "🙂", "👩‍🚀", "🇨🇳", "7", "42", "1234567890", "3.14", "٣", "½", "Ⅷ", "²", "_", "__init__", "--", "$%",
    "{\"k\": [1, 2]}", "</s>", "<s>", "<unk>", "<|im_end|>", "<|im_", "end|>", "<|im_start|>user", "<|endoftext|>", "<|begin_of_text|>",
    "<0x0A>", "▁", "▁▁a", "Ġ", "\\n", "https://a.b/c?d=e&f", "x==y&&!z", "def f(x):\n    return x\n", "…", "“quoted”", "\u0000", "\u0007",
]
STRINGS, BLOCK = 10_000, 100
ROOT = pathlib.Path(__file__).resolve().parent


def strings():
    state = 20261130
    def draw(n):
        nonlocal state
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (state >> 33) % n
    for _ in range(STRINGS):
        yield "".join(PIECES[draw(len(PIECES))] for _ in range(draw(24)))


def fnv(ids_of_strings):
    value = 0xCBF29CE484222325
    for ids in ids_of_strings:
        for number in [len(ids), *ids]:
            for byte in number.to_bytes(4, "little"):
                value = ((value ^ byte) * 0x100000001B3) % 2**64
    return f"{value:016x}"


def main():
    folders = {"qwen": ROOT / "../models/llama", "smollm2": pathlib.Path(sys.argv[1])}
    folders |= {style: ROOT / "styles" / style for style in ["gpt2", "llama3", "spm"]}
    texts, blocks = list(strings()), {}
    for name, folder in sorted(folders.items()):
        tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        ids = [tokenizer.encode(text).ids for text in texts]
        blocks[name] = [fnv(ids[at : at + BLOCK]) for at in range(0, STRINGS, BLOCK)]
    made = {"tokenizers": tokenizers.__version__, "seed": 20261130, "strings": STRINGS, "block": BLOCK, "pieces": PIECES, "blocks": blocks}
    (ROOT / "ten_thousand.json").write_text(json.dumps(made, ensure_ascii=True, indent=1) + "\n")


main()
