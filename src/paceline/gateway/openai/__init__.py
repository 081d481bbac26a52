"""The front for OpenAI's API: request schemas, and how a body becomes a `GenerationCall` and an answer a response."""
