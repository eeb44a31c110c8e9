"""`python -m allneg` is the command `allneg`."""

from allneg.cli import main

if __name__ == "__main__":
    main()
