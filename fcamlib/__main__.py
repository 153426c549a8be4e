"""The command `fcam`, also `python -m fcamlib`."""

import sys


def main() -> None:
    """Run the command line; an interruption during the imports also ends in one sentence."""
    try:
        from fcamlib.cli import main as command
    except KeyboardInterrupt:
        sys.stderr.write("fcam: interrupted before anything was computed.\n")
        sys.exit(130)
    command()


if __name__ == "__main__":
    main()
