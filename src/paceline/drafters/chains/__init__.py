"""What model drafters share: batches of token runs, sampling of draft tokens, and drafts that grow."""
