"""Run the command: `python -m hcarec`."""

import os
import sys

if not sys.flags.safe_path and sys.path[0] in ("", os.getcwd()):
    del sys.path[0]  # nothing in the current folder is ours, whatever its name

from hcarec.cli import main

if __name__ == "__main__":
    main()
