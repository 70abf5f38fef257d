"""edge_specquant: one checkpoint in, a family of GGUF siblings out, and the fastest honest way to chat with them."""

__version__ = "0.1.0"
