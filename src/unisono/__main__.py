"""Runs the command line as ``python -m unisono``, if its script is not on the path."""

from unisono._src.cli.main import main

__all__ = ["main"]

if __name__ == "__main__":
    main()
