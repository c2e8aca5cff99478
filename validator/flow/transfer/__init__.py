"""The transfer functions: what each instruction of a unit gives, and what the unit gives as a whole."""
