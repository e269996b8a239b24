"""Folders of Parquet shards, scored in this process or by the workers of a Ray cluster."""
