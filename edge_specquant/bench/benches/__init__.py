"""One bench a file: what `bench NAME` runs."""
