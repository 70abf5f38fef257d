"""The weight types of GGUF files: name, number, block length and block size in bytes.

Source: ggml.h (`enum ggml_type`) and ggml-common.h (block structs). Knows nothing of models or recipes.
"""

from __future__ import annotations

from typing import NamedTuple


class WeightType(NamedTuple):
    """One way to store weights: `n_per_block` weights in `n_block_bytes` bytes."""

    name: str
    ggml_id: int
    n_per_block: int
    n_block_bytes: int

    @property
    def bits_per_weight(self) -> float:
        return 8 * self.n_block_bytes / self.n_per_block

    @property
    def is_quantized(self) -> bool:
        return self.n_per_block > 1

    def fits(self, n_per_row: int) -> bool:
        """Whether rows of `n_per_row` weights divide into whole blocks."""
        return n_per_row % self.n_per_block == 0

    def n_bytes(self, n_weights: int) -> int:
        """Bytes of `n_weights` weights in whole blocks."""
        return n_weights // self.n_per_block * self.n_block_bytes


_ALL = (
    WeightType("F32", 0, 1, 4),
    WeightType("F16", 1, 1, 2),
    WeightType("Q4_0", 2, 32, 18),
    WeightType("Q4_1", 3, 32, 20),
    WeightType("Q5_0", 6, 32, 22),
    WeightType("Q5_1", 7, 32, 24),
    WeightType("Q8_0", 8, 32, 34),
    WeightType("Q8_1", 9, 32, 36),
    WeightType("Q2_K", 10, 256, 84),
    WeightType("Q3_K", 11, 256, 110),
    WeightType("Q4_K", 12, 256, 144),
    WeightType("Q5_K", 13, 256, 176),
    WeightType("Q6_K", 14, 256, 210),
    WeightType("Q8_K", 15, 256, 292),
    WeightType("IQ2_XXS", 16, 256, 66),
    WeightType("IQ2_XS", 17, 256, 74),
    WeightType("IQ3_XXS", 18, 256, 98),
    WeightType("IQ1_S", 19, 256, 50),
    WeightType("IQ4_NL", 20, 32, 18),
    WeightType("IQ3_S", 21, 256, 110),
    WeightType("IQ2_S", 22, 256, 82),
    WeightType("IQ4_XS", 23, 256, 136),
    WeightType("I8", 24, 1, 1),
    WeightType("I16", 25, 1, 2),
    WeightType("I32", 26, 1, 4),
    WeightType("I64", 27, 1, 8),
    WeightType("F64", 28, 1, 8),
    WeightType("IQ1_M", 29, 256, 56),
    WeightType("BF16", 30, 1, 2),
    WeightType("TQ1_0", 34, 256, 54),
    WeightType("TQ2_0", 35, 256, 66),
    WeightType("MXFP4", 39, 32, 17),
    WeightType("NVFP4", 40, 64, 36),
    WeightType("Q1_0", 41, 128, 18),
    WeightType("Q2_0", 42, 64, 18),
)

BY_NAME: dict[str, WeightType] = {weight_type.name: weight_type for weight_type in _ALL}
BY_ID: dict[int, WeightType] = {weight_type.ggml_id: weight_type for weight_type in _ALL}

FILE_TYPE_NAMES: dict[int, str] = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K", 11: "Q3_K_S", 12: "Q3_K_M",
    13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S", 17: "Q5_K_M", 18: "Q6_K", 19: "IQ2_XXS", 20: "IQ2_XS",
    21: "Q2_K_S", 22: "IQ3_XS", 23: "IQ3_XXS", 24: "IQ1_S", 25: "IQ4_NL", 26: "IQ3_S", 27: "IQ3_M", 28: "IQ2_S",
    29: "IQ2_M", 30: "IQ4_XS", 31: "IQ1_M", 32: "BF16", 36: "TQ1_0", 37: "TQ2_0", 38: "MXFP4", 39: "NVFP4",
    40: "Q1_0", 41: "Q2_0",
}  # fmt: skip
"""`general.file_type` -> the usual name (llama.h, `enum llama_ftype`)."""
