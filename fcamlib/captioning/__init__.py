"""Captioning: an attention model that attends anew for every word, its training, its measures and its runs."""
