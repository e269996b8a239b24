"""The estimators that users call: fit, mutual information, PMI, save and load."""
