"""The Warp side of the verbs of `mjx/`: a file for each function, with the name of its verb."""
