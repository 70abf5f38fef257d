"""Makes the documents that follow from the code: CLI reference, Python reference, man page, list of licences."""
