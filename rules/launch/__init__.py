"""Rules about launch scripts and configuration files."""
