"""What other programs read of a run: its vectors, and a model card."""
