"""What calls do: who runs with what, what comes back, which collectives are issued, which arguments change."""
