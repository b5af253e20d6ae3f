"""PyTorch's fused AdamW over one flat tensor on the CPU: optim.py PARAMETERS REPEATS"""
import json
import sys
import time

import torch

torch.set_num_threads(2)
count, repeats = int(sys.argv[1]), int(sys.argv[2])
weights = torch.nn.Parameter(torch.full((count,), 0.01))
weights.grad = torch.full((count,), 0.001)
optimizer = torch.optim.AdamW([weights], lr=1e-4, weight_decay=0.01, fused=True)
optimizer.step()
for _ in range(repeats):
    start = time.perf_counter()
    optimizer.step()
    seconds = time.perf_counter() - start
    print(json.dumps({"ns_per_parameter": seconds / count * 1e9, "gb_per_second": 28 * count / seconds * 1e-9}), flush=True)
