"""The HTTP code that all fronts share: the app, errors, event streams and limits, and the routes for operators."""
