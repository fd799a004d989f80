"""`python -m regard`."""

import sys

from regard.cli import main

if __name__ == "__main__":  # not when a process that `regard lab all` started reads this file
    sys.exit(main())
