"""Data sources, each from its name to selective dependence classification (SDC) data."""

SPLITS = ("train", "validation", "test")
