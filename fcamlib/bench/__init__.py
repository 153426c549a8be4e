"""Benchmarks: time and memory, against a plain procedure, against the machine's floor, and as segments grow."""
