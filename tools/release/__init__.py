"""The wheel and the release archive, made of what the build made."""
