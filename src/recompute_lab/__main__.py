"""python -m recompute_lab: the same as the command recompute-lab."""

import sys

from recompute_lab.cli import main

if __name__ == "__main__":
    sys.exit(main())
