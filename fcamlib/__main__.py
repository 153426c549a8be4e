"""The command `fcam`, also `python -m fcamlib`."""

import os
import signal


def main() -> None:
    """Run the command line; an interruption during the imports also ends in one sentence."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # a shell's background jobs ignore the signal
        signal.signal(signal.SIGINT, _stop)
    from fcamlib.cli import main as command

    signal.signal(signal.SIGINT, before)
    command()


def _stop(*_: object) -> None:
    """Exit immediately: an import could catch an exception and turn it into a traceback."""
    os.write(2, b"fcam: interrupted before anything was computed.\n")
    os._exit(130)


if __name__ == "__main__":
    main()
