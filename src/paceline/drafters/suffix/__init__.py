"""The suffix drafter: guesses that a text goes on as texts did where they ended the same way."""
