"""Graph nodes computed by our own code: products, attention, callbacks."""
