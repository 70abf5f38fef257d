"""A checkpoint of any kind to an F16 or BF16 GGUF file."""
