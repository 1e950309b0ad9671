"""The pages of the explorer: what each shows, and what its callbacks answer."""
