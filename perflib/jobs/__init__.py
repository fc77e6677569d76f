"""Jobs that run as programs of their own and log each event as Athena does."""
