"""What a function takes and gives, and what it is called."""
