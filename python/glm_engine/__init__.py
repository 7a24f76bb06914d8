"""Orchestration of the GLM engine: tokenizing, commands and the way into engine.so."""
