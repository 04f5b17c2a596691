"""Reading postcodes: find the digits on an envelope, read each, give the postcode back."""
