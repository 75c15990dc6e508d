"""A file for each function that runs in a call; one named like a verb of `mjx/` is its inside."""
