"""`python -m edge_specquant` is the same as `edge-specquant`."""

from .cli import main

if __name__ == "__main__":
    main()
