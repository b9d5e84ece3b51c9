import sys

from matrix.cli import main

if __name__ == "__main__":  # processes that a command starts may import this
    sys.exit(main())
