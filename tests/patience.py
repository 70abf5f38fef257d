"""How long a test waits for what must come. Nothing is judged by it: a machine may be slow and busy."""

PATIENCE_S = 300.0
