"""A project as a system of equations: its units of code, what is known of them, and how that is found."""
