"""From log-ratios to answers: mutual information with a standard error, checks of a reference."""
