"""What several test files share; no test lives here, and no test file imports another."""
