"""The same logits wherever a model is computed: on the CPU, with wide batches handed to a device, half of it there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from placed_runs import BATCHES, CASES
from software_gpu import found_by, run

from edge_specquant.native.selftest.tiny import write_tiny_llama

pytestmark = pytest.mark.gpu
# A device multiplies in half floats. The logits of this model have a deviation of 4; a computation that lost nodes
# chooses other tokens.
STRAYS = 0.6


@pytest.fixture(scope="module")
def four_layers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_llama(tmp_path_factory.mktemp("placed") / "tiny.gguf", n_layer=4)


@pytest.fixture(scope="module")
def found(four_layers: Path) -> Any:
    return found_by("placed_runs", four_layers)


@pytest.mark.parametrize("n", BATCHES)
@pytest.mark.parametrize("case", CASES)
def test_logits_are_those_of_the_cpu(found, case, n):
    expected, got = (np.array(found[name]["rows"][str(n)]) for name in ("plain", case))
    assert np.abs(got - expected).max() < STRAYS, f"argmax {got.argmax()} instead of {expected.argmax()}"


def test_the_kernel_computes_what_the_cpu_does_and_nothing_else(found):
    taken = {name: each["n_taken"] for name, each in found.items()}
    if not taken["kernel"]:
        pytest.skip("there is no kernel for this processor")
    assert 0 < taken["half"] < taken["kernel"] and 0 < taken["handed over"] < taken["kernel"]


def test_a_cache_beyond_the_largest_buffer_is_refused_before_it_is_made(four_layers):
    script = (
        "import sys; from pathlib import Path\n"
        "from edge_specquant.errors import ContextError\n"
        "from edge_specquant.native.model import NativeModel\n"
        "from edge_specquant.native.protocol import ContextParams\n"
        "with NativeModel(Path(sys.argv[1]), use_extra_bufts=True, n_gpu_layers=-1) as model:\n"
        "    try: model.context(ContextParams(n_ctx=400000, n_batch=32))\n"
        "    except ContextError as error: print(error)\n"
    )
    done = run("-c", script, str(four_layers), GGML_VK_SUBALLOCATION_BLOCK_SIZE=str(1 << 25))
    assert done.returncode == 0, done.stderr[-1500:]
    assert "the GPU's largest is 32" in done.stdout and "--ctx" in done.stdout
