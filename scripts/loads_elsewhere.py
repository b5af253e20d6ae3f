#!/usr/bin/env python3
"""loads_elsewhere.py full DIR | lora DIR BASE: what Anneal wrote, loaded by transformers and peft.

Prints the loss of a fixed text and ten greedy tokens, so that they can be held beside `anneal generate` on the same folder.
Needs torch and transformers (and peft) in the Python environment.
"""
import sys
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

kind, folder = sys.argv[1], sys.argv[2]
if kind == "full":
    model, report = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"] and not report["mismatched_keys"], report
else:
    from peft import PeftModel
    model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(sys.argv[3], dtype=torch.float32), folder)
    moved = sum(float(p.abs().sum()) > 0 for n, p in model.named_parameters() if "lora_B" in n)
    assert moved, "every lora_B is zero: the adapter was not loaded"
tokenizer = AutoTokenizer.from_pretrained(folder)
model.eval()
ids = tokenizer("In the beginning God created the heaven and the earth.", return_tensors="pt").input_ids
with torch.no_grad():
    loss = model(input_ids=ids, labels=ids).loss.item()
    out = model.generate(input_ids=ids, max_new_tokens=10, do_sample=False)
print(f"loss {loss:.6f}")
print("greedy", repr(tokenizer.decode(out[0, ids.shape[1]:])))
