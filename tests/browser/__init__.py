"""The playground in a real browser, before a real server with a real model; `make test-browser` runs these tests."""
