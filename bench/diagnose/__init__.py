"""Why a job hangs, from what its ranks left: flight-recorder dumps, stacks, and the source."""
