"""`python -m limber.runners SUITE` is `limber runner SUITE`."""

import sys

from limber.cli import main

if __name__ == "__main__":
    sys.exit(main(["runner", *sys.argv[1:]]))
