"""Data and files that ranks share."""
