"""The command `fcam`, also `python -m fcamlib`."""

import sys


def main() -> None:
    """Run the command line; an interruption during the imports or a fault of a plugin also ends in one sentence."""
    try:
        from fcamlib.config import load_plugins
        from fcamlib.errors import UserError

        try:
            load_plugins()  # first, since options are made from the parameters of all sources
        except UserError as error:
            sys.stderr.write(f"fcam: {error}\n")
            sys.exit(2)
        from fcamlib.cli import main as command
    except KeyboardInterrupt:
        sys.stderr.write("fcam: interrupted before anything was computed.\n")
        sys.exit(130)
    command()


if __name__ == "__main__":
    main()
