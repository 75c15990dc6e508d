"""Where bodies are and how they move."""
