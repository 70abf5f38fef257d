"""What callers get: replies as messages, texts, chunks."""
