"""Read postcodes: locate the digits on an envelope, classify each, return the postcode."""
