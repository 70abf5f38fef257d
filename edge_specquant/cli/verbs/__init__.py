"""One verb a file; its name is the file's. Heavy imports stay inside the functions."""
