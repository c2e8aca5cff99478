"""What one place of a project leaves for another: states that objects give and take, files, and requests."""
