"""Captioning: an attention model that attends again for every word, its training, its measures and its runs."""
