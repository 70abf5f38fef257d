"""Several replies in one context, decoded in mixed batches."""
