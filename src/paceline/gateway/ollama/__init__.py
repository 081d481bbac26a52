"""The front that speaks Ollama's API (https://docs.ollama.com/api)."""
