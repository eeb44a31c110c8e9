"""`python -m allneg` is the command `allneg`."""

from allneg.cli import run

if __name__ == "__main__":
    run()
