"""`headrace plan`: the plan for a demand, without running anything."""
