"""Workers as processes: what loads and runs their models, and keeps each to its share."""
