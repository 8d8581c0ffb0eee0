"""Shows what `results` keeps: the figures, the page and the command line."""
