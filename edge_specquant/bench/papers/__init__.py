"""The tables of SpecQuant, SpecKV and BitNest, measured here."""
