"""One command of `glm` a module; command_line.py loads only the one that runs."""
