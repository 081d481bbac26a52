"""OpenAI's API: request schemas, and how a request becomes engine requests and a response."""
