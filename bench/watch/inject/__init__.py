"""What `bench watch` puts on the PYTHONPATH of a job. Runs in any Python from 3.8, with its standard library alone."""
