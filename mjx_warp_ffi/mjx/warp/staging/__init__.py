"""The Warp side of one call: the workspace, what goes in and out, batches, resets."""
