"""What a sibling costs: bytes, seconds and watts of a forward, measured or estimated."""
