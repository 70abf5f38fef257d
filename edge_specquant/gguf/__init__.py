"""Checkpoint to family: reads checkpoints, writes GGUF siblings, proves that they belong together.

Knows nothing of hardware, contexts or prompts.
"""
