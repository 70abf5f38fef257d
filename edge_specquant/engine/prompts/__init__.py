"""Messages to prompt tokens, and the scores of a prompt's own tokens."""
