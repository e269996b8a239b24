"""Tests of the room `fitting`."""
