"""Who guesses the next tokens: look-ups, siblings, a redo, and the portfolio that chooses among them."""
