"""A source to a family: siblings made, joined, measured."""
