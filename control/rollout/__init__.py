"""From an allocation to plans in force: placement, staging, leases, history."""
