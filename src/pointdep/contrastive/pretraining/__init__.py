"""Pre-training of encoders: what is trained, the loop, its checkpoints, and what it leaves."""
