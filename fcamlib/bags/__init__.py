"""Bags of feature vectors (multiple-instance learning): cross-validation against reference methods."""
