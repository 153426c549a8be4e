"""The command `fcam`, also `python -m fcamlib`."""

import sys


def main() -> None:
    """Run the command line; an interruption while it is imported is one sentence too."""
    try:
        from fcamlib.cli import main as command

        command()
    except KeyboardInterrupt:
        print("fcam: interrupted before anything was computed.", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
