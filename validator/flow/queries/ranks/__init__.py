"""Questions about ranks: what is shared out among them, what all of them run, which groups they make."""
