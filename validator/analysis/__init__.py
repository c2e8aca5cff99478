"""What rules ask of a project: types of receivers, families, call binding, options, guards. No rule lives here."""
