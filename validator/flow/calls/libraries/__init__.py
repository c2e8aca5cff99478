"""What calls of libraries do and give: as rows of the tables say, or as functions of their arguments."""
