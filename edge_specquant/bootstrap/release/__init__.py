"""Bundles and bills of materials."""
