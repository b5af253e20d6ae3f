"""PyTorch's f32 matrix products over the shapes of a training step: gemm_torch.py REPEATS

Orders: nt = forward (x times transposed weights), nn = gradient of the input, tn = gradient of the weights.
"""
import json
import sys
import time

import torch

torch.set_num_threads(2)
repeats = int(sys.argv[1])
SHAPES = [
    (1024, 576, 576),
    (1024, 1536, 576),
    (1024, 576, 1536),
    (1024, 3072, 768),
    (1024, 768, 3072),
    (2048, 1536, 576),
    (1024, 49152, 576),
]
for m, n, k in SHAPES:
    x, w, dy = torch.rand(m, k), torch.rand(n, k), torch.rand(m, n)
    y, dx, dw = torch.empty(m, n), torch.empty(m, k), torch.empty(n, k)
    orders = {
        "nt": lambda: torch.mm(x, w.t(), out=y),
        "nn": lambda: torch.mm(dy, w, out=dx),
        "tn": lambda: torch.mm(dy.t(), x, out=dw),
    }
    for order, product in orders.items():
        product()
        best = float("inf")
        for _ in range(repeats):
            start = time.perf_counter()
            product()
            best = min(best, time.perf_counter() - start)
        print(json.dumps({"m": m, "n": n, "k": k, "order": order, "gflops": 2 * m * n * k / best * 1e-9}), flush=True)
