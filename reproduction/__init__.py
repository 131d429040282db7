"""The reproduction of the MARS paper: its figures, pages and theory. `python -m reproduction` writes its report."""
