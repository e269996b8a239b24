"""Tests of the scores that are never laid out."""
