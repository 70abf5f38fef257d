"""The same text wherever a model lies: all of it, half or none on a device, drafted from anywhere, moved about."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from placed_runs import BATCHES, KERNEL_CASES, N_TOKENS, PAIRS
from software_gpu import found_by, run

from edge_specquant.native.selftest.tiny import write_tiny_llama

pytestmark = pytest.mark.gpu
# A device multiplies in half floats; logits of this model spread with a deviation of 4, and those of a computation that
# lost a node differ by several times that.
STRAYS = 0.6
OFFLOADED = {"GGML_OP_OFFLOAD_MIN_BATCH": "32"}


@pytest.fixture(scope="module")
def four_layers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_llama(tmp_path_factory.mktemp("placed") / "tiny.gguf", n_layer=4)


@pytest.fixture(scope="module")
def found(four_layers: Path) -> Any:
    return found_by("placed_runs", four_layers, **OFFLOADED)


def row(found: Any, place: str, n: int) -> np.ndarray:
    return np.array(found["logits"][place]["rows"][str(n)])


@pytest.mark.parametrize("n", BATCHES)
@pytest.mark.parametrize(("place", "use_kernel"), KERNEL_CASES)
def test_logits_are_those_of_the_cpu_wherever_layers_lie(found, place, use_kernel, n):
    kernel = "on" if use_kernel else "off"
    expected, got = row(found, "none, kernel off", n), row(found, f"{place}, kernel {kernel}", n)
    assert np.abs(got - expected).max() < STRAYS, f"argmax {got.argmax()} instead of {expected.argmax()}"


def test_the_kernel_computes_what_the_cpu_does_and_nothing_else(found):
    taken = {name: each["n_taken"] for name, each in found["logits"].items()}
    if not taken["none, kernel on"]:
        pytest.skip("there is no kernel for this processor")
    assert 0 < taken["half, kernel on"] < taken["none, kernel on"]
    assert 0 < taken["offload, kernel on"] < taken["none, kernel on"]
    assert taken["all, kernel on"] == 0
    assert not found["logits"]["half, kernel on"]["is_exact"]


@pytest.mark.parametrize(("target", "draft"), PAIRS)
def test_replies_are_the_cpus_up_to_a_near_tie(found, four_layers, target, draft):
    """Drafted or not: where a reply leaves the CPU's, the CPU saw two tokens about as good."""
    reference = found["replies"]["none/None"]["tokens"]
    got = found["replies"][f"{target}/{draft}"]
    assert got["finish"] == "length" and len(got["tokens"]) == len(reference)
    same = next((i for i, (a, b) in enumerate(zip(got["tokens"], reference, strict=True)) if a != b), None)
    if same is None:
        return
    assert gap_at(found, four_layers, reference[:same], got["tokens"][same]) < STRAYS


def gap_at(found, path, tokens, other):
    """How much less the CPU's logit of another token is than its best, after so much of the reply."""
    from placed_runs import SIZES, ids

    from edge_specquant.native.model import NativeModel
    from edge_specquant.native.protocol import ContextParams

    with NativeModel(path, use_extra_bufts=True) as model, model.context(ContextParams(**SIZES)) as context:
        text = [*ids(40), *tokens]
        last = context.decode(text, 0, 1)[0]
        return float(last.max() - last[other])


def test_a_split_context_shifts(found):
    assert found["replies"]["half, shifted"]["finish"] == "length"
    assert len(found["replies"]["half, shifted"]["tokens"]) == N_TOKENS


def test_cells_move_between_places(found):
    expected = np.array(found["moved"]["none to none"])
    for name, values in found["moved"].items():
        assert np.abs(np.array(values) - expected).max() < STRAYS, name


def test_a_split_model_is_certified_as_what_it_is(found):
    made = found["certified"]
    assert not made["is_exact"] and made["near_tie"] >= 0 and made["n_widths"] == 2


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
    assert done.returncode == 0 and "the GPU's largest is" in done.stdout, done.stderr[-1500:]
    assert "--ctx" in done.stdout
