"""Training steps of a Llama of 135 million parameters with PyTorch and transformers: random weights, random tokens.

torch_train.py --mode full|lora [--compile] [--checkpointing] --rows 4 --length 256 [--warm 1] [--steps 2]
               [--device cpu|cuda] [--precision f32|bf16]
"""
import argparse
import json
import os
import resource
import time

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
import torch
import transformers

parser = argparse.ArgumentParser()
parser.add_argument("--mode", choices=["full", "lora"], default="full")
parser.add_argument("--compile", action="store_true")
parser.add_argument("--checkpointing", action="store_true")
parser.add_argument("--rows", type=int, default=4)
parser.add_argument("--length", type=int, default=256)
parser.add_argument("--warm", type=int, default=1)
parser.add_argument("--steps", type=int, default=2)
parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
parser.add_argument("--precision", choices=["f32", "bf16"], default="f32", help="bf16: autocast")
asked = parser.parse_args()

torch.set_num_threads(2)
torch.manual_seed(0)
config = transformers.LlamaConfig(
    hidden_size=576,
    num_hidden_layers=30,
    num_attention_heads=9,
    num_key_value_heads=3,
    intermediate_size=1536,
    vocab_size=49152,
    tie_word_embeddings=True,
    max_position_embeddings=2048,
    use_cache=False,
)
config._attn_implementation = "sdpa"
model = transformers.AutoModelForCausalLM.from_config(config)
model.train()
model.to(asked.device)
if asked.mode == "lora":
    import peft

    targets = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    model = peft.get_peft_model(model, peft.LoraConfig(r=16, lora_alpha=32, lora_dropout=0.0, target_modules=targets))
if asked.checkpointing:
    model.gradient_checkpointing_enable()
    if asked.mode == "lora":
        model.enable_input_require_grads()
moving = [p for p in model.parameters() if p.requires_grad]
optimizer = torch.optim.AdamW(moving, lr=1e-4, fused=True)
forward = torch.compile(model) if asked.compile else model

for step in range(asked.warm + asked.steps):
    ids = torch.randint(0, config.vocab_size, (asked.rows, asked.length), device=asked.device)
    start = time.perf_counter()
    with torch.autocast(asked.device, torch.bfloat16, enabled=asked.precision == "bf16"):
        loss = forward(input_ids=ids, labels=ids).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if asked.device == "cuda":
        torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    if step >= asked.warm:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        speed = asked.rows * asked.length / seconds
        print(json.dumps({"tokens_per_second": speed, "rss_mb": peak, "loss": loss.item()}), flush=True)
