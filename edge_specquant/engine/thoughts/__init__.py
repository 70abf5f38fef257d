"""Models that think before they answer: which, how, and where in a reply the thought ends."""
