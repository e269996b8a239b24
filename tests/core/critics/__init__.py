"""Tests of the critics."""
