"""Captioning: an attention model that attends once per word, with its training, evaluation and runs."""
