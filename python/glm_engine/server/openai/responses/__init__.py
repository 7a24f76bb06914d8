"""OpenAI's Responses endpoint on the same engine; nothing is stored."""
