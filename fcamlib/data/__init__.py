"""Data sources for selective dependence classification (SDC)."""

SPLITS = ("train", "validation", "test")
