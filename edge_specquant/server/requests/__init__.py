"""What callers send: bodies, forms, tools, and their translation to the runtime's requests."""
