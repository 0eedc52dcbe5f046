"""What a user asks before they speculate: will it pay, with which draft, at which k, on which text."""
