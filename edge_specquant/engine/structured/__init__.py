"""What a reply must look like: JSON schemas read, refused or made exact, and compiled within bounds."""
