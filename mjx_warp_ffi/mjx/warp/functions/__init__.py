"""The Warp side of what `mjx/` calls, a file for each function; some bear the name of a verb."""
