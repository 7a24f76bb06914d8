"""`glm verify`: the operations of a device beside those of its oracle."""
