"""One command of `glm` a module; cli.py loads only the one that runs."""
