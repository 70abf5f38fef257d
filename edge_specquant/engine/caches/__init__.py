"""KV caches, their snapshots, the resident models they belong to, and which widths compute the same bits."""
