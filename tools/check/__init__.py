"""Source rules: no comment, no banned word, no path of the machine it was made on."""
