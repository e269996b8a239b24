"""Tests of the room `inference`."""
