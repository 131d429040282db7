"""`python -m marsrec` is the command line."""

from marsrec.cli import main

main()
