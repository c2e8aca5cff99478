"""What a change makes of settings in files and of the code that asks for them."""
