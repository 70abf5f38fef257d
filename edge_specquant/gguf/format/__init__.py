"""GGUF files: read, written, whole or not at all."""
