"""A small training kit with two strategies that share no base class; the subject of the mutation tests."""
