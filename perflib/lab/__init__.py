"""What a person sees: the interface of notebooks, forms, figures, tables and the report."""
