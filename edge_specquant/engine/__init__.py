"""Plan to token stream: resident models, KV caches, drafters, verification. Knows nothing of routing."""
