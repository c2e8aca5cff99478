"""Where ways meet: phis, what arrives at them, what the branches before them depend on."""
