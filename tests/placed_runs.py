"""The child of tests/native/test_placements.py: one tiny model on the CPU, handed over and halved; prints JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from edge_specquant.native.model import NativeModel
from edge_specquant.native.protocol import ContextParams

BATCHES = (1, 31, 32, 33)
CASES = {  # layers on the device, whether wide batches go there, the kernel
    "plain": (0, False, False),
    "kernel": (0, False, True),
    "handed over": (0, True, True),
    "half": (2, False, True),
}


def main(path: Path) -> None:
    """The row after a batch of each length and one token more, and how many nodes were the kernel's."""
    found = {}
    for name, (n_gpu_layers, op_offload, use_kernel) in CASES.items():
        how = {"n_gpu_layers": n_gpu_layers, "op_offload": op_offload, "use_kernel": use_kernel}
        params = ContextParams(n_ctx=256, n_batch=64, max_rows=8, n_threads=1)
        with NativeModel(path, use_extra_bufts=True, **how) as model, model.context(params) as context:
            rows = {}
            for n in BATCHES:
                context.clear()
                context.decode([5 + (i * 7919) % 300 for i in range(n)], 0, 0)
                rows[str(n)] = context.decode([7], n, 1)[0].tolist()
            hook = getattr(context, "_hook", None)
            found[name] = {"rows": rows, "n_taken": hook.n_taken if hook else 0}
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
