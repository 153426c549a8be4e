"""Text: agreement with human rationales, and the tables of the notebook on text."""
