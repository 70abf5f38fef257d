"""Nested weights: a 4-bit base and the residual that refines it to 8 bits."""
