"""How long a draft is: controllers, what they learn of acceptance, and what forwards cost. Pure."""
