"""What Model, Data, their options and their fields are: it launches nothing."""
