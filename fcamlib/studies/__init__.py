"""Studies: many trainings whose results are one table."""
