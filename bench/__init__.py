"""The harness: measures training strategies, and says beforehand what a configuration should take."""
