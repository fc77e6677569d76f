"""Large code: what random_calls and code_segment share."""
