"""The one training engine: R replicas at once, with splits, early stopping, checkpoints, progress."""
