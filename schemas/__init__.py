"""Messages between processes and inside one: records, events and effects."""
