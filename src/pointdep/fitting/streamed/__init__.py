"""Fitting on rows that stay where they are stored."""
