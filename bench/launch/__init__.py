"""Starting the ranks of one configuration: one module per engine, each a function `command`."""
