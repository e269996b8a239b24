"""The one training engine: R replicas at once; splits, early stopping, checkpoints, progress."""
