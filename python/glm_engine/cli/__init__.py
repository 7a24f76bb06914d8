"""The machinery of `glm`: commands, options and their sources, on click."""
