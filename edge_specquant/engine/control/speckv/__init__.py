"""SpecKV's controller (arXiv 2605.02888): a small network picks the draft length."""
