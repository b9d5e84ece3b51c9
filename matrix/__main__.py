import gc
import sys

from matrix.cli import main

if __name__ == "__main__":  # processes that a command starts may import this
    gc.disable()  # keys live as long as the process, and looking through them for garbage took a tenth of it
    sys.exit(main())
