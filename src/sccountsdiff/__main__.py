"""``python -m sccountsdiff``, for where the command is not on the path."""

import sys

from sccountsdiff.cli import main

if __name__ == "__main__":
    sys.exit(main())
