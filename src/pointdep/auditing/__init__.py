"""Which pairs of a data set are wrong: the cross-fitted audit and its report page."""
