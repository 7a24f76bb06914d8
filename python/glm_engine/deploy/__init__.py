"""Deploying: the stages from a model's name to a served model, here or on Modal."""
