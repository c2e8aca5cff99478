"""`python -m validator`: see `validator` for what happens to `sys.path` before this is reached."""

import sys

from validator.cli import main

if __name__ == "__main__":
    sys.exit(main())
