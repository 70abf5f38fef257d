"""Other programs that answer the same prompts."""
