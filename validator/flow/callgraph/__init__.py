"""Who may call whom: by names, texts and handles, in which context."""
