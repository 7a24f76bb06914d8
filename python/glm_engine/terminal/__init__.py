"""`glm chat`: a conversation in the terminal, on an engine of this process or on a server."""
