"""Run the command line: `python -m fastmetric`."""

from fastmetric.cli.commands import main

if __name__ == "__main__":
    raise SystemExit(main())
