"""From a registered target to the launcher of this call."""
