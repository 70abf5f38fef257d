"""Which weight type each tensor gets, and the quantizer that gives it."""
