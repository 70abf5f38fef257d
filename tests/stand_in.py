"""A full-precision stand-in for the demo model: its Q4_1 weights, each moved at random within its quantization step.

Without the dither, quantizing to four bits again would be nearly lossless and every figure too good to be true.
Run as a program: python tests/stand_in.py TARGET.gguf
"""

from __future__ import annotations

import sys
from pathlib import Path

import gguf
import numpy as np
from numpy.typing import NDArray

from edge_specquant.gguf.checkpoint.source import demo_file

_BLOCK = 32


def write_stand_in(target: Path, seed: int = 0) -> Path:
    """Writes an F16 GGUF of the demo model (270 MB). Equal seeds give equal files."""
    reader = gguf.GGUFReader(demo_file())
    writer = gguf.GGUFWriter(target, "llama")
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name in ("general.architecture", "general.file_type"):
            continue
        sub_type = field.types[-1] if len(field.types) > 1 else None
        writer.add_key_value(field.name, field.contents(), field.types[0], sub_type)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    rng = np.random.default_rng(seed)
    for tensor in reader.tensors:
        if tensor.tensor_type == gguf.GGMLQuantizationType.F32:
            writer.add_tensor(tensor.name, np.array(tensor.data))
        else:
            writer.add_tensor(tensor.name, _dithered(tensor, rng))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target


def _dithered(tensor: gguf.ReaderTensor, rng: np.random.Generator) -> NDArray[np.float16]:
    values = gguf.dequantize(tensor.data, tensor.tensor_type)
    n_block_bytes = gguf.GGML_QUANT_SIZES[tensor.tensor_type][1]
    blocks = np.ascontiguousarray(tensor.data).reshape(-1, n_block_bytes)
    steps = np.abs(blocks[:, :2].copy().view(np.float16).astype(np.float32))  # Q4_1 and Q8_0 begin with their scale
    noise = rng.uniform(-0.5, 0.5, (len(steps), _BLOCK)).astype(np.float32) * steps
    dithered: NDArray[np.float16] = (values + noise.reshape(values.shape)).astype(np.float16)
    return dithered


if __name__ == "__main__":
    print(write_stand_in(Path(sys.argv[1])))
