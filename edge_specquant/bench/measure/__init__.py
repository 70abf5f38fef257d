"""One measurement: cases, contestants, samples, clocks, statistics. Knows no tables."""
