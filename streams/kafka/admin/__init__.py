"""What roles ask of the broker before and beside their work: topics, their settings, rights."""
