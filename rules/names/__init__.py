"""Rules about names: imports that find nothing, names that nothing defines, syntax that is too new."""
