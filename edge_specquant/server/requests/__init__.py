"""What callers send: bodies, bounds, tools, and their translation to the runtime's requests."""
