"""The report page of an audit: one HTML file that needs no server and no network."""
