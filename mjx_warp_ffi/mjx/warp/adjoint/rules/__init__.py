"""What has a rule, and the words in which the rest is refused."""
