"""Family and machine to plan: what is here, what fits, which siblings, how many layers where."""
