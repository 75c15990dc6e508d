"""The Warp side of what `mjx/` calls: a file for each function, named like its verb if it has one."""
