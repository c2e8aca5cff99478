"""What people type and read: flags, tables that fit, texts without control characters."""
