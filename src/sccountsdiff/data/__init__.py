"""Reading, checking and splitting of count data."""
