"""Time and memory of fcamlib beside plain implementations of the same mathematics: `python -m benchmarks --help`."""
