"""From a raw event log to `Sequences`: reading, cleaning, splitting, checking."""
