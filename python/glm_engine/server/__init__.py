"""The HTTP server: OpenAI's interface over the engine's asynchronous face."""
