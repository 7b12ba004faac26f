"""Policies and values: what they are (`shape`), how actors run them (`numpy`), how learners train them (`torch`)."""
