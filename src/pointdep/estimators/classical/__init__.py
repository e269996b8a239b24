"""The estimators that came before neural networks, behind the same calls."""
