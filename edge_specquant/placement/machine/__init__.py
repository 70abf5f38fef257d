"""What is here: processor, memory, GPUs, board."""
