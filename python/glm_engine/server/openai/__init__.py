"""OpenAI's endpoints: what their requests hold, and how answers are written."""
