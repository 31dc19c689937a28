"""Run the command: `python -m hcarec`."""

from hcarec.cli import main

if __name__ == "__main__":
    main()
