"""Theorem 1 of the paper: how the error of an estimated mutual information falls with the rows."""
