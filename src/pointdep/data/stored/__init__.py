"""Rows that stay on disk and are read as they are needed."""
