"""Three engines on one machine: decode and four loads of the same model, beside each other."""
