"""The child of tests/native/test_placements.py: one tiny model on the CPU, halved and on a device; prints JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from engine_rig import Rig

from edge_specquant.engine.caches.certificate import certify
from edge_specquant.native.library.devices import list_devices
from edge_specquant.native.model import NativeModel
from edge_specquant.native.protocol import ContextParams

PLACES = {"none": 0, "half": 2, "all": -1}
BATCHES = (1, 8, 31, 32, 33, 200)
N_TOKENS = 8
SIZES = {"n_ctx": 256, "n_batch": 256, "max_rows": 32, "n_threads": 1}
KERNEL_CASES = (
    *((place, use_kernel) for place in ("none", "half", "offload") for use_kernel in (False, True)),
    ("all", True),
)
PAIRS = (("none", None), ("half", None), ("all", None), ("none", "all"), ("all", "none"), ("half", "half"))


def main(path: Path) -> None:
    """Every placement, with and without the kernel, with and without wide batches handed to the device."""
    with ExitStack() as stack:
        models = {
            name: stack.enter_context(NativeModel(path, use_extra_bufts=True, n_gpu_layers=n))
            for name, n in PLACES.items()
        }
        offloads = stack.enter_context(NativeModel(path, use_extra_bufts=True, op_offload=True))
        found = {
            "devices": [device.kind for device in list_devices()],
            "logits": {
                f"{name}, kernel {'on' if use_kernel else 'off'}": logits(
                    {**models, "offload": offloads}[name], use_kernel
                )
                for name, use_kernel in KERNEL_CASES
            },
            "replies": dict(replies(models)),
            "moved": dict(moved(models)),
            "certified": certified(models["half"]),
        }
    print(json.dumps(found))


def ids(n: int) -> list[int]:
    """Tokens of no meaning."""
    return [5 + (i * 7919) % 300 for i in range(n)]


def logits(model: NativeModel, use_kernel: bool) -> dict[str, object]:
    """The row after a batch of each length and one token more, and how many nodes were the kernel's."""
    print(f"logits {model.n_gpu_layers} {model.op_offload} {use_kernel}", file=sys.stderr)
    model.use_kernel = use_kernel
    with model.context(ContextParams(**SIZES)) as context:
        rows = {}
        for n in BATCHES:
            context.clear()
            context.decode(ids(n), 0, 0)
            rows[str(n)] = context.decode([7], n, 1)[0].tolist()
        hook = getattr(context, "_hook", None)
        model.use_kernel = True
        return {"rows": rows, "n_taken": hook.n_taken if hook else 0, "is_exact": bool(hook and hook.is_exact)}


def replies(models: dict[str, NativeModel]) -> Iterator[tuple[str, dict[str, object]]]:
    """Greedy replies alone, drafted from each place, and past the end of the context."""
    prompt = ids(40)
    for target, draft in PAIRS:
        rig = Rig(models[target], models[draft] if draft else None, n_ctx=256)
        reply = rig.reply(prompt, n_draft=3 if draft else 0, max_tokens=N_TOKENS)
        yield f"{target}/{draft}", {"tokens": reply.tokens, "finish": reply.finish_reason}
        rig.close()
    rig = Rig(models["half"], None, n_ctx=64)
    reply = rig.reply(ids(60), max_tokens=N_TOKENS, n_keep=4)
    yield "half, shifted", {"tokens": reply.tokens, "finish": reply.finish_reason}
    rig.close()


def moved(models: dict[str, NativeModel]) -> Iterator[tuple[str, list[float]]]:
    """The row after cells that another place computed: transplants, and snapshots put back."""
    for source, target in (("none", "none"), ("none", "all"), ("all", "none"), ("half", "half")):
        params = ContextParams(**SIZES)
        with models[source].context(params) as given, models[target].context(params) as taken:
            given.decode(ids(40), 0, 0)
            assert taken.load_state(np.array(given.save_state()))
            yield f"{source} to {target}", taken.decode([7], 40, 1)[0].tolist()


def certified(model: NativeModel) -> dict[str, object]:
    """What `--certify` says of a model that lies on both."""
    with model.context(ContextParams(**SIZES)) as context:
        made = certify(context, ids(8), (1, 4))
        return {"is_exact": made.is_exact, "near_tie": made.near_tie, "n_widths": len(made.widths)}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
