"""The test suite; a package so that its support modules can be imported by name."""
